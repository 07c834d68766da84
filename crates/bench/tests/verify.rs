//! Guards against a checker that checks nothing: a server that returns wrong values must be found out.

mod support;

use std::collections::HashMap;
use std::sync::Mutex;

use moneta_bench::BenchError;
use support::bench;
use support::scripted::Scripted;

/// A small cache that passes every value it returns through `corrupt`.
fn cache(corrupt: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Scripted {
    let items = Mutex::new(HashMap::<String, Vec<u8>>::new());
    Scripted::start(move |command, data| {
        let mut items = items.lock().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        match words[0] {
            "set" => {
                items.insert(words[1].to_owned(), data.to_vec());
                b"STORED\r\n".to_vec()
            }
            "get" => {
                let mut reply = Vec::new();
                for key in &words[1..] {
                    let Some(value) = items.get(*key) else { continue };
                    let value = corrupt(key, value.clone());
                    reply.extend(format!("VALUE {key} 0 {}\r\n", value.len()).bytes());
                    reply.extend(value);
                    reply.extend(b"\r\n");
                }
                reply.extend(b"END\r\n");
                reply
            }
            _ => b"ERROR\r\n".to_vec(),
        }
    })
}

const LOAD: [&str; 14] = [
    "--verify",
    "--lookaside",
    "--warmup",
    "0",
    "--requests",
    "2000",
    "--keys",
    "20",
    "--connections",
    "3",
    "--mix",
    "get=4,set=1",
    "--distribution",
    "zipf:1",
];

fn wrong_values(server: &Scripted, more: &[&str]) -> u64 {
    let arguments = [&["--server", &server.address][..], &LOAD, more].concat();
    match bench(&arguments) {
        (Ok(()), json) => {
            assert!(json["tally"]["hits"].as_u64().unwrap() > 1000, "{json}");
            0
        }
        (Err(BenchError::Mismatch { count, examples }), json) => {
            assert!(!examples.is_empty());
            assert_eq!(json["tally"]["mismatches"], count);
            count
        }
        (Err(other), _) => panic!("{other}"),
    }
}

#[test]
fn an_honest_server_passes() {
    for more in [&[][..], &["--multiget", "5", "--random-sizes", "--value-size", "3:1,50:1,5000:1"]] {
        let server = cache(|_, value| value);
        assert_eq!(wrong_values(&server, more), 0, "{more:?}");
    }
}

#[test]
fn one_flipped_bit_is_found() {
    let server = cache(|key, mut value| {
        if key.ends_with('7') {
            *value.last_mut().unwrap() ^= 1;
        }
        value
    });
    assert!(wrong_values(&server, &[]) > 0);
    assert!(wrong_values(&server, &["--multiget", "5"]) > 0);
}

#[test]
fn the_value_of_another_key_is_found() {
    let last = Mutex::new(Vec::new());
    let server = cache(move |_, value| std::mem::replace(&mut *last.lock().unwrap(), value));
    assert!(wrong_values(&server, &[]) > 0);
}

#[test]
fn a_value_cut_short_is_found() {
    let server = cache(|_, mut value| {
        value.truncate(99);
        value
    });
    assert!(wrong_values(&server, &["--random-sizes", "--value-size", "99:1,100:1"]) > 0);
}

#[test]
fn a_value_for_a_key_that_was_not_asked_for_breaks_the_protocol() {
    let server = Scripted::start(|_, _| b"VALUE other 0 1\r\nx\r\nEND\r\n".to_vec());
    let (result, _) = bench(&["--server", &server.address, "--requests", "10", "--warmup", "0"]);
    assert!(matches!(result, Err(BenchError::Protocol { .. })), "{result:?}");
}

#[test]
fn errors_of_the_server_are_counted_and_told() {
    let server = Scripted::start(|_, _| b"SERVER_ERROR out of memory storing object\r\n".to_vec());
    let arguments = ["--server", &server.address, "--requests", "10", "--warmup", "0", "--mix", "set"];
    let (result, json) = bench(&arguments);
    result.unwrap();
    assert_eq!(json["tally"]["failed"], 10);
    assert_eq!(json["failures"][0], "set: SERVER_ERROR out of memory storing object");
}

#[test]
fn a_server_that_closes_the_connection_is_an_error() {
    let server = Scripted::start(|_, _| panic!("a scripted crash"));
    let (result, _) = bench(&["--server", &server.address, "--requests", "10", "--warmup", "0"]);
    assert!(matches!(result, Err(BenchError::Connection { .. })), "{result:?}");
}
