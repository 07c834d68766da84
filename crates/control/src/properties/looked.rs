//! What is known of rollouts in this process alone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::leases::Moment;
use crate::properties::rollout::Rollout;
use crate::properties::watch::Watch;

/// What is known of rollouts in this process alone.
#[derive(Debug, Default)]
pub(crate) struct Rolling {
    pub(crate) watches: Mutex<HashMap<(Arc<str>, u64), Looked>>,
}

/// A rollout that is looked at.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) watch: Watch,
    pub(crate) waits_for: String,
}

impl Rolling {
    /// What a rollout waits for, as it was seen last; empty: its stage was not looked at yet.
    pub(crate) fn waits_for(&self, environment: &str, rollout: &Rollout) -> String {
        let watches = self.watches.lock();
        let looked = watches.get(&(environment.into(), rollout.id));
        let looked = looked.filter(|looked| looked.watch.of == (rollout.stage, rollout.stage_at));
        looked.map_or_else(String::new, |looked| looked.waits_for.clone())
    }
}

impl Looked {
    /// One whose stage is looked at from now on.
    pub(crate) fn new(of: (usize, u64), now: Moment) -> Self {
        Self { watch: Watch::new(of, now), waits_for: String::new() }
    }
}
