//! Clocks of real processes that are two seconds apart.

use crate::common::until;
use crate::world::World;

const SSD: &[&str] = &["--flash", "{ssd}:160m"];

fn reads(world: &World, region: usize, key: &str, value: &str) {
    until(&format!("{key} is {value} in region {}", world.regions[region].id), || {
        world.regions[region].ask(&format!("mg {key} v")) == format!("VA {}\r\n{value}\r\n", value.len())
    });
}

fn misses(world: &World, region: usize, key: &str) {
    until(&format!("{key} is gone in region {}", world.regions[region].id), || {
        world.regions[region].ask(&format!("mg {key} v")) == "EN\r\n"
    });
}

#[test]
fn regions_whose_clocks_are_two_seconds_apart_agree() {
    let (world, _) = World::with_clocks([SSD, SSD], [2, 0]);
    let [east, west] = &world.regions;
    // Nodes have been there for longer than clocks are apart: else it would be a gap that the feed of one begins later than now.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let relays = world.relays(&[]);
    // Further ahead than nodes there take: it waits until its time has come, and is not left out.
    east.set("a", "east");
    reads(&world, 1, "a", "east");
    relays[0].until("it waited", || relays[0].metric("relay_retries_total") > 0.0);
    west.set("b", "west");
    reads(&world, 0, "b", "west");
    // Of one that was seen there the later write is newer, whatever the clocks say.
    west.set("a", "west");
    reads(&world, 0, "a", "west");
    east.delete("b");
    misses(&world, 1, "b");
    west.delete("a");
    misses(&world, 0, "a");
    // Where neither has seen the other's, one of both is newer everywhere.
    for number in 0..20 {
        world.regions[number % 2].set(&format!("c{}", number % 3), &number.to_string());
    }
    world.until_all_agree(&["a", "b", "c0", "c1", "c2"].map(String::from));
    assert_eq!([0, 1].map(|at| world.regions[at].ask("mg a v")), ["EN\r\n"; 2], "what was deleted lives");
    for relay in &relays {
        relay.until("it is ready", || relay.page("/readyz").contains("\"ready\":true"));
        assert_eq!((relay.metric("relay_gaps_total"), relay.metric("relay_refused_total")), (0.0, 0.0));
    }
}
