//! Guards what the parts of a process show: their pages are answered from the moment they are registered, and one that hangs
//! takes none of the others along.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::StreamExt;
use moneta_admin::answer::{self, Missing};
use moneta_admin::ask::{Turn, Unanswered, ask};
use moneta_admin::{
    Admin, AdminConfig, AdminError, Asked, Authorize, Certificate, Denial, Guard, Index, Judged, Limits, Places, Right,
    Route, Somebody, stream,
};
use moneta_store::metric::{Metric, Reading, Unit, samples};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

/// The whole answer to a request with this head and body.
fn whole(address: SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    write!(stream, "{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Status and body of the answer to a request with this head and body.
fn request(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let answer = whole(address, head, body);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

async fn length(body: String) -> String {
    body.len().to_string()
}

#[test]
fn a_page_answers_the_methods_that_it_has_and_bodies_up_to_its_limit() {
    let small = Route::post("/small", length, ()).with_body(10);
    let put = Route::put("/page", async |body: String| format!("is {body}"), ());
    let delete = Route::delete("/page", async || "gone", ());
    let admin = start([Route::get("/page", name, "read"), Route::post("/page", length, ()), put, delete, small]);
    let address = admin.address();
    assert_eq!(fetch(address, "/page").1, "{\"name\":\"read\"}\n");
    assert_eq!(request(address, "POST /page HTTP/1.1", "twelve bytes"), (200, "12".into()));
    assert_eq!(request(address, "PUT /page HTTP/1.1", "new"), (200, "is new".into()));
    assert_eq!(request(address, "DELETE /page HTTP/1.1", ""), (200, "gone".into()));
    assert_eq!(request(address, "HEAD /page HTTP/1.1", ""), (200, String::new()));
    let refused = whole(address, "DELETE /small HTTP/1.1", "");
    assert!(refused.starts_with("HTTP/1.1 405") && refused.to_lowercase().contains("allow: post\r\n"), "{refused}");
    assert_eq!(request(address, "POST /small HTTP/1.1", "ten bytes!").0, 200);
    assert_eq!(request(address, "POST /small HTTP/1.1", "eleven byte").0, 413);
    let most = Limits::default().body_bytes;
    assert_eq!(request(address, "POST /page HTTP/1.1", &"x".repeat(most)).0, 200);
    assert_eq!(request(address, "POST /page HTTP/1.1", &"x".repeat(most + 1)).0, 413);
}

/// axum has a limit of its own, which is less.
#[test]
fn a_page_that_takes_long_bodies_takes_them_whole() {
    const LONG: usize = 3 << 20;
    let admin = start([Route::put("/long", length, ()).with_body(LONG)]);
    assert_eq!(request(admin.address(), "PUT /long HTTP/1.1", &"x".repeat(LONG)), (200, LONG.to_string()));
    assert_eq!(request(admin.address(), "PUT /long HTTP/1.1", &"x".repeat(LONG + 1)).0, 413);
}

#[test]
fn a_page_reads_the_query_of_its_request() {
    let page = async |Query(asked): Query<Vec<(String, String)>>| format!("{asked:?}");
    let admin = start([Route::get("/page", page, ())]);
    assert_eq!(fetch(admin.address(), "/page?key=a%20b&n=1").1, r#"[("key", "a b"), ("n", "1")]"#);
}

/// Lets in who has the token, and lets others read statistics; who they are it says after a wait.
struct Tokens;

impl Authorize for Tokens {
    fn authorize<'a>(&'a self, asked: &'a Asked<'a>) -> Judged<'a> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match asked.authorization.map(HeaderValue::as_bytes) {
                Some(b"Bearer secret") => Ok(Somebody("ann".into())),
                Some(_) if asked.right == Right::Stats => Ok(Somebody("bob".into())),
                Some(_) => Err(Denial::Forbidden),
                None => Err(Denial::Unknown),
            }
        })
    }
}

#[test]
fn who_asks_is_judged_before_a_page_runs_and_by_the_right_of_the_method() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let who =
        async |State(ran): State<Arc<Mutex<Vec<Method>>>>, method: Method, somebody: Option<Extension<Somebody>>| {
            ran.lock().expect("no test panicked").push(method);
            somebody.map_or_else(|| "nobody".to_owned(), |Extension(somebody)| somebody.to_string())
        };
    let state = || Arc::clone(&ran);
    // A page that is read and changed needs a right for each.
    let routes = [Route::put("/page", who, state()), Route::get("/page", who, state())];
    let config = AdminConfig { guard: Guard::new(Tokens), ..AdminConfig::default() };
    let admin = start_with(config, routes);
    let address = admin.address();
    let ask = |head: &str, token: &str| request(address, &format!("{head} HTTP/1.1{token}"), "");
    let (bob, ann) = ("\r\nAuthorization: Bearer other", "\r\nAuthorization: Bearer secret");
    assert_eq!(ask("GET /page", "").0, 401);
    assert_eq!(ask("GET /page", bob), (200, "bob".into()));
    assert_eq!(ask("PUT /page", bob), (403, "this needs the right `operate`\n".into()));
    assert_eq!(ask("PUT /page", ann), (200, "ann".into()));
    assert_eq!(*ran.lock().expect("no test panicked"), [Method::GET, Method::PUT]);
    // What is there is nothing that a stranger may know, and that the process lives is for all.
    assert_eq!((ask("GET /nothing", "").0, ask("GET /nothing", bob).0), (401, 404));
    assert_eq!((ask("DELETE /page", "").0, ask("DELETE /page", ann).0), (401, 405));
    assert_eq!(ask("GET /healthz", "").0, 200);
    assert_eq!(admin.tally().unauthorized(), 4);
    let unknown = whole(address, "GET /page HTTP/1.1", "").to_lowercase();
    assert!(unknown.contains("www-authenticate: bearer"), "{unknown}");
}

