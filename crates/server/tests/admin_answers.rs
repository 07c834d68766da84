//! Guards an admin side that falls silent just when it is asked what is wrong: while the store hangs, while the node starts
//! or closes, and under clients that hold its connections.

mod support;

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use axum::extract::State;
use moneta_store::Progress;
use support::admin::{desk, fetch, fetch_from, start};
use support::{PATIENCE, eventually};

#[test]
fn health_and_readiness_are_told_while_metrics_wait_for_a_store_that_hangs() {
    let server = start();
    server.gate.mute(true);
    std::thread::scope(|scope| {
        let scrapes: Vec<_> = (0..3).map(|_| scope.spawn(|| fetch(&server, "/metrics").0)).collect();
        let statistics = scope.spawn(|| fetch(&server, "/stats").0);
        eventually("one of each asks the store", || server.gate.muted() == 2);
        assert_eq!(fetch(&server, "/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(fetch(&server, "/readyz").0, 200);
        // A store that hangs for longer costs the scrape, not the side.
        assert_eq!(statistics.join().unwrap(), 503);
        assert!(scrapes.into_iter().all(|scrape| scrape.join().unwrap() == 503));
        assert_eq!(server.gate.muted(), 2, "those that have given up have not asked again");
        server.gate.mute(false);
    });
    eventually("numbers are told again", || fetch(&server, "/metrics").0 == 200);
}

#[test]
fn a_side_that_ends_does_not_wait_for_a_store_that_hangs() {
    let mut server = start();
    server.gate.mute(true);
    let mut scrape = TcpStream::connect(server.desk.as_ref().unwrap().address().unwrap()).unwrap();
    std::io::Write::write_all(&mut scrape, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    eventually("the store is asked", || server.gate.muted() == 1);
    drop(server.desk.take());
    assert_eq!(server.gate.muted(), 1);
    server.gate.mute(false);
}

#[test]
fn pages_of_other_parts_are_answered_beside_the_servers() {
    let server = start();
    let desk = server.desk.as_ref().unwrap();
    assert_eq!(fetch(&server, "/part").0, 404);
    let page = async |State(told): State<&'static str>| told;
    desk.add([moneta_admin::Route::get("/part", page, "of another part")]);
    assert_eq!(fetch(&server, "/part"), (200, "of another part".to_owned()));
    assert_eq!(fetch(&server, "/readyz").0, 200);
}

#[test]
fn a_node_that_starts_or_closes_its_store_lives_and_says_what_it_does() {
    let recovery = Arc::new(Progress::default());
    let admin = desk(Arc::default(), Arc::clone(&recovery));
    let readiness = || {
        assert_eq!(fetch_from(&admin, "/healthz").0, 200);
        let (status, page) = fetch_from(&admin, "/readyz");
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        (status, page["phase"].as_str().unwrap().to_owned())
    };
    assert_eq!(readiness(), (503, "starting".to_owned()));
    recovery.begin(1000);
    recovery.advance(431);
    assert_eq!(readiness(), (503, "starting: recovering, 43 %".to_owned()));
    assert_eq!(fetch_from(&admin, "/metrics"), (503, "starting: recovering, 43 %\n".to_owned()));
    admin.close();
    assert_eq!(readiness(), (503, "stopping: the store is being closed".to_owned()));
}

#[test]
fn silent_clients_keep_no_other_out() {
    let server = start();
    let address = server.desk.as_ref().unwrap().address().unwrap();
    let mut silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..3 {
        assert_eq!(fetch(&server, "/healthz").0, 200);
    }
    // All of them are closed by and by: the oldest to make room, the others when their time is up.
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // A reset is a close too.
        let closed = stream.read_to_end(&mut rest);
        assert!(closed.is_ok() || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
}
