//! How a node catches up, and what the threads of that share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use moneta_feed::Gate;
use moneta_net::{Address, Endpoint, Outward};
use moneta_store::{Clock, Store};
use parking_lot::Mutex;

use moneta_store::Counter;

/// How a node catches up.
#[derive(Clone, Debug)]
pub struct CatchUpConfig {
    /// The address that the topology has for this node. `None`: the one of this machine with a port that the node listens on.
    pub own: Option<Address>,
    /// The moment of the newest that the node holds from before, in milliseconds since the Unix epoch; `None`: it began empty.
    pub kept_until: Option<u64>,
    /// What the node took shortly before may be lost.
    pub lost_some: bool,
    /// By how much clocks of nodes and proxies may differ, in milliseconds.
    pub skew_max: u64,
    /// After this long a node that has not learned what it missed does what [`CatchUpConfig::at_deadline`] says.
    pub deadline: Duration,
    /// What that is.
    pub at_deadline: AtDeadline,
    /// The largest value that the node takes, in bytes.
    pub item_max: usize,
    /// How nodes of other copies are reached.
    pub outward: Outward,
}

/// What a node does that could not learn what it missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtDeadline {
    /// It answers no reads while another copy does, and goes on to try. Where none does it answers.
    #[default]
    StayOut,
    /// It answers reads, which may be old.
    Serve,
}

/// What the threads of a catching up share.
pub(super) struct CatchUpState {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<Clock>,
    pub(super) config: CatchUpConfig,
    /// What the node holds may be old.
    pub(super) behind: AtomicBool,
    /// What other copies took until then is here, in milliseconds since the Unix epoch.
    pub(super) whole_until: AtomicU64,
    /// Share of what is to be read that was read.
    pub(super) percent: AtomicU8,
    /// What is out of the ordinary about the end, for people.
    pub(super) note: Mutex<Option<String>>,
    pub(super) counts: CatchUpCounts,
    /// Until then the node has run without being stopped, by its clock in milliseconds since the Unix epoch.
    pub(super) runs_until: AtomicU64,
    pub(super) trouble: Mutex<Trouble>,
    /// Nodes of other copies, of which it is known whether they answer.
    pub(super) peers: Mutex<Vec<Address>>,
    /// Held by the one reader that holds a large value.
    pub(super) large: Arc<std::sync::Mutex<()>>,
    /// Passed by what changes the store, which is closed after it.
    pub(super) gate: Arc<Gate>,
}

/// What became of the changes that were read.
#[derive(Default)]
pub(super) struct CatchUpCounts {
    pub(super) taken: Counter,
    pub(super) superseded: Counter,
    /// Times that everything held was dropped.
    pub(super) dropped: Counter,
    /// Times that the node was behind though it had not restarted.
    pub(super) again: Counter,
    /// Milliseconds until the node was whole.
    pub(super) took: AtomicU64,
}

/// What tells a node that it may hold what is old ([`super::trouble`]).
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// What other copies took since then may be missing, in milliseconds since the Unix epoch.
    pub(super) since: Option<u64>,
    /// By how much the clock is ahead of the others', in milliseconds, if that is more than may be.
    pub(super) wrong: Option<i64>,
    pub(super) is_cut_off: bool,
}

impl Trouble {
    /// The node must not answer reads.
    pub(super) fn keeps_behind(&self) -> bool {
        self.since.is_some() || self.wrong.is_some()
    }

    /// In words, for people.
    pub(super) fn note(&self) -> Option<String> {
        match self.wrong {
            Some(by) if by < 0 => {
                Some(format!("its clock is {} ms behind those of other copies: it answers no reads", -by))
            }
            Some(by) => Some(format!("its clock is {by} ms ahead of those of other copies: it answers no reads")),
            None if self.is_cut_off => Some("cut off from all other copies: what it answers may be old".to_owned()),
            None => None,
        }
    }
}

impl CatchUpState {
    pub(super) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// How the node reaches another copy's node, whose every answer takes at most `patience`.
    pub(super) fn endpoint(&self, node: &Address, patience: Duration) -> Endpoint {
        self.config.outward.to(node.clone()).patient(patience)
    }

    /// The node goes on to refuse reads, after its deadline.
    pub(super) fn stay_out(&self) {
        let mut note = self.note.lock();
        if note.is_none() {
            tracing::error!(
                "other copies could not be read until the deadline: the node answers no reads, since another copy does"
            );
            *note = Some("stays out: other copies cannot be read, and one of them answers reads".to_owned());
        }
    }

    /// The node answers reads from now on, unless it missed something else meanwhile.
    pub(super) fn end(&self, note: Option<String>) {
        *self.note.lock() = note;
        let trouble = self.trouble.lock();
        self.behind.store(trouble.keeps_behind(), Ordering::Relaxed);
    }
}
