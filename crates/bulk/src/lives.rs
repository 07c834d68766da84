//! The lives of a target's nodes, looked at while a run goes on: one in RAM that begins anew has lost what it was given, and takes
//! what comes as if nothing were missing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::BulkError;
use crate::server::{Life, Server};

/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Which lives servers had, by their names, when something was written to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownLives(BTreeMap<String, Life>);

impl KnownLives {
    /// Those of these servers. One that does not tell its life is passed over.
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Self {
        Self(servers.into_iter().filter_map(|server| Some((server.name(), server.life?))).collect())
    }

    /// Whether a server that tells its life has none of these, at whatever address: it has nothing of what was written.
    pub fn lack(&self, server: &Server) -> bool {
        server.life.is_some_and(|life| !self.0.values().any(|known| known.is(life)))
    }

    /// Whether a server of this name had one.
    pub fn has_name(&self, server: &Server) -> bool {
        self.0.contains_key(&server.name())
    }
}

/// The servers, and when they were looked at.
pub(crate) struct Lives {
    servers: Vec<Server>,
    looked: Instant,
}

impl Lives {
    pub(crate) fn of(servers: &[Server]) -> Self {
        Self { servers: servers.to_vec(), looked: Instant::now() }
    }

    /// Looks, if it is time for that. One that does not answer may come back as it was.
    ///
    /// # Errors
    /// Which one has begun anew.
    pub(crate) fn look(&mut self) -> Result<(), BulkError> {
        if self.looked.elapsed() < LOOK_EVERY { Ok(()) } else { self.look_now() }
    }

    /// Looks at once.
    ///
    /// # Errors
    /// As [`Lives::look`].
    pub(crate) fn look_now(&mut self) -> Result<(), BulkError> {
        self.looked = Instant::now();
        let is_other = |ended: &BulkError| matches!(ended, BulkError::BegunAnew { .. });
        let other = self.servers.iter().filter_map(|server| server.check_life().err()).find(is_other);
        other.map_or(Ok(()), Err)
    }
}
