//! Guards what the parts of a process show: their pages are answered from the moment they are registered, and one that hangs
//! takes none of the others along.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use moneta_admin::answer;
use moneta_admin::ask::{Turn, Unanswered, ask};
use moneta_admin::{Admin, AdminError, Places, Route};
use moneta_store::metric::{Metric, Reading, Unit, samples};

/// Against hangs of the test only.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(routes: impl IntoIterator<Item = Route>) -> Admin {
    Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), &[], 2, routes).expect("a free port")
}

/// Status and body of a page.
fn fetch(address: SocketAddr, path: &str) -> (u16, String) {
    fetch_as(address, path, "localhost")
}

/// The same, asked of a host.
fn fetch_as(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
    read_answer(stream)
}

fn read_answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

async fn name(State(name): State<&'static str>) -> Response {
    answer::json(StatusCode::OK, &serde_json::json!({ "name": name }))
}

#[test]
fn a_page_is_answered_from_its_registration_on() {
    let admin = start([Route::get("/first", name, "one")]);
    let address = admin.address();
    assert_eq!(fetch(address, "/healthz"), (200, "ok\n".into()));
    assert_eq!(fetch(address, "/first"), (200, "{\"name\":\"one\"}\n".into()));
    assert_eq!(fetch(address, "/second").0, 404);
    admin.add([Route::get("/second", name, "two")]);
    assert_eq!(fetch(address, "/second"), (200, "{\"name\":\"two\"}\n".into()));
    assert_eq!(fetch(address, "/first").0, 200);
    drop(admin);
    assert!(TcpStream::connect(address).is_err(), "it ends when it is dropped");
}

#[test]
#[should_panic(expected = "/healthz")]
fn two_pages_of_one_path_are_refused() {
    start([Route::get("/healthz", name, "another")]);
}

#[test]
fn an_address_in_use_is_named() {
    let admin = start([]);
    let error = Admin::start(admin.address(), &[], 1, []).expect_err("it is in use");
    assert!(matches!(error, AdminError::Listen { address, .. } if address == admin.address()), "{error}");
}

/// What a question that hangs waits for.
type Gate = Arc<Mutex<Receiver<()>>>;

async fn hanging((turn, gate): (Turn, Gate)) -> Response {
    let question = move || {
        // It ends when there is no sender any more.
        let _ = gate.lock().expect("no test panicked").recv();
    };
    match ask(&turn, Duration::from_millis(20), question).await {
        Ok(()) => answer::json(StatusCode::OK, &true.into()),
        Err(Unanswered) => answer::unavailable("it hangs"),
    }
}

#[test]
fn a_question_that_hangs_holds_its_turn_and_nothing_else() {
    let (open, gate) = channel();
    let state = (Turn::of(1), Arc::new(Mutex::new(gate)));
    let page = |State(state): State<(Turn, Gate)>| hanging(state);
    let admin = start([Route::get("/hangs", page, state), Route::get("/name", name, "well")]);
    for _ in 0..3 {
        assert_eq!(fetch(admin.address(), "/hangs"), (503, "it hangs\n".into()));
        assert_eq!(fetch(admin.address(), "/name").0, 200);
    }
    // One question had the turn: it ends, and the next one has it.
    drop(open);
    let answered = std::iter::repeat_with(|| fetch(admin.address(), "/hangs").0).take(1000).any(|status| status == 200);
    assert!(answered, "the turn is given back");
}

#[test]
fn a_request_for_another_host_is_refused_as_a_web_page_could_have_it_sent() {
    let names = ["cache.example".to_owned()];
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let admin = Admin::start(address, &names, 2, [Route::get("/name", name, "well")]).expect("a free port");
    for host in ["localhost", "127.0.0.1:80", "[::1]", "cache.example:11280"] {
        assert_eq!(fetch_as(admin.address(), "/name", host).0, 200, "{host}");
    }
    let (status, why) = fetch_as(admin.address(), "/name", "rebound.example");
    assert!(status == 421 && why.contains("--admin-hosts") && !why.contains("well"), "{status} {why}");
    assert_eq!(admin.tally().foreign_hosts(), 1);
    // It tells nothing, and health checks have hosts of their own.
    assert_eq!(fetch_as(admin.address(), "/healthz", "rebound.example").0, 200);
}

#[test]
fn many_connections_cut_neither_a_reader_of_the_feed_nor_health_checks() {
    let (open, gate) = channel();
    let state = (Turn::of(1), Arc::new(Mutex::new(gate)));
    let waits = async |State((turn, gate)): State<(Turn, Gate)>| {
        let question = move || {
            let _ = gate.lock().expect("no test panicked").recv();
        };
        ask(&turn, PATIENCE, question).await.map_or_else(|_| "unanswered", |()| "changed")
    };
    let feed = Route::get("/feed", waits, state).in_places(Places::Feed);
    let ready = Route::get("/ready", name, "yes").in_places(Places::Readiness);
    let admin = start([feed, ready]);
    let address = admin.address();
    let mut reader = TcpStream::connect(address).expect("it listens");
    reader.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(reader, "GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    // From the reader's address, too: some say nothing, the others ask for the page that it reads, and take all places for that.
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let asking = || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
        stream
    };
    let asking: Vec<TcpStream> = std::iter::repeat_with(asking).take(100).collect();
    for _ in 0..3 {
        assert_eq!(fetch(address, "/healthz").0, 200);
        assert_eq!(fetch(address, "/ready").0, 200);
    }
    assert!(admin.tally().turned_away() > 0);
    drop(open);
    assert_eq!(read_answer(reader), (200, "changed".into()));
    drop((silent, asking));
}

const TABLE: &[Reading<u64>] = &[
    Metric::counter("things_total", Unit::Count, "Things so far.").read(|things| (*things).into()),
    Metric::gauge("size_bytes", Unit::Bytes, "Their size.").read(|things| (things * 2).into()),
];

#[test]
fn metrics_are_told_with_their_help_and_with_what_the_process_uses() {
    let text = moneta_admin::render::text(samples(TABLE, &21)).expect("they can be encoded");
    for line in ["# HELP moneta_things Things so far.", "moneta_things_total 21", "moneta_size_bytes 42"] {
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    }
    assert!(text.contains("\nprocess_cpu_seconds_total "), "{text}");
}
