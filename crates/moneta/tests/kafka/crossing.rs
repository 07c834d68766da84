//! What crosses by a topic, and what others read there.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::broker::Broker;
use crate::common::until;
use crate::world::{RelayProcess, World};

/// Sets a value of any bytes.
fn set_bytes(world: &World, region: usize, key: &str, value: &[u8]) {
    let request = [format!("ms {key} {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    until("a write is taken", || {
        let mut stream = crate::common::connect(world.regions[region].proxy.address());
        stream.write_all(&request).expect("it reads");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).is_ok() && answer == *b"HD\r\n"
    });
}

/// What a region has of a key.
fn get_bytes(world: &World, region: usize, key: &str) -> Vec<u8> {
    let mut stream = crate::common::connect(world.regions[region].proxy.address());
    stream.write_all(format!("mg {key} v\r\nmn\r\n").as_bytes()).expect("it reads");
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while !answer.ends_with(b"MN\r\n") {
        let count = stream.read(&mut buffer).expect("it answers");
        assert!(count > 0, "it hangs up");
        answer.extend_from_slice(&buffer[..count]);
    }
    let head = answer.windows(2).position(|two| two == b"\r\n").map_or(0, |at| at + 2);
    if answer.starts_with(b"VA ") { answer[head..answer.len() - 6].to_vec() } else { Vec::new() }
}

