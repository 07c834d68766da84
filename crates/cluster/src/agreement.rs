//! Keeps the processes of an app at the same topology. Each says on the nodes' boards which one it has; one whose topology others
//! have replaced reads its source again at once. A new one takes effect a moment after the first process has said so: all that
//! could read it begin with it together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::layout::Layout;
use crate::shared::ClusterShared;
use crate::topologies::{Agreement, NOTICE, Taken};
use crate::topology::Topology;

/// By how much clocks of processes may differ, in milliseconds: those that took it together are not apart by more.
const APART: u64 = 500;

impl ClusterShared {
    /// Whether the source of topologies counts them.
    pub(crate) fn counts_epochs(&self) -> bool {
        self.source.lock().as_ref().is_none_or(|source| source.status().counted)
    }

    /// Says to others that this topology was read, and waits until it takes effect. Not where there are no boards, or the
    /// topology is the one that this process has. Returns when it takes effect; 0: at once.
    pub(crate) fn give_notice(&self, topology: &Topology) -> u64 {
        let now = self.clock.millis();
        let next = Taken::of(topology, self.counts_epochs(), now + NOTICE);
        if !self.hears(now) || next.is(&self.standing.lock().own) {
            return 0;
        }
        self.standing.lock().next = Some(next);
        self.tell_now.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        loop {
            // Another process may have said so first.
            let at = self.board.lock().notice.topologies.effect_of(&next).unwrap_or(next.at).min(next.at);
            if self.clock.millis() >= at || begun.elapsed() >= Duration::from_millis(NOTICE) || self.is_closed() {
                return at;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Goes by what others have said of their topologies.
    pub(crate) fn judge_topology(&self, now: u64) {
        let (newer, agreement) = {
            let mut standing = self.standing.lock();
            let (newer, agreement) = self.board.lock().notice.topologies.judge(&standing.own, now);
            let before = std::mem::replace(&mut standing.agreement, agreement);
            if before != agreement && agreement != Agreement::Agrees {
                let (app, epoch) = (&self.config.app, standing.own.epoch);
                tracing::warn!(app, epoch, ?agreement, "another process has another topology");
            }
            (newer.filter(|newer| standing.next.is_none_or(|next| !next.is(newer))), agreement)
        };
        match newer {
            Some(newer) => {
                self.overlap.begin(newer.at.saturating_sub(APART));
                if let Some(watch) = &*self.watch.lock() {
                    watch.hurry();
                }
            }
            None if agreement == Agreement::Agrees => self.overlap.end_if_unused(),
            None => {}
        }
    }

    /// A topology was taken in place of `old`, which took effect `at`; 0: at once.
    pub(crate) fn note_taken(&self, topology: &Topology, at: u64, old: Arc<Layout>) {
        let now = self.clock.millis();
        let at = match at {
            // The one that this process began with.
            0 if old.nodes.is_empty() => 0,
            0 => now,
            at => at,
        };
        self.standing.lock().take(Taken::of(topology, self.counts_epochs(), at));
        self.overlap.note_change(old, now);
    }
}
