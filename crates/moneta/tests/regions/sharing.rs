//! Several relays that share the keys. The failures to guard against: a key that no relay carries, a change that is lost when a relay
//! is killed, and one that is written down as carried while a node here lacks it and only a killed relay's disk has it.

use serde_json::Value;

use crate::common::{Node, moneta, until};
use crate::world::{RelayProcess, World, page};

const SSD: &[&str] = &["--flash", "{ssd}:160m"];
const SHARES: usize = 6;

fn set_all(world: &World, round: &str, count: usize) {
    (0..count).for_each(|number| world.regions[0].set(&format!("key{number}"), &format!("{round}.{number}")));
}

fn until_all_cross(world: &World, round: &str, count: usize) {
    for number in 0..count {
        let (key, value) = (format!("key{number}"), format!("{round}.{number}"));
        until(&format!("{key} of {round} is there"), || {
            world.regions[1].ask(&format!("mg {key} v")) == format!("VA {}\r\n{value}\r\n", value.len())
        });
    }
    let keys: Vec<String> = (0..count).map(|number| format!("key{number}")).collect();
    world.until_all_agree(&keys);
}

#[test]
fn relays_divide_the_keys_by_hand_and_one_that_is_killed_goes_on() {
    let world = World::start([SSD, SSD]);
    let relay = |share: &str| {
        let relay = world.relay_as(&share[..1], 0, &["--share", share]);
        relay.until("it reads", || relay.metric("relay_up") == 1.0);
        relay
    };
    let (first, second) = (relay("1/2"), relay("2/2"));
    set_all(&world, "a", 40);
    until_all_cross(&world, "a", 40);
    let (of_first, of_second) = (first.metric("relay_taken_total"), second.metric("relay_taken_total"));
    assert!(of_first >= 1.0 && of_second >= 1.0 && of_first + of_second == 40.0, "{of_first} and {of_second}");
    second.kill();
    set_all(&world, "b", 40);
    until("the other one goes on", || first.metric("relay_taken_total") == 2.0 * of_first);
    let _second = relay("2/2");
    until_all_cross(&world, "b", 40);
}

/// A control plane, and relays that share by its leases.
struct Shared {
    world: World,
    plane: Node,
    address: String,
}

impl Shared {
    fn start() -> Self {
        let world = World::start([SSD, SSD]);
        let data = world.folder.path().join("plane");
        let data = data.to_str().expect("a plain name");
        let plane = Node::run(&mut moneta(&["control", "--listen", "127.0.0.1:0", "--data", data]));
        let line = plane.screen.iter().find_map(|line| line.strip_prefix("listening on http://"));
        let address = line.expect("it says where it listens").to_owned();
        plane.wait_for(|| page(&address, "/readyz").contains("\"ready\":true"), "ready");
        Self { world, plane, address }
    }

    fn relay(&self, name: &str) -> RelayProcess {
        let (url, shares) = (format!("http://{}", self.address), SHARES.to_string());
        self.world.relay_as(name, 0, &["--control", &url, "--shares", &shares])
    }

    /// How far the shares are, as the control plane is told.
    fn carried(&self) -> Vec<u64> {
        let text = page(&self.address, &format!("/v1/default/jobs/relay-default-from-1-by-{SHARES}"));
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let job: Value = serde_json::from_str(body).unwrap_or_default();
        let whole = |task: &Value| task["progress"]["whole"].as_u64().unwrap_or(0);
        job["tasks"].as_array().into_iter().flatten().map(whole).collect()
    }
}

/// How many shares a relay has.
fn held(relay: &RelayProcess) -> usize {
    let text = relay.page("/relay");
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    // While it starts it has no such page.
    let page: Value = serde_json::from_str(body).unwrap_or_default();
    page["shares"].as_array().map_or(0, Vec::len)
}

#[test]
fn relays_share_by_leases_and_take_over_from_one_that_is_killed() {
    let shared = Shared::start();
    let world = &shared.world;
    let mut relays: Vec<RelayProcess> = ["a", "b", "c"].map(|name| shared.relay(name)).into();
    let balanced = |relays: &[RelayProcess]| relays.iter().all(|relay| held(relay) == SHARES / relays.len());
    until("each has its part", || balanced(&relays));
    set_all(world, "a", 60);
    until_all_cross(world, "a", 60);
    assert!(relays.iter().all(|relay| relay.metric("relay_taken_total") > 0.0), "all of them carry");
    // One is killed in the middle of writes: what it has read and not written, another one reads again.
    set_all(world, "b", 30);
    relays.remove(0).kill();
    set_all(world, "c", 60);
    until_all_cross(world, "c", 60);
    until("the others have its shares", || balanced(&relays));
    // It comes back, and is given its part.
    relays.push(shared.relay("a"));
    until("each has its part again", || balanced(&relays));
    set_all(world, "d", 60);
    until_all_cross(world, "d", 60);
    // One that ends in order gives its shares back at once; without the control plane what is held goes on.
    relays.pop().expect("three").end();
    until("the others have its shares", || balanced(&relays));
    let Shared { world, plane, .. } = shared;
    drop(plane);
    set_all(&world, "e", 60);
    until_all_cross(&world, "e", 60);
}

#[test]
fn what_a_relay_owes_a_node_is_not_told_as_carried() {
    let mut shared = Shared::start();
    let relay = shared.relay("a");
    until("it has all", || held(&relay) == SHARES);
    set_all(&shared.world, "a", 20);
    until_all_cross(&shared.world, "a", 20);
    let begun = shared.carried();
    assert_eq!(begun.len(), SHARES);
    until("it is told how far they are", || shared.carried().iter().all(|whole| *whole > 0));
    until("and further", || shared.carried().iter().zip(&begun).all(|(now, before)| now > before));
    // A node here is gone: what it misses are hints on this relay's disk.
    shared.world.regions[1].kill(1);
    set_all(&shared.world, "b", 20);
    until("all is read", || relay.metric("relay_taken_total") >= 40.0);
    until("it has hints", || relay.metric("cluster_hints") > 0.0);
    let whole = |relay: &RelayProcess| {
        let text = relay.page("/relay");
        let page: Value = serde_json::from_str(text.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
        page["whole"].as_u64().expect("a moment")
    };
    // What was on its way to the control plane has arrived.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let (told, reached) = (shared.carried(), whole(&relay));
    until("the relay itself goes on", || whole(&relay) > reached + 6_000);
    assert_eq!(shared.carried(), told, "what a node lacks is told as carried");
    shared.world.regions[1].restart(1);
    until("the node has its hints", || relay.metric("cluster_hints") == 0.0);
    until("all is told as carried", || shared.carried().iter().zip(&told).all(|(now, before)| now > before));
    until_all_cross(&shared.world, "b", 20);
}
