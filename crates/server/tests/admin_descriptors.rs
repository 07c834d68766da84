//! Guards the admin side of a node that runs out of file descriptors: once there are some, it answers. Alone in its file:
//! descriptors belong to the whole process.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::admin::start;
use support::{PATIENCE, eventually};

/// Few enough to use up quickly, more than the test harness and the server hold.
const LIMIT: u64 = 300;

#[test]
fn out_of_descriptors_the_admin_side_rests_and_resumes() {
    let server = start();
    let admin = server.admin.as_ref().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Nofile) }).unwrap();
    // The node's own threads open and close files now and then, so that there may be one more than the hoard left.
    let mut hoard: Vec<File> = Vec::new();
    let mut clients = Vec::new();
    eventually("accepting has failed", || {
        hoard.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        // One is left: the client's end takes it, and the server finds none for its own.
        hoard.pop();
        // Those before it stay, or what they give back would be one more.
        clients.extend(TcpStream::connect(admin.address()));
        let until = Instant::now() + Duration::from_secs(5);
        while admin.accept_errors() < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        !clients.is_empty() && admin.accept_errors() > 1
    });
    let mut client = clients.pop().expect("it is there");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: moneta\r\nConnection: close\r\n\r\n").unwrap();
    drop(hoard);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap_or_else(|error| panic!("no answer to {error}: {answer:?}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}
