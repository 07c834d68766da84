//! Dumps in object stores, on moto and on a real S3 server, also over a bad line. What must not happen: that a part passes for the
//! whole, that two writers take each other's place, or that what was thrown together from broken answers is written to a node.
#![cfg(feature = "stores")]

mod common;

#[path = "stores/line.rs"]
mod line;
#[path = "stores/server.rs"]
mod server;

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use common::{Memcached, Node, Process, Signal, moneta, printed, refused};
use fastrand::Rng;
use line::{Line, Trouble};
use server::Server;

/// Keys of a test.
const KEYS: u32 = 4000;

fn node(writer: &str) -> Node {
    Node::start(&["--cluster", "--writer-id", writer, "--threads", "1"])
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A run of a command that reaches a store at `endpoint`.
fn on(endpoint: &str, arguments: &[&str]) -> Command {
    let mut command = moneta(arguments);
    command.envs(server::environment(endpoint));
    command
}

fn send(mut stream: impl Read + Write, requests: &[u8]) {
    stream.write_all(requests).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"MN\r\n", "every request is without an answer");
}

/// Items that do not compress, 12 MB in all.
fn filled() -> Memcached {
    let memcached = Memcached::start(&[]);
    let (mut rng, mut requests) = (Rng::with_seed(7), Vec::new());
    for key in 0..KEYS {
        let mut value = vec![0; rng.usize(0..6000)];
        rng.fill(&mut value);
        requests.extend_from_slice(format!("set k{key} {} 0 {} noreply\r\n", rng.u32(..), value.len()).as_bytes());
        requests.extend_from_slice(&value);
        requests.extend_from_slice(b"\r\n");
    }
    send(common::connect_unix(memcached.path()).expect("it listens"), &requests);
    memcached
}

