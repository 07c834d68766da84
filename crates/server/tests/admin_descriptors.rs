//! Guards the admin side of a node that runs out of file descriptors: once there are some, it answers. Alone in its file:
//! descriptors belong to the whole process.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::admin::{fetch, start};
use support::{PATIENCE, eventually};

/// Few enough to use up quickly, more than the test harness and the server hold.
const LIMIT: u64 = 300;

#[test]
fn out_of_descriptors_the_admin_side_rests_and_resumes() {
    let server = start();
    // Its thread has made what it needs descriptors for.
    assert_eq!(fetch(&server, "/healthz").0, 200);
    let desk = server.desk.as_ref().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Nofile) }).unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // One is left: the client's end takes it, and the server finds none for its own.
    hoard.pop();
    let mut client = TcpStream::connect(desk.address().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    eventually("accepting has failed", || desk.tally().accept_errors() > 1);
    drop(hoard);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap_or_else(|error| panic!("no answer to {error}: {answer:?}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}
