//! Guards what an idle connection costs. Alone in its file: it measures the memory of the whole process.

mod support;

use moneta_server::ServerConfig;
use support::{TestServer, config, hit, set};

/// The promise, per connection, kernel memory aside.
const LIMIT: usize = 4096;

/// Bytes of memory the process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn an_idle_connection_costs_at_most_four_kibibytes() {
    let count = 1_500;
    // The limit on descriptors is raised for this many, and both ends of each connection are in this process.
    let server = TestServer::start(ServerConfig { max_connections: 2 * count + 100, ..config() });
    let value = vec![b'v'; 20_000];
    let mut warm = server.connect();
    warm.ask(set("key", &value), "STORED\r\n");
    let before = resident();
    // All have had a request in pieces and a large reply, so all had memory of their own at some time.
    let mut clients: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("get k");
    }
    for client in &mut clients {
        client.send("ey\r\n");
        assert!(client.receive(hit("key", &value).len()) == hit("key", &value));
    }
    let growth = resident().saturating_sub(before);
    assert_eq!(server.node.registry.totals().curr_connections, count as u64 + 1);
    println!("{} bytes per idle connection", growth / count);
    assert!(growth <= count * LIMIT, "{} bytes per connection", growth / count);
}
