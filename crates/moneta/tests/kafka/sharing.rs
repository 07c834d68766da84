//! Relays that share the partitions of a topic by leases. The failures to guard against: a partition that no relay reads once the
//! one that did is killed, and a change that only that one had read.

use std::time::Instant;

use serde_json::Value;

use crate::broker::Broker;
use crate::common::{Node, moneta, until};
use crate::world::{RelayProcess, World, page};

const SHARES: usize = 6;
const KEYS: usize = 60;

fn body(relay: &RelayProcess) -> Value {
    let text = relay.page("/relay");
    // While it starts it has no such page.
    serde_json::from_str(text.split_once("\r\n\r\n").map_or("", |(_, body)| body)).unwrap_or_default()
}

fn count(page: &Value, of: &str) -> usize {
    page[of].as_array().map_or(0, Vec::len)
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn relays_share_partitions_by_leases_and_take_over_from_one_that_is_killed() {
    let world = World::of(1, [&[], &[]]);
    let folder = world.folder.path();
    let broker = Broker::start(folder);
    let through = broker.topic("t", SHARES as u32, &[]);
    let data = folder.join("plane").to_str().expect("a plain name").to_owned();
    let plane = Node::run(&mut moneta(&["control", "--listen", "127.0.0.1:0", "--data", &data]));
    let line = plane.screen.iter().find_map(|line| line.strip_prefix("listening on http://"));
    let address = line.expect("it says where it listens").to_owned();
    plane.wait_for(|| page(&address, "/readyz").contains("\"ready\":true"), "ready");
    let (url, shares) = (format!("http://{address}"), SHARES.to_string());
    let reader = |name: &str| world.relay_as(name, 0, &["--through", &through, "--control", &url, "--shares", &shares]);
    let writer = world.relay_with("into", 0, &["--through", &through]);
    let mut readers: Vec<RelayProcess> = ["a", "b", "c"].map(reader).into();
    // Each has its part, and reads as many partitions.
    let balanced = |readers: &[RelayProcess]| {
        let part = SHARES / readers.len();
        let pages = readers.iter().map(body);
        pages.into_iter().all(|page| count(&page, "shares") == part && count(&page, "streams") == part)
    };
    until("each has its part", || balanced(&readers));
    let set = |round: &str, number: usize| world.regions[0].set(&format!("key{number}"), &format!("{round}.{number}"));
    let until_all_cross = |round: &str| {
        for number in 0..KEYS {
            let (key, value) = (format!("key{number}"), format!("{round}.{number}"));
            until(&format!("{key} of {round} is there"), || {
                world.regions[1].ask(&format!("mg {key} v")) == format!("VA {}\r\n{value}\r\n", value.len())
            });
        }
    };
    (0..KEYS).for_each(|number| set("a", number));
    until_all_cross("a");
    let taken: Vec<f64> = readers.iter().map(|reader| reader.metric("relay_taken_total")).collect();
    assert!(taken.iter().all(|taken| *taken > 0.0) && taken.iter().sum::<f64>() == KEYS as f64, "{taken:?}");
    // One is killed in the middle of writes: what it has read and not written, others read again.
    (0..KEYS / 2).for_each(|number| set("b", number));
    readers.remove(0).kill();
    let killed = Instant::now();
    (0..KEYS).for_each(|number| set("c", number));
    until_all_cross("c");
    println!("all is there {:.1} s after the kill", killed.elapsed().as_secs_f64());
    until("the others have its shares", || balanced(&readers));
    // It comes back, with the disk that it had, and is given its part.
    readers.push(reader("a"));
    until("each has its part again", || balanced(&readers));
    (0..KEYS).for_each(|number| set("d", number));
    until_all_cross("d");
    // What it missed meanwhile is no gap of the others, and none is behind.
    for relay in readers.iter().chain([&writer]) {
        let page = relay.page("/relay");
        assert!(page.contains("\"gaps\":[]") && page.contains("\"unreadable\":0"), "{page}");
        relay.until("it is ready", || relay.page("/readyz").contains("\"ready\":true"));
    }
    // A relay that ends in order releases its shares; deletes arrive through the relay that holds them then.
    readers.pop().expect("three").end();
    until("the others have its shares", || balanced(&readers));
    (0..KEYS).for_each(|number| world.regions[0].delete(&format!("key{number}")));
    for number in 0..KEYS {
        until("a delete crosses", || world.regions[1].ask(&format!("mg key{number} v")) == "EN\r\n");
    }
}
