//! Settles changes of which the home has not said whether it stored the result, since it failed just then.
//!
//! The other copies are known to lack the result, so none of them is believed until the home answers again. Where the home stays
//! away, the change is settled among the others, as soon as more than half of all copies answer: it has not taken place. Not
//! before the home is given up, since that decides on changes as long as it is asked.

use std::sync::Arc;

use moneta_store::{Cx, OwnedKey};

use crate::call::Call;
use crate::cluster::Cluster;
use crate::config::majority;
use crate::hints::Missed;
use crate::layout::Layout;
use crate::own::Own;
use crate::shared::ClusterShared;
use crate::unknown::Unknown;

/// How many are kept. The keys of others can be read again once the home is back.
const KEPT: usize = 16 << 10;
/// How many are settled in a round of maintenance.
const AT_ONCE: usize = 256;

impl Call {
    /// Takes note of a change that has failed, if it was the home that did not tell of the result.
    pub(crate) fn note_unknown(&self, key: OwnedKey, own: Own) {
        let Some(home) = own.unknown else { return };
        let mut unknowns = self.shared.unknowns.0.lock();
        if unknowns.len() < KEPT {
            unknowns.push_back(Unknown { key, home: self.node(home).name.clone(), own });
        }
    }

    /// Whether another copy is still known to lack the result.
    fn is_open(&self, unknown: &Unknown) -> bool {
        let newest = unknown.own.left.iter().max();
        self.homes(&unknown.key.key()).into_iter().filter(|node| Some(*node) != unknown.own.unknown).any(|node| {
            let missed = self.node(node).hints.of_key(unknown.key.key().bytes);
            missed.is_some_and(|missed| Some(&missed.version) <= newest)
        })
    }
}

impl Cluster {
    /// Settles, once, changes whose home is away, for callers that have no thread for it.
    pub async fn settle(&self) {
        settle(self.shared()).await;
    }
}

/// Settles changes whose home is away.
pub(crate) async fn settle(shared: &Arc<ClusterShared>) {
    let count = shared.unknowns.0.lock().len();
    for _ in 0..count.min(AT_ONCE) {
        let Some(mut unknown) = shared.unknowns.0.lock().pop_front() else { return };
        let call = Call::new(shared, &Cx::outside());
        let nodes = &call.layout().nodes;
        unknown.own.unknown = nodes.iter().position(|node| node.name == unknown.home);
        let Some(home) = unknown.own.unknown.filter(|_| call.is_open(&unknown)) else { continue };
        if nodes[home].health.is_ejected() {
            call.settle(&unknown.key, &mut unknown.own).await;
        }
        if call.is_open(&unknown) {
            shared.unknowns.0.lock().push_back(unknown);
        }
    }
}

impl ClusterShared {
    /// Settles a write that all copies that answer lack, and that only a copy which is away may have: of a process before this
    /// one, or a set that failed. Only where no such write was acknowledged: as more than half of all copies lack it.
    pub(crate) async fn settle_lost(self: &Arc<Self>, layout: &Layout, key: &OwnedKey, missed: Missed) {
        let (copies, under_way) = (layout.copies(), self.rules.under_way());
        let is_over = missed.at.saturating_add(under_way) < self.clock.millis();
        if !is_over || self.config.ack.of(copies) < majority(copies) {
            return;
        }
        let mut own = Own::default();
        for replica in layout.replicas.iter().filter(|replica| !replica.write_only) {
            let number = replica.node_of(key.key().bytes);
            let node = &layout.nodes[number];
            match node.hints.of_key(key.key().bytes) {
                _ if node.health.is_ejected() => own.unknown = Some(number),
                Some(lacks) if lacks.version >= missed.version => own.left.push(lacks.version),
                // It has it, or is given it by another process.
                _ => return,
            }
        }
        if own.unknown.is_some() && own.left.len() >= majority(copies) {
            Call::new(self, &Cx::outside()).settle(key, &mut own).await;
        }
    }
}
