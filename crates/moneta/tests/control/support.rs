//! A control plane under test, and clients of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Node, PATIENCE, Signal, moneta};

/// A control plane that runs; killed when dropped.
pub struct Control {
    pub process: Node,
    pub address: SocketAddr,
}

impl Control {
    /// Starts one on a folder and waits until it is in step. Instances renew every second.
    pub fn start(data: &Path, arguments: &[&str]) -> Self {
        let data = data.display().to_string();
        let mut command = moneta(&["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--data", &data]);
        let control = Self::run(command.args(arguments));
        control.until_ready();
        control
    }

    pub fn run(command: &mut std::process::Command) -> Self {
        let process = Node::run(command);
        let line = process.screen.iter().find_map(|line| line.strip_prefix("listening on http://"));
        let address = line.expect("it says where it listens").parse().expect("an address");
        Self { process, address }
    }

    pub fn until_ready(&self) {
        self.process.wait_for(
            || try_ask(self.address, "GET", "/readyz", "", "").is_some_and(|(status, _)| status == 200),
            "ready",
        );
    }

    /// Status and JSON of an answer.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.ask_as("", method, path, body)
    }

    /// The same, with a token.
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = try_ask(self.address, method, path, token, &body).expect("it answers");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The JSON of an answer that says yes.
    pub fn good(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    pub fn feed(&self, query: &str) -> Feed {
        self.feed_as("", query)
    }

    pub fn feed_as(&self, token: &str, query: &str) -> Feed {
        Feed::open(self.address, token, &format!("/v1/default/feed?{query}"), "")
    }

    pub fn kill(&mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.wait();
    }

    /// Ends it in order.
    pub fn end(mut self) {
        self.process.signal(Signal::SIGTERM);
        assert!(self.process.wait().success(), "{}", self.process.log());
    }
}

/// Status and body, if there is a whole answer.
pub fn try_ask(address: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(head(method, path, token, body.len()).as_bytes()).ok()?;
    // It may be refused before it is read.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

pub fn head(method: &str, path: &str, token: &str, length: usize) -> String {
    let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: {length}\r\n\r\n")
}

/// A reader of a feed.
pub struct Feed {
    lines: BufReader<TcpStream>,
}

impl Feed {
    pub fn open(address: SocketAddr, token: &str, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = head("GET", path, token, 0).replace("\r\n\r\n", &format!("\r\n{headers}\r\n"));
        stream.write_all(head.as_bytes()).expect("it reads");
        Self { lines: BufReader::new(stream) }
    }

    /// The next event; `None`: it is over.
    pub fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().trim_start_matches("data: ");
            // Between are the head, and the lengths of chunks.
            if line.starts_with('{') {
                return Some(serde_json::from_str(line).expect("a line is JSON"));
            }
        }
    }

    /// All up to the next `at`, and its cursor.
    pub fn round(&mut self) -> (Vec<Value>, String) {
        let mut events = Vec::new();
        loop {
            let event = self.next().expect("it goes on");
            if let Some(at) = event["at"].as_str() {
                return (events, at.to_owned());
            }
            events.push(event);
        }
    }

    /// The first event that is as wanted.
    pub fn until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let event = self.next().expect("it goes on");
            if is_wanted(&event) {
                return event;
            }
            assert!(begun.elapsed() < PATIENCE, "it never comes");
        }
    }
}

/// Something that answers probes, until it is dropped.
pub struct Answering {
    pub address: String,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Answering {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                let mut asked = [0; 4];
                if stream.read_exact(&mut asked).is_ok() {
                    let _ = stream.write_all(b"MN\r\n");
                }
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Tells threads of a scope to end, also where the test fails: the scope waits for them.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
