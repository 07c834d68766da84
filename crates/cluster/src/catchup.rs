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
mod state;
mod trouble;

use std::sync::Arc;

use moneta_background::Run;

use crate::error::ClusterError;
use crate::topology::Topology;
use state::CatchUpState;

pub use gate::{CatchUp, catch_up_metrics};
pub use state::{AtDeadline, CatchUpConfig};

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
        for run in [|state: &Arc<CatchUpState>| trouble::pulse(state), trouble::watch] {
            let state = Arc::clone(self.state());
            moneta_background::start("catch-up-watch", move |_| run(&state)).map_err(ClusterError::Thread)?;
        }
        let state = Arc::clone(self.state());
        let run = move |_: &Run| rounds::run(&state, &ports, topology);
        moneta_background::start("catch-up", run).map_err(ClusterError::Thread)?;
        Ok(())
    }
}
