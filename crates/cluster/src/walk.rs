//! A walk of an app's items: the nodes of one copy, one after the other.
//!
//! The copy is the first in the order of reads whose nodes are all asked: the near one, as a rule. A key is shown by the node
//! that its ring names: what an earlier topology left on another node no reader finds.

use std::future::ready;
use std::sync::Arc;

use moneta_store::component;
use moneta_store::{Cursor, Cx, ErrorKind, StoreError, Walked, Walking};

use crate::cluster::Cluster;
use crate::layout::{Layout, Replica};

/// Where a walk stands.
struct Walk {
    /// The nodes and rings it began with.
    layout: Arc<Layout>,
    /// The copy, as a place in [`Layout::replicas`].
    copy: usize,
    /// The node whose items are shown, as a place among the copy's.
    node: usize,
    on_node: Cursor,
}

impl Walk {
    fn begin(layout: Arc<Layout>) -> Result<Self, StoreError> {
        let whole = layout.readable.iter().copied().find(|&copy| layout.is_whole(&layout.replicas[copy]));
        let copy = whole.ok_or_else(|| unavailable("no copy has all its nodes: keys cannot be listed"))?;
        Ok(Self { layout, copy, node: 0, on_node: Cursor::default() })
    }

    fn copy(&self) -> &Replica {
        &self.layout.replicas[self.copy]
    }
}

impl component::Walk for Cluster {
    /// Fails where the topology changes meanwhile: keys may have moved to nodes that were walked before.
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let layout = self.shared().layout();
        let begun = match cursor.take() {
            Some(walk) => Ok(walk),
            None => Walk::begin(Arc::clone(&layout)).map(Box::new),
        };
        let mut walk: Box<Walk> = match begun {
            Ok(walk) => walk,
            Err(error) => return fail(error),
        };
        if walk.layout.generation != layout.generation {
            return fail(unavailable("the topology changed while keys were listed: list them again"));
        }
        let place = walk.copy().first + walk.node;
        let node = Arc::clone(&walk.layout.nodes[place]);
        let parts = node.store.parts();
        let Some(part) = parts.walk else {
            let refusal = format!("the node {} cannot list its keys", node.name);
            return fail(StoreError::new(ErrorKind::Unsupported, refusal));
        };
        let Walk { layout, copy, on_node, .. } = &mut *walk;
        let copy = &layout.replicas[*copy];
        let mut filter = |item: &Walked<'_>| {
            if copy.node_of(item.key) == place {
                show(item);
            }
        };
        let walking = match part.walk(cx, on_node, &mut filter) {
            Walking::End if walk.node + 1 == walk.copy().count => return Walking::End,
            Walking::End => {
                walk.node += 1;
                walk.on_node = Cursor::default();
                Walking::More
            }
            other => other,
        };
        cursor.keep(walk);
        walking
    }
}

/// A walk that ends with an error.
pub(crate) fn fail(error: StoreError) -> Walking {
    Walking::Wait(Box::pin(ready(Err(error))))
}

fn unavailable(why: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, why)
}
