//! Clocks of real processes: two seconds apart, and an hour that passes while a region is cut off. For the hour stand the wall clocks
//! of all processes, which go on by two half hours: what goes by them (versions, expiry, the age of deletes, lag) has it all; time
//! that is measured (timeouts, attempts to connect, the data that a real hour would write) is that of the test alone.

use crate::common::until;
use crate::days::{OUTRUNS, fill};
use crate::world::World;

const SSD: &[&str] = &["--flash", "{ssd}:160m"];
/// Seconds of an hour.
const HOUR: i64 = 3600;

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

#[test]
#[ignore = "it takes half a minute: `make test-regions` runs it"]
fn a_region_that_is_cut_off_for_an_hour_is_behind_and_then_whole() {
    let (world, clocks) = World::with_clocks([SSD, SSD], [0, 0]);
    let [east, west] = &world.regions;
    let relays = world.relays(&[]);
    let keys: Vec<String> = (0..12).map(|number| format!("key{number}")).collect();
    for key in &keys {
        east.set(key, "before");
        reads(&world, 1, key, "before");
    }
    let read = relays.each_ref().map(|relay| relay.metric("relay_changes_total"));
    east.links.iter().for_each(|link| link.cut());
    for (number, key) in keys.iter().enumerate() {
        if number < 8 { east.set(key, "first") } else { east.delete(key) }
    }
    until("it is stored", || east.ask("set short 0 600 1\r\nx") == "STORED\r\n");
    clocks.pass(HOUR / 2);
    keys[..4].iter().for_each(|key| east.set(key, "second"));
    west.set(&keys[5], "west");
    west.set("west", "west");
    clocks.pass(HOUR / 2);
    relays[0].until("it is an hour behind", || relays[0].metric("relay_lag_seconds") >= HOUR as f64);
    assert!(relays[0].page("/readyz").contains("s behind the other region"), "{}", relays[0].page("/readyz"));
    assert_eq!(relays[0].metric("relay_changes_total"), read[0], "it is not cut off");
    east.links.iter().for_each(|link| link.heal());
    let expected = |number: usize| match number {
        5 => Some("west"),
        0..4 => Some("second"),
        4..8 => Some("first"),
        _ => None,
    };
    for (number, key) in keys.iter().enumerate() {
        for region in 0..2 {
            match expected(number) {
                Some(value) => reads(&world, region, key, value),
                None => misses(&world, region, key),
            }
        }
    }
    misses(&world, 1, "short");
    world.until_all_agree(&keys);
    relays[0].until("it is ready", || relays[0].page("/readyz").contains("\"ready\":true"));
    assert_eq!(relays[0].metric("relay_gaps_total"), 0.0, "its feed reaches back for longer");
}

#[test]
#[ignore = "it takes half a minute: `make test-regions` runs it"]
fn a_region_that_is_cut_off_for_an_hour_in_which_the_feed_was_outrun_is_repaired() {
    let (world, clocks) = World::with_clocks([&[], &[]], [0, 0]);
    let [east, west] = &world.regions;
    let relays = world.relays(&[]);
    let keys: Vec<String> = (0..12).map(|number| format!("key{number}")).collect();
    for key in &keys {
        east.set(key, "before");
        reads(&world, 1, key, "before");
    }
    east.links.iter().for_each(|link| link.cut());
    clocks.pass(HOUR / 2);
    for (number, key) in keys.iter().enumerate() {
        match number {
            0..4 => east.set(key, "between"),
            4..8 => east.delete(key),
            8..10 => west.set(key, "west"),
            _ => {}
        }
    }
    fill(east.proxy.address(), OUTRUNS);
    clocks.pass(HOUR / 2);
    relays[0].until("it is an hour behind", || relays[0].metric("relay_lag_seconds") >= HOUR as f64);
    east.links.iter().for_each(|link| link.heal());
    relays[0].until("the gap is told", || relays[0].metric("relay_gaps_total") >= 1.0);
    relays[0].until("it is repaired", || relays[0].page("/metrics").contains("relay_repairs_total{ended=\"done\"} 1"));
    for (number, key) in keys.iter().enumerate() {
        for region in 0..2 {
            match number {
                0..4 => reads(&world, region, key, "between"),
                4..8 => misses(&world, region, key),
                8..10 => reads(&world, region, key, "west"),
                _ => reads(&world, region, key, "before"),
            }
        }
    }
    world.until_all_agree(&keys);
}
