//! Relays that are killed, copies that die, and a link that is cut, while clients write in both regions.

use std::collections::BTreeMap;

use crate::world::{RelayProcess, World};

const KEYS: usize = 60;
/// Nodes that have what they had after a kill, and learn the rest from the other copy.
const SSD: &[&str] = &["--flash", "{ssd}:160m", "--catch-up", "{topology}"];

/// Clients of both regions, one after the other: what each key holds by the last write of all.
struct Clients {
    random: fastrand::Rng,
    /// What was written last; `None`: deleted.
    last: BTreeMap<String, Option<String>>,
    writes: usize,
}

impl Clients {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), last: BTreeMap::new(), writes: 0 }
    }

    fn write(&mut self, world: &World, count: usize) {
        for _ in 0..count {
            self.writes += 1;
            let key = format!("key{}", self.random.usize(..KEYS));
            // Of the next millisecond, so that two regions order both writes as they were made.
            std::thread::sleep(std::time::Duration::from_millis(2));
            let region = &world.regions[self.random.usize(..2)];
            if self.random.u8(..4) == 0 {
                region.delete(&key);
                self.last.insert(key, None);
            } else {
                let value = format!("{key}-{}", self.writes);
                region.set(&key, &value);
                self.last.insert(key, Some(value));
            }
        }
    }

    /// All agree; and where one write was last by the clock of this machine, by more than two regions may mistake, it is that.
    fn check(&self, world: &World) {
        let keys: Vec<String> = self.last.keys().cloned().collect();
        world.until_all_agree(&keys);
        for (key, value) in &self.last {
            let held = world.all_held(key).pop().flatten().expect("all agree");
            let held = held.split("\r\n").nth(1).filter(|_| held.starts_with("VA ")).map(str::to_owned);
            assert_eq!(&held, value, "{key} holds another write than the last one");
        }
    }
}

fn seed() -> u64 {
    std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}

/// One thing that goes wrong, and is mended.
fn trouble(world: &mut World, clients: &mut Clients, relays: &mut [Option<RelayProcess>; 2], kind: u8) {
    let at = clients.random.usize(..2);
    match kind {
        0 => {
            relays[at].take().expect("it runs").kill();
            clients.write(world, 15);
            relays[at] = Some(world.relay(at, &[]));
        }
        1 => {
            // The copy that is read: a relay goes on at the other one. When it comes back, it learns from that what it has missed.
            let copy =
                if relays[at].as_ref().expect("it runs").page("/relay").contains("\"copy\":\"copy1\"") { 1 } else { 0 };
            let switches = relays[at].as_ref().expect("it runs").metric("relay_switches_total");
            world.regions[at].kill(copy);
            clients.write(world, 15);
            let relay = relays[at].as_ref().expect("it runs");
            relay.until("another copy is read", || relay.metric("relay_switches_total") > switches);
            world.regions[at].restart(copy);
        }
        2 => {
            world.regions[at].links.iter().for_each(|link| link.cut());
            clients.write(world, 15);
            world.regions[at].links.iter().for_each(|link| link.heal());
        }
        _ => {
            world.regions[at].links.iter().for_each(|link| link.reset());
            clients.write(world, 15);
        }
    }
}

fn run(rounds: usize, options: [&[&str]; 2]) {
    let seed = seed();
    println!("MONETA_SEED={seed}");
    let mut world = World::start(options);
    let mut relays = world.relays(&[]).map(Some);
    let mut clients = Clients::new(seed);
    for round in 0..rounds {
        clients.write(&world, 10);
        trouble(&mut world, &mut clients, &mut relays, (round % 4) as u8);
        clients.write(&world, 10);
    }
    for relay in relays.iter().flatten() {
        relay.until("all nodes are read", || relay.metric("relay_up") == 1.0);
    }
    clients.check(&world);
    for relay in relays.iter().flatten() {
        assert!(!relay.log().contains("panicked"), "{}", relay.log());
    }
}

#[test]
fn relays_copies_and_links_fail_and_at_rest_all_agree() {
    run(4, [SSD, SSD]);
}

#[test]
#[ignore = "it takes minutes: `make test-regions` runs it"]
fn for_minutes_relays_copies_and_links_fail_and_at_rest_all_agree() {
    run(40, [SSD, SSD]);
}
