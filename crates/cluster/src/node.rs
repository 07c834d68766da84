//! A node as this process knows it: its store, whether it is well, and what it has missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_feed::{Buckets, Source};
use moneta_store::{ErrorKind, Key, Store, StoreError, Version, component};
use parking_lot::Mutex;

use crate::apart::APART;
use crate::board::BoardPlace;
use crate::flight::Flight;
use crate::health::NodeHealth;
use crate::hints::{Hints, Known, Missed};
use crate::pace::{Answers, Pace};
use crate::pass::Sweep;
use crate::topology;
use crate::unversioned::Versions;

/// Opens the stores of nodes. The seam at which transport is replaced.
pub trait Connect: Send + Sync {
    /// The store of a node. It need not be up: its operations fail until it answers.
    ///
    /// # Errors
    /// When no store can be made for such a node at all.
    fn open(&self, node: &topology::Node) -> Result<Opened, Box<dyn std::error::Error + Send + Sync>>;

    /// How long a request to a node may take from now on, those of open stores as well. For what has no such time: nothing.
    fn set_timeout(&self, timeout: Duration) {
        let _ = timeout;
    }

    /// What a node's clock says, in milliseconds since the Unix epoch. May wait for it for a while. `None`: it does not answer,
    /// or does not tell.
    fn time(&self, node: &topology::Node) -> Option<u64>;

    /// Posts something on a node's board, in place of what the author has posted there before, and tells what others have posted
    /// since `cursor`, 0 for all. May wait for the node for a while. `None`: it does not answer, or has no board, and nothing was
    /// posted.
    fn exchange(&self, node: &topology::Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        let _ = (node, cursor, post);
        None
    }

    /// The feed of a node's changes, without values, of keys in these buckets. `None`: it has none.
    fn feed(&self, node: &topology::Node, buckets: Option<Buckets>) -> Option<Box<dyn Source>> {
        let _ = (node, buckets);
        None
    }
}

/// What a node's board has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Where to go on.
    pub cursor: u64,
    /// Since when the node has what was written to it, in milliseconds since the Unix epoch; 0: it does not tell.
    pub since: u64,
    /// Authors and what they have posted last.
    pub posts: Vec<(u64, Vec<u8>)>,
    /// Whether what was to be posted is there.
    pub is_posted: bool,
}

/// A node's store, as [`Connect`] has opened it.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Tells what the node has answered; without it, that it is slow is not seen.
    pub answers: Option<Answers>,
}

impl From<Arc<dyn Store>> for Opened {
    fn from(store: Arc<dyn Store>) -> Self {
        Self { store, answers: None }
    }
}

/// A node.
pub(crate) struct Node {
    /// The replica's name and the slot's, as `a1/a1-0`.
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) place: topology::Node,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) versions: Versions,
    pub(crate) health: NodeHealth,
    pub(crate) pace: Pace,
    pub(crate) hints: Arc<Hints>,
    pub(crate) flight: Flight,
    pub(crate) since: AtomicU64,
    pub(crate) board: Mutex<BoardPlace>,
    /// The check of keys in doubt.
    pub(crate) sweep: Mutex<Sweep>,
    /// Answers with a version from the future.
    pub(crate) future: AtomicU64,
}

impl Node {
    /// Whether it takes no connection, as its store has found without being asked by anyone.
    pub(crate) fn is_away(&self) -> bool {
        component::health(&*self.store).unready
    }

    /// Why its keys in doubt cannot be compared with other copies, if there are any and they cannot.
    pub(crate) fn doubt_failure(&self) -> Option<Arc<str>> {
        let failure = self.sweep.lock().failure.clone()?;
        (self.hints.doubt_share() > 0.0).then_some(failure)
    }

    /// Whether nothing is known against what the node shows of any key.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.flight.is_empty() && self.hints.is_empty()
    }

    /// What is known against what the node shows of a key: writes that it lacks or that are under way, and whether it is in
    /// doubt.
    #[inline]
    pub(crate) fn known(&self, key: &Key<'_>) -> Known {
        if self.is_clear() { Known::default() } else { self.look_up(key) }
    }

    #[cold]
    fn look_up(&self, key: &Key<'_>) -> Known {
        let known = self.hints.known(key.bytes);
        Known { missed: Missed::both(self.flight.missed(key.hash), known.missed), ..known }
    }

    /// The node has taken a write of this version: it does not lack what is older, neither what it has missed nor what is still
    /// on its way.
    #[inline]
    pub(crate) fn took(&self, key: &Key<'_>, version: Version) {
        self.hints.settle(key.bytes, version);
        self.flight.settle(key.hash, version);
    }

    /// Since when the node has what was written to it, in milliseconds since the Unix epoch; 0: that is not known. What is older
    /// and is not there may be on other nodes all the same.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Whether the node would have an item of this version, or know why not, if nothing newer had come of the key.
    pub(crate) fn would_have(&self, version: Version) -> bool {
        self.since() <= version.millis().saturating_sub(APART)
    }
}

/// Whether a failure says that the node is not well, rather than that it refuses one request.
pub(crate) fn is_unwell(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Lost | ErrorKind::Timeout | ErrorKind::Unavailable)
}

/// Whether a failure says that the node takes no connection.
pub(crate) fn takes_no_connection(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Unreachable
}

/// Whether a request was not sent, since too many wait for the node: that says nothing of how the node is.
pub(crate) fn is_busy(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Busy
}
