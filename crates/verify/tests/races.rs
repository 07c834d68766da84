//! Repairs lose against clients. A proxy before B lets a client write in the one moment that matters: after both sides were
//! read, before the repair arrives. A repair that did not compare would put what it has read over what the client wrote.

mod support;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use moneta_net::Address;
use moneta_verify::{Conclusion, Counts, Direction, Kind, Observer, Repair, Report, Unwatched, Verify, VerifyConfig};
use support::{Server, config, found, item};

/// What is done before the first write or delete, before the second and so on.
type Acts<'a> = Mutex<VecDeque<Box<dyn FnOnce() + Send + 'a>>>;

/// Passes on all that comes to `listener`, and acts before writes and deletes.
fn relay<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    listener: &'scope UnixListener,
    server: &'scope Server,
    acts: &'scope Acts<'a>,
) {
    scope.spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let upstream = UnixStream::connect(server.path()).expect("the server listens");
            let (replies, requests) = (upstream.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
            // A connection that is closed at once is the test's end.
            let Ok(1) = peek(&requests, &mut [0]) else { return };
            scope.spawn(move || pass(replies, client, || ()));
            scope.spawn(move || {
                pass(requests, upstream, || {
                    if let Some(act) = acts.lock().expect("no panic").pop_front() {
                        act();
                    }
                });
            });
        }
    });
}

fn peek(stream: &UnixStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    rustix::net::recv(stream, buffer, rustix::net::RecvFlags::PEEK).map(|(read, _)| read).map_err(Into::into)
}

/// Passes bytes on until the end of `from`.
fn pass(mut from: UnixStream, mut to: UnixStream, before_write: impl Fn()) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..read];
        if [b"ms ", b"md "].iter().any(|verb| bytes.windows(3).any(|part| part == *verb)) {
            before_write();
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Repairs B from A, while `act` is done in the moment before the first write.
fn repair(a: &Server, b: &Server, act: impl FnOnce() + Send) -> Report {
    let report = repair_watched(a, b, true, &Unwatched, [Box::new(act)]);
    assert_eq!(report.incomplete, None);
    report
}

/// Repairs B from A, while each of `acts` is done in the moment before a write.
fn repair_watched<'a, const N: usize>(
    a: &Server,
    b: &Server,
    delete_extra: bool,
    observer: &dyn Observer,
    acts: [Box<dyn FnOnce() + Send + 'a>; N],
) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("proxy");
    let listener = UnixListener::bind(&path).expect("a socket");
    let acts: Acts<'_> = Mutex::new(acts.into());
    let report = thread::scope(|scope| {
        relay(scope, &listener, b, &acts);
        let repair = Some(Repair { direction: Direction::AToB, delete_extra });
        let b_relayed = Address::Unix(path.clone());
        // A has nothing where the item that only B has is to be deleted.
        let config =
            VerifyConfig { b: b_relayed.into(), repair, allow_empty_source: true, connections: 1, ..config(a, b) };
        let report = Verify::new(config).run(observer);
        // Also if that failed: the relay would wait for ever.
        drop(UnixStream::connect(&path));
        report
    });
    let report = report.expect("both servers are there");
    assert!(acts.into_inner().expect("no panic").is_empty(), "less was written: {report}");
    report
}

fn has_none(server: &Server, key: &str) {
    server.client().ask(&format!("mg {key} v\r\n"), "EN\r\n");
}

fn has(server: &Server, key: &str, value: &str) {
    server.client().ask(&format!("mg {key} v\r\n"), &format!("VA {}\r\n{value}\r\n", value.len()));
}

/// The client writes both sides, as one that keeps two copies does: the repair has nothing left to do.
fn client_wins(a: Option<&str>, b: Option<&str>) {
    let (server_a, server_b) = (Server::moneta(), Server::memcached());
    let plant = |server: &Server, value: Option<&str>| server.client().plant(value.map(|value| item("key", value, 0)));
    plant(&server_a, a);
    plant(&server_b, b);
    let report = repair(&server_a, &server_b, || {
        for server in [&server_a, &server_b] {
            server.client().set("key", "the client's");
        }
    });
    has(&server_b, "key", "the client's");
    let counts = report.counts;
    assert_eq!((counts.different, counts.repaired, counts.unrepaired), (1, 0, 0), "{report}");
    assert_eq!(report.conclusion, Conclusion::Equal);
}

