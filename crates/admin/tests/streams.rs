//! Guards answers that go on: cut off by the time that other answers have, or so many that others find no place, or going on when
//! the process is to end.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::StreamExt;
use moneta_admin::{AdminConfig, Limits, Route, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{PATIENCE, fetch, start, start_with};

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
        start_with(config, [Route::get("/events", events, said).streaming(), Route::get("/name", async || "well", ())]);
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
    let admin = start([page("/one", said), page("/other", more), Route::get("/name", async || "well", ())]);
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
