//! One session over a store, and the client's side of it.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use moneta_server::auth::Authenticator;
use moneta_server::node::{ListConnections, Node, NodeSettings, Peer, Surroundings};
use moneta_server::session::{After, Session, Worker};
use moneta_store::{Clock, Cx, Policy, Store};
use moneta_testkit::model::ModelStore;

/// Where the test's clock stands at first.
pub const NOW: u32 = 1_700_000_000;
/// Unsent output at which a driver would stop.
pub const HIGH_WATER: usize = 64 * 1024;

/// A node that stands still in time, with one worker.
pub fn worker_on(
    store: impl Store + 'static,
    clock: &Arc<Clock>,
    settings: NodeSettings,
    users: Authenticator,
) -> Worker {
    let node = Arc::new(Node::new(settings, Arc::clone(clock), users));
    let counters = node.registry.register();
    Worker { store: Arc::new(store), cx: Cx::of_worker(Policy::Online, &Rc::default()), node, counters }
}

/// A worker over a model.
pub fn worker(settings: NodeSettings, users: Authenticator) -> Worker {
    let clock = Arc::new(Clock::manual(NOW));
    let store = ModelStore::new(Arc::clone(&clock), settings.item_max);
    worker_on(store, &clock, settings, users)
}

/// The same of a node that shows these connections.
pub fn worker_with(connections: Box<dyn ListConnections>) -> Worker {
    let (clock, settings) = (Arc::new(Clock::manual(NOW)), NodeSettings::default());
    let store = ModelStore::new(Arc::clone(&clock), settings.item_max);
    let surroundings = Surroundings { connections: Some(connections), ..Surroundings::default() };
    let node = Arc::new(Node::within(surroundings, settings, clock, Authenticator::off()));
    let counters = node.registry.register();
    Worker { store: Arc::new(store), cx: Cx::of_worker(Policy::Online, &Rc::default()), node, counters }
}

/// A client and the session it talks to.
pub struct Talk {
    session: Session,
    input: Vec<u8>,
    /// What the connection has come to.
    pub after: After,
}

impl Talk {
    pub fn new() -> Self {
        let peer = Peer { id: 7, ..Peer::default() };
        Self { session: Session::new(peer), input: Vec::new(), after: After::Continue }
    }

    /// A client of a listener, whose connection was opened.
    pub fn of(worker: &Worker, peer: Peer) -> Self {
        let mut session = Session::new(peer);
        session.opened(worker);
        Self { session, input: Vec::new(), after: After::Continue }
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Sends bytes and drives the session until it needs more; returns everything it answered.
    pub fn say(&mut self, worker: &Worker, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        self.input.extend_from_slice(bytes);
        while self.after == After::Continue {
            let mut output = Vec::new();
            let received = self.session.receive(worker, &self.input, &mut output, HIGH_WATER);
            assert!(received.consumed <= self.input.len());
            self.input.drain(..received.consumed);
            self.after = received.after;
            self.poll(worker, &mut output);
            let silent = output.is_empty() && received.consumed == 0;
            answers.append(&mut output);
            if received.needed > self.input.len() || (silent && received.needed == 0) {
                break;
            }
        }
        answers
    }

    /// Polls until nothing more comes out.
    pub fn poll(&mut self, worker: &Worker, output: &mut Vec<u8>) {
        let mut cx = Context::from_waker(Waker::noop());
        while self.session.is_waiting() {
            let before = output.len();
            let mut more = Vec::new();
            self.session.poll(worker, &mut cx, &mut more, HIGH_WATER);
            output.append(&mut more);
            if output.len() == before {
                break;
            }
        }
    }
}

/// Talks to a fresh node: pairs of what is sent and what must come back.
#[track_caller]
pub fn expect(transcript: &[(&str, &str)]) {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut talk = Talk::new();
    for (question, answer) in transcript {
        let answered = talk.say(&worker, question.as_bytes());
        assert_eq!(String::from_utf8_lossy(&answered), *answer, "to {question:?}");
    }
}
