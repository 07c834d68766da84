//! What crosses, and what does not.

use crate::common::{Node, moneta, printed, until};
use crate::world::World;

const MISS: &str = "EN\r\n";
const SSD: &[&str] = &["--flash", "{ssd}:160m"];

fn reads(world: &World, region: usize, key: &str, value: &str) {
    until(&format!("{key} is {value} in region {}", world.regions[region].id), || {
        world.regions[region].ask(&format!("mg {key} v")).split("\r\n").nth(1) == Some(value)
    });
}

fn misses(world: &World, region: usize, key: &str) {
    until(&format!("{key} is gone"), || world.regions[region].ask(&format!("mg {key} v")) == MISS);
}

/// What goes both ways: sets, deletes, lives that are lengthened elsewhere, keys written in both regions; and no change goes round.
fn crosses(options: [&[&str]; 2]) {
    let world = World::start(options);
    let [east, west] = &world.regions;
    let relays = world.relays(&[]);
    east.set("a", "east");
    west.set("b", "west");
    reads(&world, 1, "a", "east");
    reads(&world, 0, "b", "west");
    // The same key in both: the later one wins everywhere.
    east.set("c", "east");
    // Of a later millisecond, so that both regions order them as they were made.
    std::thread::sleep(std::time::Duration::from_millis(5));
    west.set("c", "west");
    reads(&world, 0, "c", "west");
    // A life that is lengthened where the item was not made.
    until("it is stored", || east.ask("set t 0 1000 1\r\nt") == "STORED\r\n");
    reads(&world, 1, "t", "t");
    let end = |region: usize| {
        let answer = world.regions[region].ask("mg t t");
        answer.trim_end().strip_prefix("HD t").and_then(|ttl| ttl.parse::<u32>().ok()).unwrap_or(0)
    };
    until("it is touched", || west.ask("touch t 5000") == "TOUCHED\r\n");
    until("the longer life is in the other region", || end(0) > 4000);
    east.delete("a");
    misses(&world, 1, "a");
    west.delete("c");
    misses(&world, 0, "c");
    let keys = ["a", "b", "c", "t"].map(String::from);
    world.until_all_agree(&keys);
    // At rest nothing goes round: what was read stays what it is.
    let read = || relays.each_ref().map(|relay| relay.metric("relay_changes_total"));
    let before = read();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(read(), before, "changes go round");
    assert!(before.iter().all(|read| *read < 30.0), "{before:?} changes for 10 writes");
    for relay in &relays {
        assert_eq!(relay.metric("relay_up"), 1.0);
        let page = relay.page("/relay");
        assert!(page.contains("\"gaps\":[]") && page.contains("\"copy\":\"copy0\""), "{page}");
        assert!(relay.page("/readyz").contains("\"ready\":true"), "{}", relay.page("/readyz"));
        assert!(relay.page("/").contains("id=\"now\""), "numbers at /");
        let numbers = relay.page("/vitals");
        assert!(numbers.contains("{\"title\":\"gaps\",\"unit\":\"count\",\"value\":0}"), "{numbers}");
    }
}

#[test]
fn writes_of_one_region_are_read_in_the_other_and_go_no_further() {
    crosses([SSD, &[]]);
}

#[test]
fn a_flush_crosses_where_it_is_asked_to_and_too_large_values_leave_nothing_old() {
    let world = World::start([&[], &["-I", "2k"]]);
    let [east, west] = &world.regions;
    let first = world.relay(0, &[]);
    for (key, value) in [("large", "small"), ("kept", "x"), ("other", "y")] {
        east.set(key, value);
        reads(&world, 1, key, value);
    }
    // Over the limit of the nodes there: what is older must not stay.
    east.set("large", &"l".repeat(5000));
    misses(&world, 1, "large");
    first.until("it is counted", || first.metric("relay_refused_total") >= 1.0);
    // A flush is its region's own.
    assert_eq!(east.ask("flush_all"), "OK\r\n");
    first.until("it is left out", || first.metric("relay_flushes_left_out_total") >= 1.0);
    assert_eq!(west.ask("mg kept v"), "VA 1\r\nx\r\n");
    assert_eq!(east.ask("mg kept v"), MISS);
    first.kill();
    let second = world.relay(0, &["--flush", "relay", "--probe"]);
    east.set("after", "z");
    reads(&world, 1, "after", "z");
    // A probe is no other app on the nodes, whose keys a flush would empty.
    second.until("it probes", || second.metric("relay_probe_writes_total") >= 2.0);
    let inside = world.folder.path().join("inside-1.toml");
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--region-id", "1", "--topology"];
    assert_eq!(Node::run(moneta(&arguments).arg(inside)).exchange("flush_all\r\n"), "OK\r\n");
    ["kept", "other", "after"].iter().for_each(|key| misses(&world, 1, key));
}

