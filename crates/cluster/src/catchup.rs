//! A node that has come back learns from other copies what it has missed, before it answers reads.
//!
//! [`CatchUp`] stands round the node's store. While the node is *behind*, what depends on what it holds fails with
//! [`moneta_store::ErrorKind::CatchingUp`], and proxies ask another copy; whole writes and deletes by version are taken.
//! Meanwhile the node reads the feeds ([`reader`]) of the nodes that hold its keys in another copy ([`peers`]), from the moment
//! of the newest that it has itself, less a margin, and applies them in mode newer ([`apply`]).
//!
//! ```text
//!  began with items ──▶ behind ──▶ another copy was read until this start ─▶ whole ──▶ follows for a while ──▶ done
//!  began empty ─────────────────────────────────────────────────────────────▶ whole ──▶      ”
//!                         └─ the feed of a copy that is whole does not reach back: drops what it has ─▶ whole
//! ```
//!
//! The same happens to a node that was stopped, cut off or out of its clock's bound ([`trouble`]).
//!
//! Then it follows the topology: a node that gets keys back which other nodes had for a while ([`past`]) is behind again.
//!
//! *Another copy* is one that is itself whole. Where all copies that answer have come back too, as after a loss of power, the
//! node reads all of them, and is whole if they are more than half of all copies with itself. A node serves its feed while it is
//! behind, so that all may start at once. It follows for a while after it is whole: proxies that had given it up find out only at
//! their next probe.

mod apply;
mod copies;
mod gate;
mod past;
mod peers;
mod reader;
mod rounds;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use moneta_background::Run;
use moneta_feed::Gate;
use moneta_net::{Address, Connector, Endpoint};
use moneta_store::{Clock, Store};
use parking_lot::Mutex;

use crate::counters::Counter;
use crate::error::ClusterError;
use crate::topology::Topology;
use trouble::Trouble;

pub use gate::{CatchUp, catch_up_metrics};

/// How far before the newest that it holds a node begins to read that was killed: longer than it may have left changes in RAM
/// alone.
const MARGIN_OF_KILLED: Duration = Duration::from_secs(90);
/// The same for a node that has lost nothing: longer than the clocks of two nodes differ, and than a write is under way.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a node that is whole goes on to follow: longer than proxies pause between two probes
/// ([`crate::ClusterConfig::PROBE_MAX`]).
const FOLLOW: Duration = Duration::from_secs(90);

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
    /// What protects connections to nodes of other copies.
    pub connector: Connector,
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
struct State {
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    config: CatchUpConfig,
    /// What the node holds may be old.
    behind: AtomicBool,
    /// What other copies took until then is here, in milliseconds since the Unix epoch.
    whole_until: AtomicU64,
    /// Share of what is to be read that was read.
    percent: AtomicU8,
    /// What is out of the ordinary about the end, for people.
    note: Mutex<Option<String>>,
    counts: Counts,
    /// Until then the node has run without being stopped, by its clock in milliseconds since the Unix epoch.
    runs_until: AtomicU64,
    trouble: Mutex<Trouble>,
    /// Nodes of other copies, of which it is known whether they answer.
    peers: Mutex<Vec<Address>>,
    /// Held by the one reader that holds a large value.
    large: Arc<std::sync::Mutex<()>>,
    /// Passed by what changes the store, which is closed after it.
    gate: Arc<Gate>,
}

/// What became of the changes that were read.
#[derive(Default)]
struct Counts {
    taken: Counter,
    superseded: Counter,
    /// Times that everything held was dropped.
    dropped: Counter,
    /// Times that the node was behind though it had not restarted.
    again: Counter,
    /// Milliseconds until the node was whole.
    took: AtomicU64,
}

impl State {
    fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// How the node reaches another copy's node, whose every answer takes at most `patience`.
    fn endpoint(&self, node: &Address, patience: Duration) -> Endpoint {
        Endpoint { connector: self.config.connector.clone(), ..Endpoint::new(node.clone()) }.patient(patience)
    }

    /// The node goes on to refuse reads, behind its deadline.
    fn stay_out(&self) {
        let mut note = self.note.lock();
        if note.is_none() {
            tracing::error!(
                "other copies could not be read until the deadline: the node answers no reads, since another copy does"
            );
            *note = Some("stays out: other copies cannot be read, and one of them answers reads".to_owned());
        }
    }

    /// The node answers reads from now on, unless it missed something else meanwhile.
    fn end(&self, note: Option<String>) {
        *self.note.lock() = note;
        let trouble = self.trouble.lock();
        self.behind.store(trouble.keeps_behind(), Ordering::Relaxed);
    }
}

impl CatchUp {
    /// Begins to catch up. `ports`: those on which the node listens; `topology`: says which copies there are when that has
    /// changed, and may wait for a while; `None`: there is nothing new. It is asked as long as the node runs.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(
        &self,
        ports: Vec<u16>,
        topology: impl FnMut() -> Option<Topology> + Send + 'static,
    ) -> Result<(), ClusterError> {
        for run in [|state: &Arc<State>| trouble::pulse(state), trouble::watch] {
            let state = Arc::clone(self.state());
            moneta_background::start("catch-up-watch", move |_| run(&state)).map_err(ClusterError::Thread)?;
        }
        let state = Arc::clone(self.state());
        let run = move |_: &Run| rounds::run(&state, &ports, topology);
        moneta_background::start("catch-up", run).map_err(ClusterError::Thread)?;
        Ok(())
    }
}
