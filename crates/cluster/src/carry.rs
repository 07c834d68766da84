//! Gives the writes that went to the nodes of a replaced topology to those of the newer one ([`crate::overlap`]).

use std::sync::Arc;

use moneta_store::{Key, OwnedKey, Version};

use crate::hints::{Doubt, Missed};
use crate::layout::{Layout, Replica};
use crate::maintenance::Delivery;
use crate::overlap::Left;
use crate::shared::ClusterShared;

/// Writes that are given at once.
const AT_ONCE: usize = 32;

impl ClusterShared {
    /// Gives up to `count` writes to the nodes that hold their keys by now.
    pub(crate) async fn carry_over(&self, layout: &Layout, count: usize) {
        let now = self.clock.millis();
        let Some(Left { old, writes, has_overflowed }) = self.overlap.take(count, now) else { return };
        if has_overflowed {
            let doubt = Doubt::of_all(Version::at(now));
            let new = layout.nodes.iter().filter(|node| !old.nodes.iter().any(|before| Arc::ptr_eq(before, node)));
            new.for_each(|node| node.hints.add_doubt(&doubt));
            tracing::warn!(
                app = self.config.app,
                "more was written by the topology of before than is kept: new nodes are in doubt"
            );
        }
        for some in writes.chunks(AT_ONCE) {
            let all = some.iter().map(|(key, missed)| self.carry(&old, layout, key, *missed));
            futures_util::future::join_all(all).await;
        }
    }

    /// Gives a write to the nodes that hold its key by now and did not before. What they do not take is a hint.
    async fn carry(&self, old: &Layout, layout: &Layout, key: &[u8], missed: Missed) {
        let before = |replica: &Replica| &old.nodes[replica.node_of(key)];
        let takes = layout.replicas.iter().map(|replica| &layout.nodes[replica.node_of(key)]);
        let takes = takes.filter(|node| !old.replicas.iter().any(|replica| Arc::ptr_eq(before(replica), node)));
        let takes: Vec<_> = takes.collect();
        if takes.is_empty() {
            return;
        }
        let asked = self.clock.millis();
        let owned = OwnedKey::of(&Key::new(key, self.seed));
        let found = self.newest(old, usize::MAX, key, missed).await;
        for node in takes {
            let given = match &found {
                Ok(found) => self.give(node, &owned, found.clone(), missed, asked).await,
                Err(()) => Delivery::NotYet,
            };
            if given != Delivery::Done {
                node.hints.note(key, missed);
            }
        }
        self.counters.carried_over.add(1);
    }
}