fn verify(one: &str, other: &str) {
    let ended = common::output(&mut moneta(&["verify", one, other, "--settle", "0.1"]));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// A dump into the store and back into a node, in segments of this size.
fn there_and_back(endpoint: &str, segment_size: &str) {
    there_and_back_by("s3", endpoint, segment_size);
}

fn there_and_back_by(scheme: &str, endpoint: &str, segment_size: &str) {
    let (memcached, target) = (filled(), node("1"));
    let (url, address) = (format!("{scheme}://{}/dumps/a", server::BUCKET), target.address().to_string());
    let dump =
        ["dump", text(memcached.path()), "--into", &url, "--json", "--segment-size", segment_size, "--no-compression"];
    let report = printed(&mut on(endpoint, &dump));
    assert!(report.contains(&format!("\"items\":{KEYS},")), "{report}");
    let report = printed(&mut on(endpoint, &dump));
    assert!(report.contains("\"by\":\"before\""), "{report}");
    let report = printed(&mut on(endpoint, &["populate", "--from", &url, "--to", &address, "--json"]));
    assert!(report.contains(&format!("\"created\":{KEYS},")), "{report}");
    verify(text(memcached.path()), &address);
}

#[test]
#[ignore = "needs moto: make test-stores"]
fn a_dump_goes_through_moto_and_comes_back() {
    let server = Server::moto();
    there_and_back(&server.endpoint, "300k");
}

#[test]
#[ignore = "needs versitygw: make test-stores"]
fn a_dump_goes_through_a_real_server_and_comes_back_in_one_segment_of_several_parts() {
    let server = Server::versitygw();
    there_and_back(&server.endpoint, "64m");
}

#[test]
#[ignore = "needs azurite: make test-stores"]
fn a_dump_goes_through_azures_protocol_and_comes_back() {
    let server = Server::azurite();
    there_and_back_by("az", &server.endpoint, "300k");
}

#[test]
#[ignore = "needs versitygw and moto: make test-stores"]
fn a_chain_of_backups_lies_in_a_store_and_each_moment_comes_back() {
    for server in [Server::versitygw(), Server::moto()] {
        let url = format!("s3://{}/backups", server::BUCKET);
        let json = |arguments: &[&str]| -> serde_json::Value {
            let printed = printed(&mut on(&server.endpoint, &[arguments, &["--json"]].concat()));
            serde_json::from_str(printed.lines().last().expect("it prints")).expect("its last line is JSON")
        };
        let source = node("1");
        let address = source.address().to_string();
        let sets = |keys: std::ops::Range<u32>| -> String {
            keys.map(|key| format!("set k{key} {key} 0 100 noreply\r\n{key:0100}\r\n")).collect()
        };
        let back_up = || {
            let report = json(&["backup", &address, "--into", &url]);
            report["slots"][0]["restore_point"].as_u64().expect("a moment").to_string()
        };
        send(source.connect(), sets(0..3000).as_bytes());
        let first = back_up();
        let deletes: String = (0..1000).map(|key| format!("delete k{key} noreply\r\n")).collect();
        send(source.connect(), deletes.as_bytes());
        send(source.connect(), sets(3000..4000).as_bytes());
        let second = back_up();
        let restored = |at: &str| {
            let target = node("2");
            let to = target.address().to_string();
            let report = json(&["restore", "--from", &url, "--at", at, "--fill", "--to", &to]);
            (target, report["written"]["taken"].as_u64().expect("a number"))
        };
        assert_eq!(restored(&first).1, 3000);
        let (target, taken) = restored(&second);
        assert_eq!(taken, 3000);
        verify(&address, &target.address().to_string());
        json(&["backup", "merge", "--from", &url]);
        // What is older than the base that the merge made goes.
        sleep(Duration::from_millis(1100));
        json(&["backup", "prune", "--from", &url, "--keep", "1s"]);
        let refused = refused(
            &mut on(&server.endpoint, &["restore", "--from", &url, "--at", &first, "--fill", "--to", &address]),
            1,
        );
        assert!(!refused.is_empty());
        printed(&mut on(&server.endpoint, &["backup", "verify", "--from", &url]));
        let (target, taken) = restored(&second);
        assert_eq!(taken, 3000, "{url}");
        verify(&address, &target.address().to_string());
    }
}

#[test]
#[ignore = "needs versitygw: make test-stores"]
fn a_server_that_speaks_tls_is_believed_by_the_authorities_of_the_system() {
    let server = Server::versitygw_with_tls();
    let memcached = Memcached::start(&[]);
    let url = format!("s3://{}/tls", server::BUCKET);
    let dump = ["dump", text(memcached.path()), "--into", &url];
    printed(on(&server.endpoint, &dump).env("SSL_CERT_FILE", server.authority()));
    // Its authority is not believed: no byte goes there.
    let error = refused(on(&server.endpoint, &dump).env("AWS_MAX_RETRIES", "1"), 1);
    assert!(error.contains("certificate") || error.contains("UnknownIssuer"), "{error}");
}

#[test]
#[ignore = "needs versitygw, a minute: make test-stores"]
fn a_line_that_throttles_cuts_off_and_stalls_changes_nothing_but_the_time() {
    let server = Server::versitygw();
    let line = Line::to(&server.endpoint, vec![Trouble::Throttle, Trouble::Cut, Trouble::Hang]);
    there_and_back(&line.endpoint(), "500k");
    let seen = line.seen();
    assert!(seen.iter().all(|count| *count > 0), "each trouble came: {seen:?}");
}

#[test]
#[ignore = "needs moto: make test-stores"]
fn a_store_that_pays_no_heed_to_conditions_is_refused() {
    let server = Server::moto();
    let line = Line::to(&server.endpoint, vec![Trouble::NoConditions]);
    let memcached = Memcached::start(&[]);
    let url = format!("s3://{}/heedless", server::BUCKET);
    let error = refused(&mut on(&line.endpoint(), &["dump", text(memcached.path()), "--into", &url]), 1);
    assert!(error.contains("pays no heed to the condition"), "{error}");
}

#[test]
#[ignore = "needs versitygw: make test-stores"]
fn populators_share_what_lies_in_a_store_and_one_that_is_killed_leaves_its_part_to_the_others() {
    let server = Server::versitygw();
    let (memcached, target) = (Memcached::start(&[]), node("1"));
    // A base by a list of keys has a segment for 4,096 of them at least.
    let sets: String = (0..40_000).map(|key| format!("set k{key} 0 0 100 noreply\r\n{key:0100}\r\n")).collect();
    send(common::connect_unix(memcached.path()).expect("it listens"), sets.as_bytes());
    let (url, address) = (format!("s3://{}/shared", server::BUCKET), target.address().to_string());
    let dump = ["dump", text(memcached.path()), "--into", &url, "--segment-size", "200k", "--no-compression"];
    printed(&mut on(&server.endpoint, &dump));
    let populate = |rate: &'static str| {
        let arguments = ["populate", "--from", &url, "--to", &address, "--share", "one", "--share-patience", "6"];
        let mut command = on(&server.endpoint, &arguments);
        command.args(["--rate", rate, "--json"]);
        command
    };
    let mut killed = Process::start(&mut populate("20k"));
    // It has a segment once it has written some of it.
    common::until("the first has begun", || {
        target.exchange("stats\r\n").contains("STAT curr_items ") && !is_empty(&target)
    });
    let others: Vec<Process> = (0..2).map(|_| Process::start(&mut populate("2m"))).collect();
    sleep(Duration::from_millis(300));
    killed.signal(Signal::SIGKILL);
    killed.wait();
    let mut segments = 0;
    for mut other in others {
        assert!(other.wait().success(), "{}", other.stderr());
        let report = other.stdout();
        let count = report.split("\"segments\":").nth(1).expect("it tells").trim_start();
        segments +=
            count.split(|end: char| !end.is_ascii_digit()).next().unwrap_or(count).parse::<u32>().expect("a number");
    }
    assert_eq!(segments, 10, "two did all: the first had not ended its segment");
    verify(text(memcached.path()), &address);
}