/// Of a rollback either all crosses or nothing: items without the flush would leave there what it took here.
#[test]
fn a_rollback_crosses_where_flushes_do() {
    let world = World::start([&[], &[]]);
    let [east, west] = &world.regions;
    let relay = world.relay(0, &[]);
    let holds = |region: usize, key: &str| world.regions[region].ask(&format!("mg {key} v"));
    for key in ["good", "gone", "p:good"] {
        east.set(key, "good");
        reads(&world, 1, key, "good");
    }
    let (archive, node) = (world.folder.path().join("archive"), east.addresses[0].to_string());
    let archive = archive.to_str().expect("plain");
    let topology = world.folder.path().join("inside-1.toml");
    let topology = topology.to_str().expect("plain");
    printed(&mut moneta(&["backup", &node, "--into", archive]));
    let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() + 1;
    let at = moment.to_string();
    east.delete("gone");
    for key in ["good", "new", "p:good", "p:new"] {
        east.set(key, "bad");
        reads(&world, 1, key, "bad");
    }
    misses(&world, 1, "gone");
    let restore = |more: &[&str]| {
        let fixed = ["restore", "--from", archive, "--topology", topology, "--at", &at, "--rollback", "--yes"];
        printed(&mut moneta(&[&fixed[..], more].concat()));
    };
    // Of a prefix, whose keys are deleted one by one; then of all.
    restore(&["--prefix", "p:"]);
    assert_eq!((holds(0, "p:new").as_str(), holds(0, "p:good").as_str()), (MISS, "VA 4\r\ngood\r\n"));
    // Two deletes and an item.
    relay.until("it is left out", || relay.metric("relay_rolled_back_left_out_total") == 3.0);
    restore(&[]);
    assert_eq!((holds(0, "new").as_str(), holds(0, "gone").as_str()), (MISS, "VA 4\r\ngood\r\n"));
    relay.until("it is left out", || relay.metric("relay_rolled_back_left_out_total") == 6.0);
    east.set("after", "x");
    reads(&world, 1, "after", "x");
    for key in ["good", "new", "p:good", "p:new"] {
        assert_eq!(west.ask(&format!("mg {key} v")), "VA 3\r\nbad\r\n", "{key} of a rollback has crossed");
    }
    assert_eq!(west.ask("mg gone v"), MISS);
    // Nor does a repair carry it.
    let outside = world.folder.path().join("inside-2.toml");
    let two = ["repair", "copy0", "copy0", "--topology", topology, "--to-topology", outside.to_str().expect("plain")];
    let text = printed(moneta(&two).args(["--full", "--lag", "0"]));
    assert!(text.contains("repaired: 0 older"), "{text}");
    assert_eq!(west.ask("mg good v"), "VA 3\r\nbad\r\n", "{text}");
    relay.kill();
    let _second = world.relay(0, &["--flush", "relay"]);
    for key in ["good", "gone", "p:good"] {
        reads(&world, 1, key, "good");
    }
    ["new", "p:new"].iter().for_each(|key| misses(&world, 1, key));
    reads(&world, 1, "after", "x");
    world.until_all_agree(&["good", "gone", "new", "p:good", "p:new", "after"].map(String::from));
}

/// Without this such a relay is ready and not behind, and carries nothing.
#[test]
fn a_relay_with_the_number_of_another_region_says_so() {
    let world = World::start([&[], &[]]);
    let relay = world.relay(0, &["--region", "7"]);
    relay.until("it says what is wrong", || relay.page("/relay").contains("and not of region 7"));
    assert!(relay.page("/readyz").contains("\"ready\":false"), "{}", relay.page("/readyz"));
    assert_eq!(relay.metric("relay_up"), 0.0);
}

#[test]
fn where_values_do_not_cross_what_is_older_goes() {
    let world = World::start([&[], &[]]);
    let [east, west] = &world.regions;
    west.set("k", "of the west");
    west.set("own.k", "of the west");
    let relay = world.relay(0, &["--mode", "invalidate", "--prefix", "k"]);
    relay.until("it reads", || relay.metric("relay_up") == 1.0);
    east.set("k", "of the east");
    east.set("own.k", "of the east");
    misses(&world, 1, "k");
    // Filled again from what the west has, it stays.
    west.set("k", "again");
    assert_eq!(west.ask("mg own.k v"), "VA 11\r\nof the west\r\n", "of another prefix");
    assert_eq!(west.ask("mg k v"), "VA 5\r\nagain\r\n");
}
