//! Nodes that answer, but far slower than others: they are not asked, as those that fail. docs/decisions/13-slow-nodes.md says
//! why by these rules.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use moneta_store::{Cx, Key, Op, StoreError, steps};

use crate::config::majority;
use crate::layout::Layout;
use crate::node::{Node, is_busy, is_unwell};
use crate::pace::Slow;
use crate::shared::ClusterShared;

/// How long an answer of a board tells that there are boards, and how long one is waited for, in milliseconds.
const HEARS: u64 = 2_500;

/// A key that probes ask for.
pub(crate) const PROBE_KEY: &[u8] = b"moneta:probe";

impl ClusterShared {
    /// Ejects the node if it has lately answered far slower than others, and takes a slow one back that cannot be spared any
    /// more.
    pub(crate) async fn judge_pace(&self, layout: &Layout, index: usize) {
        let node = &layout.nodes[index];
        let now = self.clock.millis();
        if node.health.is_ejected() {
            node.pace.begin(now);
            if node.health.slow_limit().is_some() && !self.can_spare(layout, index) {
                node.health.reinstate(now);
                tracing::info!(
                    app = self.config.app,
                    node = node.name,
                    "the slow node is asked: too few others are left"
                );
            }
            return;
        }
        let mean = node.pace.end(now, self.rules.eject_slow_requests());
        let Slow { mean, usual, limit, .. } = match (node.pace.suspicion(), mean) {
            (Some(slow), _) if !self.has_heard_since(slow.at, now) => return,
            (Some(slow), _) => {
                node.pace.acquit();
                slow
            }
            (None, None) => return,
            (None, Some(mean)) => {
                let Some(slow) = self.compare(layout, index, mean).await else { return };
                if self.hears(now) {
                    node.pace.suspect(slow);
                    self.tell_now.store(true, Ordering::Relaxed);
                    return;
                }
                slow
            }
        };
        if !self.can_spare(layout, index) || !self.may_eject(layout, node) {
            return;
        }
        if node.health.eject_slow(self.clock.millis(), self.probes(), limit) {
            tracing::warn!(
                app = self.config.app,
                node = node.name,
                mean_ms = mean.as_millis(),
                others_ms = usual.as_millis(),
                "the node is slow: it is not asked until it answers a probe faster"
            );
        }
    }

    /// Whether a node with this mean is slow beside others. `None`: it is not, or it cannot be spared.
    async fn compare(&self, layout: &Layout, index: usize, mean: Duration) -> Option<Slow> {
        let least = self.rules.eject_slow();
        let is_judged = !least.is_zero() && mean > least && self.can_spare(layout, index);
        if !is_judged || !self.may_eject(layout, &layout.nodes[index]) {
            return None;
        }
        let usual = self.pace_of_others(layout, index).await?;
        let limit = least.max(usual.saturating_mul(self.rules.eject_slow_times()));
        (mean > limit).then(|| Slow { at: self.clock.millis(), mean, usual, limit })
    }

    /// Whether what other processes say is heard: boards have answered lately.
    pub(crate) fn hears(&self, now: u64) -> bool {
        let heard = self.heard_at.load(Ordering::Relaxed);
        heard > 0 && now.abs_diff(heard) < HEARS
    }

    /// Whether others were heard since then, or cannot be.
    fn has_heard_since(&self, at: u64, now: u64) -> bool {
        self.heard_at.load(Ordering::Relaxed) > at || now.abs_diff(at) >= HEARS
    }

    /// Whether writes have enough copies without this node to be answered by their rule, and changes to be decided.
    fn can_spare(&self, layout: &Layout, index: usize) -> bool {
        let others = layout.readable.iter().map(|&replica| &layout.replicas[replica]);
        let whole = others.filter(|replica| !replica.holds(index) && layout.is_whole(replica)).count();
        let copies = layout.copies();
        !layout.counts(index) || whole >= self.rules.ack().of(copies).max(majority(copies))
    }

    /// How fast the other nodes answer: the median of their means. One that has had too few requests for a mean is asked now.
    /// `None`: no other one answers.
    async fn pace_of_others(&self, layout: &Layout, index: usize) -> Option<Duration> {
        let now = self.clock.millis();
        let others =
            layout.nodes.iter().enumerate().filter(|(other, node)| *other != index && !node.health.is_ejected());
        let paces = others.map(|(_, node)| async move {
            match node.pace.last(now) {
                Some(mean) => Some(mean),
                None => self.ask(node).await.ok(),
            }
        });
        let mut paces: Vec<Duration> = join_all(paces).await.into_iter().flatten().collect();
        paces.sort_unstable();
        paces.get(paces.len().saturating_sub(1) / 2).copied()
    }

    /// Asks a node for something that costs it little; how long it took.
    ///
    /// # Errors
    /// When it does not answer. That it refuses, as one that catches up, is an answer.
    pub(crate) async fn ask(&self, node: &Node) -> Result<Duration, StoreError> {
        let key = Key::new(PROBE_KEY, self.seed);
        let asked = Instant::now();
        match steps::finish(steps::read_owned(&*node.store, &Cx::outside(), &key, Op::Peek)).await {
            Err(error) if is_unwell(&error) || is_busy(&error) => Err(error),
            _ => Ok(asked.elapsed()),
        }
    }
}
