//! Guards a node that runs out of file descriptors: it rests, and goes on by itself once there are some. Alone in its
//! file: descriptors belong to the whole process.

mod support;

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{TestServer, config, eventually};

/// Few enough to use up quickly, more than the test harness and the server hold.
const LIMIT: u64 = 300;

#[test]
fn out_of_descriptors_accepting_rests_and_resumes() {
    let server = TestServer::start(moneta_server::ServerConfig { max_connections: 100, ..config() });
    let mut early = server.connect();
    early.ask("get a\r\n", "END\r\n");
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Nofile) }).unwrap();

    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // One is left: the client's end takes it, and the server finds none for its own.
    hoard.pop();
    let mut late = server.connect();
    late.send("get b\r\n");
    eventually("accepting rests", || server.node.registry.totals().listen_disabled_num > 0);
    early.ask("get a\r\n", "END\r\n");
    drop(hoard);
    late.expect("END\r\n");
}
