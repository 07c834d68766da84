//! A client that sends its bytes in pieces to a session, and what must hold whatever it sends.

#![allow(dead_code, reason = "each target uses a part of it")]

use std::sync::Arc;
use std::task::{Context, Waker};

use moneta_protocol::decoder::Decoder;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings, Peer};
use moneta_server::session::{After, Session, Worker};
use moneta_store::{Clock, Cx, Store};

/// Unsent bytes at which the session has to stop.
pub const HIGH_WATER: usize = 8 * 1024;
/// Largest value.
pub const ITEM_MAX: usize = 1024;
/// What one command may write beyond the mark: one value and its line, one batch of a dump, or all statistics.
const OVERSHOOT: usize = 16 * 1024;
/// Turns without progress after which a session stalls.
const IDLE_TURNS: u32 = 3;

/// A node of one worker over a store that `make` makes for its clock.
pub fn worker<S: Store + 'static>(
    settings: NodeSettings,
    users: Authenticator,
    make: impl FnOnce(Arc<Clock>) -> S,
) -> Worker {
    let clock = Arc::new(Clock::manual(1_700_000_000));
    let settings = NodeSettings { item_max: ITEM_MAX, ..settings };
    let node = Arc::new(Node::new(settings, Arc::clone(&clock), users));
    let counters = node.registry.register();
    Worker { store: Arc::new(make(clock)), cx: Cx::outside(), node, counters }
}

/// How far a client came with a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    GoesOn,
    /// Nothing goes on before the store has answered something.
    Waits,
    /// All is sent and answered, or the session has ended.
    Over,
}

/// The client.
pub struct Client<'i> {
    pub session: Session,
    input: &'i [u8],
    piece: usize,
    consumed: usize,
    arrived: usize,
    idle_turns: u32,
    pub answers: Vec<u8>,
    pub after: After,
    /// Most bytes that the session has asked for.
    pub needed: usize,
}

impl<'i> Client<'i> {
    pub fn new(input: &'i [u8], piece: usize) -> Self {
        let (session, answers) = (Session::new(Peer::default()), Vec::new());
        let after = After::Continue;
        Self { session, input, piece, consumed: 0, arrived: 0, idle_turns: 0, answers, after, needed: 0 }
    }

    /// What the session has not taken.
    pub fn rest(&self) -> &'i [u8] {
        &self.input[self.consumed..]
    }

    /// Lets the session do what it can with what has arrived.
    pub fn turn(&mut self, worker: &Worker) -> Turn {
        let available = &self.input[self.consumed..self.arrived];
        let mut output = Vec::new();
        if self.after != After::Continue {
            // It closes when all is answered.
            return self.poll(worker, output);
        }
        let received = self.session.receive(worker, available, &mut output, HIGH_WATER);
        assert!(received.consumed <= available.len());
        assert!(received.needed <= Decoder::needed_max(ITEM_MAX), "asks for {} bytes", received.needed);
        assert!(output.len() <= HIGH_WATER + OVERSHOOT, "{}", output.len());
        self.needed = self.needed.max(received.needed);
        self.consumed += received.consumed;
        self.after = received.after;
        if received.consumed > 0 {
            self.idle_turns = 0;
        }
        let turn = self.poll(worker, output);
        if self.after != After::Continue {
            return if self.after == After::CloseNow { Turn::Over } else { turn };
        }
        if received.needed > self.arrived - self.consumed || !self.session.may_time_out() {
            if self.arrived == self.input.len() {
                return if self.session.is_waiting() && self.session.may_time_out() { turn } else { Turn::Over };
            }
            self.arrived = (self.arrived + self.piece).min(self.input.len());
            self.idle_turns = 0;
            return Turn::GoesOn;
        }
        turn
    }

    fn poll(&mut self, worker: &Worker, mut output: Vec<u8>) -> Turn {
        if self.session.is_waiting() {
            self.session.poll(worker, &mut Context::from_waker(Waker::noop()), &mut output, HIGH_WATER);
            assert!(output.len() <= 2 * (HIGH_WATER + OVERSHOOT), "{}", output.len());
        }
        self.idle_turns = if output.is_empty() { self.idle_turns + 1 } else { 0 };
        self.answers.append(&mut output);
        if self.session.is_barred() || (self.after != After::Continue && !self.session.is_waiting()) {
            Turn::Over
        } else if self.idle_turns >= IDLE_TURNS {
            Turn::Waits
        } else {
            Turn::GoesOn
        }
    }

    /// The store has answered something.
    pub fn goes_on(&mut self) {
        self.idle_turns = 0;
    }
}

/// Whether replies may depend on the cuts: an overlong line is refused only if its end is not there yet, and statistics
/// tell times.
pub fn depends_on_cuts(input: &[u8]) -> bool {
    input.split(|&byte| byte == b'\n').any(|line| line.len() > 2000)
        || has(input, b"stat")
        || input.first() == Some(&0x80)
        || has(input, b"watch")
}

pub fn has(input: &[u8], word: &[u8]) -> bool {
    input.windows(word.len()).any(|window| window == word)
}