fn is_empty(node: &Node) -> bool {
    node.exchange("stats\r\n").contains("STAT curr_items 0\r\n")
}

/// Puts an object into the bucket.
fn put(server: &Server, name: &str, content: &[u8]) {
    let place = server.data().join(name);
    std::fs::create_dir_all(place.parent().expect("it is in the bucket")).expect("a folder");
    std::fs::write(place, content).expect("there is room");
}

#[test]
#[ignore = "needs versitygw: make test-stores"]
fn rows_of_objects_are_loaded_whatever_they_are_called() {
    let server = Server::versitygw();
    put(&server, "day=2/a b%41.csv", b"key,value\nk1,v1\nk2,v2\n");
    put(&server, "day=2/_SUCCESS", b"");
    put(&server, "day=2/c.csv", b"key,value\nk3,v3\n");
    put(&server, "day=3/c.csv", b"key,value\nk4,v4\n");
    let (memcached, target) = (filled(), node("1"));
    let address = target.address().to_string();
    let load = |url: &str, more: &[&str]| {
        let url = format!("s3://{}/{url}", server::BUCKET);
        let load = ["load", &url, "--to", &address, "--key", "key", "--value", "value", "--json"];
        on(&server.endpoint, &[&load[..], more].concat())
    };
    assert!(printed(&mut load("day=2", &[])).contains("\"stored\":3,"));
    assert_eq!(target.exchange("get k1 k3 k4\r\n"), "VALUE k1 0 2\r\nv1\r\nVALUE k3 0 2\r\nv3\r\nEND\r\n");
    assert!(printed(&mut load("day=3/c.csv", &[])).contains("\"stored\":1,"));
    // One that changed is not the file of the checkpoint.
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = folder.path().join("checkpoint");
    printed(&mut load("day=3", &["--checkpoint", text(&checkpoint)]));
    put(&server, "day=3/c.csv", b"key,value\nk4,v4\nk5,v5\n");
    let error = refused(&mut load("day=3", &["--checkpoint", text(&checkpoint)]), 1);
    assert!(error.contains("as it was before it changed"), "{error}");
    let error = refused(&mut load("day=4", &[]), 1);
    assert!(error.contains("there is no file to load"), "{error}");
    // Parquet, which is read from its end.
    let (dump, rows) = (folder.path().join("dump"), folder.path().join("rows.parquet"));
    printed(&mut moneta(&["dump", text(memcached.path()), "--into", text(&dump)]));
    printed(&mut moneta(&["segments", "export", "--from", text(&dump), "--into", text(&rows)]));
    put(&server, "rows.parquet", &std::fs::read(rows).expect("it is there"));
    let report = printed(&mut load("rows.parquet", &["--flags", "flags"]));
    assert!(
        report.contains(&format!("\"rows\":{KEYS},")) && report.contains(&format!("\"stored\":{KEYS},")),
        "{report}"
    );
}
