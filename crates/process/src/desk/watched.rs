//! The desk's view of the process, for what tells others of it.

use std::sync::Arc;

use moneta_store::metric::Sample;

use super::life::{self, Life};
use crate::phases::Phase;

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its parts do not serve yet.
    Starting,
    /// It is ready for clients.
    Ready,
    /// It serves, and its parts are not fit.
    Unready,
    /// It is about to end.
    Leaving,
}

/// Sees a process as its desk does.
#[derive(Clone, Debug)]
pub struct Watched(pub(super) Arc<Life>);

impl Watched {
    /// How far it is; may block as long as its parts' health takes.
    pub fn state(&self) -> State {
        if self.0.vitals.phases.phase() != Phase::Running {
            return State::Leaving;
        }
        match self.0.parts() {
            Err(_) => State::Starting,
            Ok(parts) if self.0.is_ready(&life::health(&parts)) => State::Ready,
            Ok(_) => State::Unready,
        }
    }

    /// The metrics of its parts; may block.
    pub fn samples(&self) -> Vec<Sample> {
        self.0.parts().map_or_else(|_| Vec::new(), |parts| life::samples(&parts))
    }
}
