//! Relays that are killed, a broker that is gone, slow, and back, and messages that retention has dropped.

use std::collections::BTreeMap;

use crate::broker::Broker;
use crate::common::until;
use crate::world::World;

const KEYS: usize = 40;

fn seed() -> u64 {
    std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn relays_and_the_broker_fail_and_at_rest_all_agree() {
    let seed = seed();
    println!("MONETA_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::of(1, [&["--flash", "{ssd}:160m"], &["--flash", "{ssd}:160m"]]);
    let mut broker = Broker::start(world.folder.path());
    let through = broker.topic("t", 3, &[]);
    let writer = || world.relay_with("into", 0, &["--through", &through]);
    let reader = || world.relay_as("", 0, &["--through", &through]);
    let (mut into, mut out) = (writer(), reader());
    out.until("it is ready", || out.page("/readyz").contains("\"ready\":true"));
    let mut last: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut writes = 0;
    let mut write = |random: &mut fastrand::Rng, count: usize| {
        for _ in 0..count {
            writes += 1;
            let key = format!("key{}", random.usize(..KEYS));
            if random.u8(..4) == 0 {
                world.regions[0].delete(&key);
                last.insert(key, None);
            } else {
                let value = format!("{key}-{writes}");
                world.regions[0].set(&key, &value);
                last.insert(key, Some(value));
            }
        }
    };
    // Each kind once, and some again.
    let mut kinds: Vec<u8> = (0..4).chain((0..4).map(|_| random.u8(..3))).collect();
    random.shuffle(&mut kinds);
    for kind in kinds {
        let count = random.usize(..30);
        write(&mut random, count);
        match kind {
            0 => {
                into.kill();
                write(&mut random, 10);
                into = writer();
            }
            1 => {
                out.kill();
                write(&mut random, 10);
                out = reader();
            }
            2 => {
                broker.stop();
                write(&mut random, 10);
                std::thread::sleep(std::time::Duration::from_millis(random.u64(500..3_000)));
                broker.go_on();
            }
            _ => {
                broker.kill();
                write(&mut random, 10);
                into.until("it says that the topic is gone", || into.metric("relay_up") == 0.0);
                out.until("so does the other one", || out.metric("relay_up") == 0.0);
                broker.run();
            }
        }
        write(&mut random, 10);
    }
    for (key, value) in &last {
        until(&format!("{key} is what was written last"), || {
            let answer = world.regions[1].ask(&format!("mg {key} v"));
            answer.split("\r\n").nth(1).filter(|_| answer.starts_with("VA ")).map(str::to_owned) == *value
        });
    }
    let keys: Vec<String> = last.keys().cloned().collect();
    world.until_all_agree(&keys);
    for relay in [&into, &out] {
        relay.until("it is ready", || relay.page("/readyz").contains("\"ready\":true"));
        let (page, log) = (relay.page("/relay"), relay.log());
        assert!(page.contains("\"gaps\":[]") && page.contains("\"unreadable\":0"), "{page}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn what_a_topic_has_dropped_is_a_gap_and_so_is_what_a_relay_without_progress_did_not_write() {
    let world = World::of(1, [&[], &[]]);
    let broker = Broker::start(world.folder.path());
    let through = broker.topic("t", 2, &[]);
    let writer = world.relay_with("into", 0, &["--through", &through]);
    let start = || world.relay_as("", 0, &["--through", &through]);
    let reader = start();
    world.regions[0].set("a", "1");
    until("it crosses", || world.regions[1].ask("mg a v") == "VA 1\r\n1\r\n");
    reader.until("it is ready", || reader.page("/readyz").contains("\"ready\":true"));
    assert!(reader.page("/relay").contains("\"gaps\":[]"), "{}", reader.page("/relay"));
    // What is written while it is away is dropped before it is back; the repair of that time brings it.
    reader.end();
    world.regions[0].set("a", "2");
    world.regions[0].set("b", "2");
    writer.until("both are written", || writer.metric("relay_taken_total") >= 3.0);
    broker.drop_all(world.folder.path(), "t", 2);
    let reader = start();
    reader.until("it knows", || reader.page("/relay").contains("\"cause\":\"reclaimed\""));
    until("a repair has mended it", || world.regions[1].ask("mg a v") == "VA 1\r\n2\r\n");
    // Another relay writes, without what the first one kept: what was written meanwhile is not in the topic.
    writer.kill();
    let _writer = world.relay_with("anew", 0, &["--through", &through, "--back", "0"]);
    reader.until("it knows", || reader.page("/relay").contains("\"cause\":\"start\""));
    world.regions[0].set("c", "3");
    until("it goes on", || world.regions[1].ask("mg c v") == "VA 1\r\n3\r\n");
}