fn until_ready(relay: &RelayProcess) {
    relay.until("it is ready", || relay.page("/readyz").contains("\"ready\":true"));
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn what_is_written_crosses_by_a_topic_that_others_read_as_json() {
    let world = World::of(1, [&[], &[]]);
    let broker = Broker::start(world.folder.path());
    let through = broker.topic("t", 3, &["--config", "max.message.bytes=300000"]);
    let writer = world.relay_with("into", 0, &["--through", &through]);
    let readers =
        ["1/2", "2/2"].map(|share| world.relay_as(&share[..1], 0, &["--through", &through, "--share", share]));
    for relay in [&writer, &readers[0], &readers[1]] {
        until_ready(relay);
    }
    // One for which there is no partition yet has nothing to read, says so, and is not behind.
    let fifth = world.relay_as("5", 0, &["--through", &through, "--share", "5/5", "--lag-max", "2"]);
    fifth.until("it says why", || fifth.page("/readyz").contains("3 partitions, none of them for share 5/5"));
    assert!(fifth.log().contains("no partition of the topic is for this share"), "{}", fifth.log());
    until_ready(&fifth);
    // Text, and bytes that are none; many partitions, and so both readers.
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let values: Vec<(String, Vec<u8>)> = (0..40)
        .map(|number| (format!("key{number}"), if number % 2 == 0 { b"text".to_vec() } else { bytes.clone() }))
        .collect();
    for (key, value) in &values {
        set_bytes(&world, 0, key, value);
    }
    for (key, value) in &values {
        until(&format!("{key} is there"), || get_bytes(&world, 1, key) == *value);
    }
    let taken = readers.each_ref().map(|reader| reader.metric("relay_taken_total"));
    assert!(taken.iter().all(|taken| *taken >= 1.0), "{taken:?}: both carry");
    world.regions[0].delete("key0");
    until("a delete crosses", || get_bytes(&world, 1, "key0").is_empty());
    // A value that the topic does not take leaves nothing old.
    let mut random = fastrand::Rng::with_seed(1);
    let large: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(400_000).collect();
    set_bytes(&world, 0, "key1", &large);
    until("what is older is gone", || get_bytes(&world, 1, "key1").is_empty());
    assert!(writer.metric("relay_refused_total") >= 1.0, "it is counted");
    set_bytes(&world, 0, "key1", b"small");
    until("and it goes on", || get_bytes(&world, 1, "key1") == b"small");
    // More partitions, while all goes on: no key is lost on its way to another one.
    broker.add_partitions("t", 7);
    for round in 0..30 {
        for number in 0..4 {
            world.regions[0].set(&format!("later{round}.{number}"), "x");
        }
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    writer.until("it writes all of them", || writer.page("/relay").contains("\"partitions\":7"));
    world.regions[0].set("last", "x");
    let keys: Vec<String> =
        (0..30).flat_map(|round| (0..4).map(move |number| format!("later{round}.{number}"))).collect();
    for key in keys.iter().map(String::as_str).chain(["last"]) {
        until(&format!("{key} is there"), || get_bytes(&world, 1, key) == b"x");
    }
    fifth.until("its partition has come", || fifth.metric("relay_taken_total") > 0.0);
    assert!(fifth.page("/relay").contains("\"gaps\":[]"), "{}", fifth.page("/relay"));
    for reader in &readers {
        reader.until("it reads them", || reader.page("/relay").contains("\"partitions\":7"));
        until_ready(reader);
        let page = reader.page("/relay");
        assert!(page.contains("\"gaps\":[]") && page.contains("\"unreadable\":0"), "{page}");
        reader.until("it is not behind", || reader.metric("relay_lag_seconds") < 30.0);
    }
    writer.end();
    // What others read.
    let printed = broker.read("t");
    let messages: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(messages.iter().all(|message| message["format"] == 1 && message["region"] == 1), "{printed:.2000}");
    let of = |key: &str, kind: &str| {
        let mut found = messages.iter().filter(|message| message["key"] == key && message["kind"] == kind);
        found.next_back().cloned().unwrap_or_default()
    };
    let value = |key: &str| STANDARD.decode(of(key, "set")["value"].as_str().expect("a value")).expect("base64");
    assert_eq!((value("key2"), value("key3"), value("key1")), (b"text".to_vec(), bytes, b"small".to_vec()));
    assert!(of("key0", "delete")["version"].as_str().expect("text").parse::<u64>().is_ok());
    assert!(messages.iter().any(|message| message["kind"] == "mark" && message["partitions"] == 3));
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn what_is_no_message_is_counted_and_a_later_format_stops_its_partition() {
    let world = World::of(1, [&[], &[]]);
    let broker = Broker::start(world.folder.path());
    // The reader is there before the topic is: it is not ready, and its lag is no zero.
    let through = format!("kafka:{}/strange", broker.address);
    let reader = world.relay_as("", 0, &["--through", &through, "--repair", "off", "--lag-max", "2"]);
    reader.until("it says why", || reader.page("/relay").contains("there is no topic"));
    assert_eq!(reader.metric("relay_up"), 0.0);
    reader.until("it is behind", || reader.metric("relay_lag_seconds") > 3.0);
    broker.topic("strange", 1, &[]);
    let writer = world.relay_with("into", 0, &["--through", &through]);
    until_ready(&reader);
    world.regions[0].set("a", "1");
    until("it crosses", || get_bytes(&world, 1, "a") == b"1");
    // Of strangers: no JSON, a key of no length, a mark of the next century.
    let far = r#"{"format":1,"region":1,"kind":"mark","until":4102444800000,"partitions":1}"#;
    let long = "k".repeat(300);
    let key = format!(r#"{{"format":1,"region":1,"kind":"delete","key":"{long}","version":"1"}}"#);
    broker.write("strange", &format!("garbage\n{key}\n{far}\n"));
    reader.until("it counts them", || reader.metric("relay_refused_total") == 2.0);
    world.regions[0].set("a", "2");
    until("it goes on", || get_bytes(&world, 1, "a") == b"2");
    // A mark says nothing of what is to come: once the writer is gone, the reader is behind.
    writer.kill();
    reader.until("it is behind", || reader.metric("relay_lag_seconds") > 3.0);
    let _writer = world.relay_with("into", 0, &["--through", &through]);
    until_ready(&reader);
    broker.write("strange", "{\"format\":2,\"region\":1,\"kind\":\"set\"}\n");
    reader.until("it says why", || reader.page("/relay").contains("has format 2"));
    reader.until("it is not ready", || reader.page("/readyz").contains("\"ready\":false"));
    world.regions[0].set("a", "3");
    reader.until("it is behind", || reader.metric("relay_lag_seconds") > 3.0);
    assert_eq!((get_bytes(&world, 1, "a"), reader.metric("relay_refused_total")), (b"2".to_vec(), 3.0));
}