#[test]
fn where_both_have_an_item() {
    client_wins(Some("new"), Some("old"));
}

#[test]
fn where_the_target_has_none() {
    client_wins(Some("new"), None);
}

#[test]
fn where_the_target_s_item_is_to_be_deleted() {
    client_wins(None, Some("extra"));
}

#[test]
fn a_target_that_differs_still_is_repaired_in_the_end() {
    let (a, b) = (Server::memcached(), Server::moneta());
    a.client().set("key", "right");
    b.client().set("key", "wrong");
    let report = repair(&a, &b, || b.client().set("key", "wrong again"));
    has(&b, "key", "right");
    let expected = Counts { compared: 1, different: 1, value: 1, repaired: 1, ..Counts::default() };
    assert_eq!((found(&report), report.conclusion), (expected, Conclusion::Equal));
}

/// The client deletes the key on both sides; only A has it.
fn delete(a: &Server, b: &Server) {
    a.client().delete(["key"]);
    b.client().ask("md key\r\n", "NF\r\n");
}

/// The target has no item when the add comes, as if nothing had happened: the add does put back what the client deleted.
#[test]
fn what_the_client_deletes_on_both_sides_is_taken_back() {
    for b in [Server::memcached(), Server::moneta()] {
        for delete_extra in [false, true] {
            let a = Server::moneta();
            a.client().set("key", "value");
            let report = repair_watched(&a, &b, delete_extra, &Unwatched, [Box::new(|| delete(&a, &b))]);
            has_none(&a, "key");
            has_none(&b, "key");
            let expected = Counts { compared: 1, different: 1, only_in_a: 1, ..Counts::default() };
            assert_eq!((found(&report), report.conclusion), (expected, Conclusion::Equal), "{report}");
        }
    }
}

#[test]
fn what_the_client_writes_after_that_stays() {
    let (a, b) = (Server::memcached(), Server::memcached());
    a.client().set("key", "value");
    let report = repair_watched(
        &a,
        &b,
        false,
        &Unwatched,
        [Box::new(|| delete(&a, &b)), Box::new(|| b.client().set("key", "the client's"))],
    );
    has(&b, "key", "the client's");
    assert_eq!((report.counts.repaired, report.counts.unrepaired), (0, 1), "{report}");
    let reason = report.examples[&Kind::Unrepaired][0].reason.as_deref();
    assert_eq!(reason, Some("only the target has it, and deleting was not asked for"));
}

/// Stops when told.
struct Stopped<'a>(&'a AtomicBool);

impl Observer for Stopped<'_> {
    fn should_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_run_that_is_stopped_looks_at_what_it_has_written() {
    let (a, b) = (Server::memcached(), Server::memcached());
    let stop = AtomicBool::new(false);
    a.client().set("key", "value");
    let act = || {
        delete(&a, &b);
        stop.store(true, Ordering::Relaxed);
    };
    let report = repair_watched(&a, &b, false, &Stopped(&stop), [Box::new(act)]);
    assert_eq!(report.incomplete.as_deref(), Some("interrupted"));
    has_none(&b, "key");

    stop.store(false, Ordering::Relaxed);
    a.client().set("key", "value");
    let act = || stop.store(true, Ordering::Relaxed);
    let report = repair_watched(&a, &b, false, &Stopped(&stop), [Box::new(act)]);
    assert_eq!((report.incomplete.as_deref(), report.counts.repaired), (Some("interrupted"), 1), "{report}");
    has(&b, "key", "value");
}

#[test]
fn where_the_target_has_no_cas_values_the_report_tells_of_it() {
    let (a, b) = (Server::memcached(), Server::memcached_with(&["-C"]));
    a.client().set("key", "value");
    let report = repair_watched(&a, &b, false, &Unwatched, [Box::new(|| delete(&a, &b))]);
    assert_eq!((report.counts.repaired, report.counts.unrepaired), (0, 1), "{report}");
    has(&b, "key", "value");
    let reason = report.examples[&Kind::Unrepaired][0].reason.as_deref();
    assert_eq!(reason, Some("the target gives its items no CAS values, so nothing could be written safely"));
}
