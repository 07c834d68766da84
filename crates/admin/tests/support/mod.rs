//! An admin side on a free port, and a plain client for it.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use moneta_admin::{Admin, AdminConfig, Route};

/// Against hangs of the test only.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn start(routes: impl IntoIterator<Item = Route>) -> Admin {
    start_with(AdminConfig::default(), routes)
}

pub fn start_with(config: AdminConfig, routes: impl IntoIterator<Item = Route>) -> Admin {
    Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), config, routes).expect("a free port")
}

/// Status and body of a page.
pub fn fetch(address: SocketAddr, path: &str) -> (u16, String) {
    fetch_as(address, path, "localhost")
}

/// The same, asked of a host.
pub fn fetch_as(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
    read_answer(stream)
}

pub fn read_answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// The whole answer to a request with this head and body.
pub fn whole(address: SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    write!(stream, "{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Status and body of the answer to a request with this head and body.
pub fn request(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let answer = whole(address, head, body);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}