#[test]
fn a_function_judges_by_what_is_asked() {
    let judge = |asked: &Asked<'_>| {
        assert_eq!((asked.method, asked.path, asked.right), (&Method::GET, "/page", Right::List));
        assert!(asked.from.is_loopback() && asked.certificate.is_none_or(|Certificate { names, .. }| names.is_empty()));
        Err(Denial::Forbidden)
    };
    let config = AdminConfig { guard: Guard::new(judge), ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/page", name, "read").needs(Right::List)]);
    assert_eq!(fetch(admin.address(), "/page?key=1").0, 403);
}

#[test]
fn pages_that_are_taken_away_are_answered_as_what_is_missing() {
    let missing = Missing::new(|| Some(answer::unavailable("not yet")));
    let paths = async |Extension(index): Extension<Index>| index.paths().join(" ");
    let config = AdminConfig { missing, ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/index", paths, ()), Route::post("/do", length, ())]);
    let address = admin.address();
    assert_eq!(fetch(address, "/page"), (503, "not yet\n".into()));
    admin.add([Route::text("/page", || "there".into())]);
    assert_eq!(fetch(address, "/page").1, "there");
    assert_eq!(fetch(address, "/index").1, "/healthz /index /page");
    admin.retain(|path| path != "/page");
    assert_eq!(fetch(address, "/page").0, 503);
    assert_eq!(fetch(address, "/index").1, "/healthz /index");
}

/// What a page of events or chunks reads from, once.
type Said = Arc<Mutex<Option<tokio::sync::mpsc::UnboundedReceiver<&'static str>>>>;

fn items(said: &Said) -> impl futures_util::Stream<Item = &'static str> + use<> {
    let said = said.lock().expect("no test panicked").take().expect("one reader");
    futures_util::stream::unfold(said, |mut said| async { said.recv().await.map(|text| (text, said)) })
}

async fn events(State(said): State<Said>) -> Response {
    stream::events(items(&said).map(|text| Event::default().data(text)))
}

async fn chunks(State(said): State<Said>) -> Response {
    stream::chunks("text/plain", items(&said).map(|text| Bytes::from_static(text.as_bytes())))
}

/// Reads from a stream until it has told `what`.
fn read_until(stream: &mut TcpStream, what: &str) {
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains(what) {
        let mut byte = [0; 1];
        let length = stream.read(&mut byte).expect("it goes on");
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&byte[..length]);
    }
}

/// A reader of `path`.
fn reader(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    stream
}

#[test]
fn a_stream_goes_on_when_the_time_of_an_exchange_is_over_and_ends_with_its_page() {
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let said = Arc::new(Mutex::new(Some(said)));
    let limits = Limits { exchange_within: Duration::from_millis(50), ..Limits::default() };
    let config = AdminConfig { limits, ..AdminConfig::default() };
    let admin =
        start_with(config, [Route::get("/events", events, said).streaming(), Route::get("/name", name, "well")]);
    let mut stream = reader(admin.address(), "/events");
    say.send("first").expect("it is read");
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

/// The last chunk of an answer that was not cut off.
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

#[test]
fn streams_end_whole_at_a_stop_and_no_more_begin() {
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let (say_more, more) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let page = |path, said| Route::get(path, chunks, Arc::new(Mutex::new(Some(said)))).streaming();
    let admin = start([page("/one", said), page("/other", more), Route::get("/name", name, "well")]);
    let address = admin.address();
    let mut one = reader(address, "/one");
    say.send("first").expect("it is read");
    read_until(&mut one, "first");
    admin.end_streams();
    read_until(&mut one, LAST_CHUNK);
    assert_eq!(fetch(address, "/other"), (503, "stopping\n".into()));
    assert_eq!(fetch(address, "/name").0, 200, "what does not go on is answered");
    drop((say, say_more));
}

#[test]
fn an_admin_side_that_is_dropped_ends_its_streams_whole() {
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let admin = start([Route::get("/one", chunks, Arc::new(Mutex::new(Some(said)))).streaming()]);
    let mut one = reader(admin.address(), "/one");
    say.send("first").expect("it is read");
    read_until(&mut one, "first");
    drop(admin);
    read_until(&mut one, LAST_CHUNK);
    assert!(say.is_closed(), "what it read from is let go");
}

#[test]
fn a_console_has_a_thousand_readers() {
    const READERS: usize = 1000;
    // Each takes a descriptor at both ends.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("it may be raised so far");
    let (send, _) = tokio::sync::broadcast::channel::<&'static str>(16);
    let page = async |State(send): State<tokio::sync::broadcast::Sender<&'static str>>| {
        let told = futures_util::stream::unfold(send.subscribe(), |mut told| async {
            told.recv().await.ok().map(|text| (Bytes::from_static(text.as_bytes()), told))
        });
        stream::chunks("text/plain", told)
    };
    let limits = Limits { streams: READERS, ..Limits::default() };
    let config = AdminConfig { limits, ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/events", page, send.clone()).streaming()]);
    let connect = || {
        let mut stream = reader(admin.address(), "/events");
        read_until(&mut stream, "\r\n\r\n");
        stream
    };
    let mut readers: Vec<TcpStream> = std::iter::repeat_with(connect).take(READERS).collect();
    assert_eq!(fetch(admin.address(), "/events").0, 503, "one more has no place");
    send.send("to all").expect("they are there");
    readers.iter_mut().for_each(|reader| read_until(reader, "to all"));
    assert_eq!(fetch(admin.address(), "/healthz").0, 200);
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
