//! Guards what the parts of a process show: their pages are answered from the moment they are registered, and one that hangs
//! takes none of the others along.

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use moneta_admin::answer::{self, Missing};
use moneta_admin::ask::{Turn, Unanswered, ask};
use moneta_admin::{Admin, AdminConfig, AdminError, Index, Limits, Places, Route};
use moneta_store::metric::{Metric, Reading, Unit, samples};
use support::{PATIENCE, fetch, fetch_as, read_answer, request, start, start_with, whole};

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
