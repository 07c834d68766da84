//! Any bytes, cut anywhere, to a session over the model: it consumes what is there and no more, its output stays bounded,
//! it never stalls, and what it answers does not depend on the cuts. The first byte says how long the pieces are.
#![no_main]

use std::sync::Arc;
use std::task::{Context, Waker};

use libfuzzer_sys::fuzz_target;
use moneta_protocol::decoder::Decoder;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings, Peer};
use moneta_server::session::{After, Session, Worker};
use moneta_store::model::ModelStore;
use moneta_store::{Clock, Cx};

/// Unsent bytes at which the session has to stop.
const HIGH_WATER: usize = 8 * 1024;
/// Largest value.
const ITEM_MAX: usize = 1024;
/// What one command may write beyond the mark: one value and its line, one batch of a dump, or all statistics.
const OVERSHOOT: usize = 16 * 1024;

fn replies(input: &[u8], piece: usize) -> (Vec<u8>, After) {
    let clock = Arc::new(Clock::manual(1_700_000_000));
    let settings = NodeSettings { item_max: ITEM_MAX, ..NodeSettings::default() };
    let node = Arc::new(Node::new(settings, Arc::clone(&clock), Authenticator::off()));
    let counters = node.registry.register();
    let worker = Worker { store: Arc::new(ModelStore::new(clock, ITEM_MAX)), cx: Cx::outside(), node, counters };
    let mut session = Session::new(Peer::default());
    let mut cx = Context::from_waker(Waker::noop());
    let (mut consumed, mut arrived) = (0, 0);
    let mut answers = Vec::new();
    let mut idle_turns = 0;
    loop {
        let available = &input[consumed..arrived];
        let mut output = Vec::new();
        let received = session.receive(&worker, available, &mut output, HIGH_WATER);
        assert!(received.consumed <= available.len());
        assert!(received.needed <= Decoder::needed_max(ITEM_MAX), "asks for {} bytes", received.needed);
        assert!(output.len() <= HIGH_WATER + OVERSHOOT, "{}", output.len());
        if session.is_waiting() {
            session.poll(&worker, &mut cx, &mut output, HIGH_WATER);
        }
        consumed += received.consumed;
        idle_turns = if received.consumed == 0 && output.is_empty() { idle_turns + 1 } else { 0 };
        answers.append(&mut output);
        if received.after != After::Continue {
            return (answers, received.after);
        }
        if received.needed > arrived - consumed || !session.may_time_out() {
            if arrived == input.len() {
                return (answers, received.after);
            }
            arrived = (arrived + piece).min(input.len());
            idle_turns = 0;
        }
        assert!(idle_turns < 3, "stalls");
    }
}

/// Whether replies may depend on the cuts: an overlong line is refused only if its end is not there yet, and statistics
/// tell times.
fn depends_on_cuts(input: &[u8]) -> bool {
    input.split(|&byte| byte == b'\n').any(|line| line.len() > 2000)
        || input.windows(4).any(|window| window == b"stat")
        || input.first() == Some(&0x80)
        || input.windows(5).any(|window| window == b"watch")
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let cut = replies(input, usize::from(piece).max(1));
    if !depends_on_cuts(input) {
        assert_eq!(cut, replies(input, usize::MAX / 2), "the cuts show");
    }
});
