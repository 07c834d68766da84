//! Guards what the parts of a process show: their pages are answered from the moment they are registered, and one that hangs
//! takes none of the others along.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use moneta_admin::answer;
use moneta_admin::ask::{Turn, Unanswered, ask};
use moneta_admin::{Access, Admin, AdminConfig, AdminError, Guard, Limits, Places, Route};
use moneta_store::metric::{Metric, Reading, Unit, samples};

/// Against hangs of the test only.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(routes: impl IntoIterator<Item = Route>) -> Admin {
    start_with(AdminConfig::default(), routes)
}

fn start_with(config: AdminConfig, routes: impl IntoIterator<Item = Route>) -> Admin {
    Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), config, routes).expect("a free port")
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
    let error = Admin::start(admin.address(), AdminConfig::default(), []).expect_err("it is in use");
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
    let config = AdminConfig { names: vec!["cache.example".to_owned()], ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/name", name, "well")]);
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

/// Status and body of the answer to a request with this head and body.
fn request(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    write!(stream, "{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").expect("it reads");
    read_answer(stream)
}

async fn length(body: String) -> String {
    body.len().to_string()
}

#[test]
fn a_page_answers_the_methods_that_it_has_and_bodies_up_to_its_limit() {
    let small = Route::post("/small", length, ()).with_body(10);
    let admin = start([Route::get("/page", name, "read"), Route::post("/page", length, ()), small]);
    let address = admin.address();
    assert_eq!(fetch(address, "/page").1, "{\"name\":\"read\"}\n");
    assert_eq!(request(address, "POST /page HTTP/1.1", "twelve bytes"), (200, "12".into()));
    assert_eq!(request(address, "DELETE /page HTTP/1.1", "").0, 405);
    assert_eq!(request(address, "POST /small HTTP/1.1", "ten bytes!").0, 200);
    assert_eq!(request(address, "POST /small HTTP/1.1", "eleven byte").0, 413);
    let most = Limits::default().body_bytes;
    assert_eq!(request(address, "POST /page HTTP/1.1", &"x".repeat(most)).0, 200);
    assert_eq!(request(address, "POST /page HTTP/1.1", &"x".repeat(most + 1)).0, 413);
}

#[test]
fn a_guard_decides_before_a_page_is_asked() {
    let guard = Guard::new(|access, asked| {
        let has_token = asked.headers.get("authorization").is_some_and(|token| token == "Bearer secret");
        let is_let_in = has_token || matches!(access, Access::Open | Access::Read);
        if is_let_in { Ok(()) } else { Err(Box::new((StatusCode::UNAUTHORIZED, "a token, please\n").into_response())) }
    });
    let config = AdminConfig { guard, ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/page", name, "read"), Route::post("/do", length, ())]);
    let address = admin.address();
    assert_eq!((fetch(address, "/healthz").0, fetch(address, "/page").0), (200, 200));
    assert_eq!(request(address, "POST /do HTTP/1.1", "now"), (401, "a token, please\n".into()));
    assert_eq!(admin.tally().unauthorized(), 1);
    assert_eq!(request(address, "POST /do HTTP/1.1\r\nAuthorization: Bearer secret", "now"), (200, "3".into()));
}

#[test]
fn a_stream_goes_on_when_the_time_of_an_exchange_is_over_and_ends_with_its_page() {
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let said = Arc::new(Mutex::new(Some(said)));
    let events = async |State(said): State<Arc<Mutex<Option<tokio::sync::mpsc::UnboundedReceiver<&'static str>>>>>| {
        let said = said.lock().expect("no test panicked").take().expect("one reader");
        Sse::new(futures_util::stream::unfold(said, |mut said| async {
            let event = said.recv().await.map(|text| Ok::<_, std::convert::Infallible>(Event::default().data(text)));
            event.map(|event| (event, said))
        }))
    };
    let limits = Limits { exchange_within: Duration::from_millis(50), ..Limits::default() };
    let config = AdminConfig { limits, ..AdminConfig::default() };
    let admin =
        start_with(config, [Route::get("/events", events, said).streaming(), Route::get("/name", name, "well")]);
    let mut stream = TcpStream::connect(admin.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    say.send("first").expect("it is read");
    let mut told = Vec::new();
    let mut read_until = |stream: &mut TcpStream, what: &str| {
        while !String::from_utf8_lossy(&told).contains(what) {
            let mut some = [0; 256];
            let length = stream.read(&mut some).expect("it goes on");
            assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&told));
            told.extend_from_slice(&some[..length]);
        }
    };
    read_until(&mut stream, "data: first");
    // A connection that says nothing is closed when an exchange's time is over: then that of the stream is over, too.
    let mut silent = TcpStream::connect(admin.address()).expect("it listens");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(silent.read(&mut [0; 1]).expect("it is closed"), 0);
    say.send("second").expect("it is read");
    read_until(&mut stream, "data: second");
    drop(say);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it ends");
    assert_eq!(fetch(admin.address(), "/name").0, 200);
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
