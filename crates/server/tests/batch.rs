//! Guards online requests against what batch connections have to say, and what their requests do to the tiers.

mod support;

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings, Policy};
use moneta_server::{ListenAddress, Listener, Server, ServerConfig};
use moneta_store::{Clock, Cx, Key, Op, Step, Store, Visit};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::model::ModelStore;
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

/// A listener of each policy.
fn listeners() -> Vec<Listener> {
    let batch = Listener { policy: Policy::Batch, ..Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))) };
    vec![config().listeners.remove(0), batch]
}

fn connect(address: &ListenAddress) -> Client<TcpStream> {
    let ListenAddress::Tcp(address) = address else { panic!("it is TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(stream)
}

#[test]
fn an_online_request_waits_for_one_turn_of_all_that_batch_connections_have_to_say() {
    let server = TestServer::start(ServerConfig { listeners: listeners(), workers: 1, ..config() });
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

/// The model; notes how each operation on a key treats the tiers, and whether a worker asks.
struct NotingStore {
    inner: ModelStore,
    notes: Arc<Mutex<Vec<(Policy, bool)>>>,
}

impl Double for NotingStore {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.notes.lock().unwrap().push((cx.policy(), cx.is_worker()));
        self.inner.call(cx, key, op, out)
    }
}

#[test]
fn every_operation_carries_the_policy_of_its_listener() {
    let clock = Arc::new(Clock::system());
    let notes = Arc::default();
    let store = NotingStore { inner: ModelStore::new(Arc::clone(&clock), 1024), notes: Arc::clone(&notes) };
    let node = Arc::new(Node::new(NodeSettings::default(), clock, Authenticator::off()));
    let config = ServerConfig { listeners: listeners(), workers: 1, ..config() };
    let running = Server::start(&config, Arc::new(Layer(store)), node).unwrap();
    for (listener, policy) in [Policy::Online, Policy::Batch].into_iter().enumerate() {
        let mut client = connect(&running.listen_addresses()[listener]);
        client.ask(
            "set n 0 0 1\r\n1\r\nget n\r\nincr n 1\r\ntouch n 0\r\n",
            "STORED\r\nVALUE n 0 1\r\n1\r\nEND\r\n2\r\nTOUCHED\r\n",
        );
        client.ask("get n m\r\nmg n v\r\nme m\r\n", "VALUE n 0 1\r\n2\r\nEND\r\nVA 1\r\n2\r\nEN\r\n");
        client.ask("ms n 1 MA s\r\n0\r\ndelete n\r\n", "HD s2\r\nDELETED\r\n");
        let notes = std::mem::take(&mut *notes.lock().unwrap());
        assert!(notes.len() >= 11, "{notes:?}");
        assert!(notes.iter().all(|&note| note == (policy, true)), "{policy:?}: {notes:?}");
    }
}
