//! How far the check of a node's keys in doubt is: a pass goes through all keys of the node.

use std::collections::VecDeque;
use std::sync::Arc;

use moneta_store::{Cursor, Cx, ErrorKind, Store, StoreError, Version, Walking};

use crate::compared::Compared;
use crate::hints::{Doubt, place};

/// How long a node is left alone where keys stayed in doubt or it did not list them, in milliseconds; doubles each time, up to
/// this.
const AGAIN: u64 = 2_000;
const AGAIN_MAX: u64 = 300_000;

/// How far the check of a node is.
#[derive(Default)]
pub(crate) struct Sweep {
    pub(crate) pass: Option<Pass>,
    /// When the next one may begin, in milliseconds since the Unix epoch; and the pause after that.
    next_at: u64,
    pause: u64,
    /// Why the last round could not list the node's keys, or not compare them.
    pub(crate) failure: Option<Arc<str>>,
}

/// One way through the keys of a node.
pub(crate) struct Pass {
    /// What was in doubt when it began.
    pub(crate) checked: Doubt,
    /// Buckets with keys that could not be decided.
    pub(crate) open: Vec<bool>,
    /// Buckets in doubt for writes that may have been on their way to the other copies when it began: these showed what was
    /// before.
    young: Vec<bool>,
    cursor: Cursor,
    /// Keys in doubt and the versions that the node has.
    pub(crate) found: VecDeque<(Box<[u8]>, Version)>,
    pub(crate) has_listed_all: bool,
}

impl Sweep {
    /// Whether the next pass is not to begin yet at `now`.
    pub(crate) fn waits(&self, now: u64) -> bool {
        // Much later than that only where the clock has gone back.
        self.next_at > now && self.next_at - now <= AGAIN_MAX
    }

    /// Copies answer that did not: what could not be decided may be by now.
    pub(crate) fn begin_again(&mut self) {
        (self.next_at, self.pause) = (0, 0);
    }

    /// A pass has ended at `now`.
    pub(crate) fn rest(&mut self, now: u64, is_open: bool) {
        self.pause = if is_open { (self.pause * 2).clamp(AGAIN, AGAIN_MAX) } else { 0 };
        self.next_at = now + self.pause.max(AGAIN);
    }
}

impl Pass {
    /// Writes that were stamped before `settled`, in milliseconds since the Unix epoch, are under way no more.
    pub(crate) fn begin(checked: Doubt, settled: u64) -> Self {
        let (open, cursor, found) = (Doubt::flags(), Cursor::default(), VecDeque::new());
        let mut young = Doubt::flags();
        for (bucket, version) in checked.marks() {
            young[bucket as usize] = version.millis() >= settled;
        }
        Self { checked, open, young, cursor, found, has_listed_all: false }
    }

    /// Whether the node was asked for keys.
    pub(crate) fn has_begun(&self) -> bool {
        self.cursor.is_under_way() || self.has_listed_all
    }

    /// Buckets that stay in doubt at its end.
    pub(crate) fn keeps(&self) -> Vec<bool> {
        self.open.iter().zip(&self.young).map(|(open, young)| *open || *young).collect()
    }

    /// Has the node list some of its keys, and takes those in doubt; how many it listed.
    pub(crate) fn list(
        &mut self,
        store: &Arc<dyn Store>,
        compared: &Compared<'_>,
    ) -> Result<(usize, Walking), StoreError> {
        let lists = store.parts().walk;
        let lists = lists.ok_or_else(|| StoreError::new(ErrorKind::Unsupported, "the node does not list its keys"))?;
        let (checked, found) = (&self.checked, &mut self.found);
        let mut listed = 0;
        let walking = lists.walk(&Cx::outside(), &mut self.cursor, &mut |item| {
            listed += 1;
            let version = item.meta.version();
            if checked.version(place(item.key)) > version && compared.has(item.key) {
                found.push_back((item.key.into(), version));
            }
        });
        Ok((listed, walking))
    }
}
