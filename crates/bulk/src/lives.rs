//! The lives of a target's nodes, looked at while a run goes on: one in RAM that begins anew has lost what it was given, and takes
//! what comes as if nothing were missing.

use std::time::{Duration, Instant};

use crate::error::BulkError;
use crate::server::Server;

/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

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
    pub(crate) fn look(&mut self) -> Result<(), String> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let is_other = |ended: &BulkError| matches!(ended, BulkError::BegunAnew { .. });
        let other = self.servers.iter().filter_map(|server| server.check_life().err()).find(is_other);
        other.map_or(Ok(()), |error| Err(error.to_string()))
    }
}
