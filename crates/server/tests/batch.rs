//! Guards online requests against what batch connections have to say.

mod support;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use moneta_server::node::Policy;
use moneta_server::{ListenAddress, Listener, ServerConfig};
use support::gate::Gate;
use support::{Client, PATIENCE, TestServer, config, eventually, set};

/// Requests of one turn of a connection.
const TURN: usize = 20;
/// Longer than the slice of batch connections.
const HEAVY: Duration = Duration::from_millis(1);

/// Lets all go at the end, however it comes: the server waits for its worker.
struct Release(Gate);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.let_heavy(1_000_000);
    }
}

fn connect(address: &ListenAddress) -> Client<TcpStream> {
    let ListenAddress::Tcp(address) = address else { panic!("it is TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(stream)
}

#[test]
fn an_online_request_waits_for_one_turn_of_all_that_batch_connections_have_to_say() {
    let batch = Listener { policy: Policy::Batch, ..Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let online = config().listeners.remove(0);
    let server = TestServer::start(ServerConfig { listeners: vec![online, batch], workers: 1, ..config() });
    let release = Release(server.gate.clone());
    let mut online = server.connect();
    online.ask("get key\r\n", "END\r\n");
    let mut clients: Vec<_> = (0..8).map(|_| connect(&server.running.listen_addresses()[1])).collect();
    clients[0].send(set("heavy", b"1").repeat(TURN));
    eventually("the worker is busy", || server.gate.heavy() == 1);
    clients[1..].iter_mut().for_each(|client| client.send(set("heavy", b"1").repeat(TURN)));
    online.send("get key\r\n");
    std::thread::sleep(HEAVY);
    server.gate.let_heavy(TURN);
    online.expect("END\r\n");
    drop(release);
    clients.iter_mut().for_each(|client| client.expect(b"STORED\r\n".repeat(TURN)));
}
