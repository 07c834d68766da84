//! A walk of both tiers: the lower one first, which has nearly all there is, then of the upper one what the lower has not.
//!
//! That is what the budget withheld, what the lower tier has dropped for want of room, and everything while it is off (a
//! lower tier that is off is to end its walk at once). An upper tier that fails to walk, or cannot at all, has nothing more to
//! show, as for reads. Whether the lower tier has an item is asked without reading a device
//! ([`Tier::holds`]). An item that the lower tier drops between the two parts may be shown twice.
//!
//! What the lower tier shows has its last access and its mark of being fetched from there: hits above are not in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Shared;
use super::counters::bump;
use crate::key::Key;
use crate::store::{Cursor, Tier, Walked, Walking};

/// Where a walk of both tiers stands.
#[derive(Default)]
struct Walk {
    cursor: Cursor,
    above: bool,
    /// The upper tier has failed to walk on.
    failed: Arc<AtomicBool>,
}

impl<U: Tier + 'static, L: Tier + 'static> Shared<U, L> {
    pub(super) fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let mut walk: Box<Walk> = cursor.token.take().and_then(|token| token.downcast().ok()).unwrap_or_default();
        let walking = if walk.above { self.walk_above(&mut walk, show) } else { self.walk_below(&mut walk, show) };
        if !matches!(walking, Walking::End) {
            cursor.token = Some(walk);
        }
        walking
    }

    fn walk_below(&self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        match self.lower.walk(&mut walk.cursor, show) {
            Walking::End => {
                *walk = Walk { above: true, ..Walk::default() };
                Walking::More
            }
            walking => walking,
        }
    }

    fn walk_above(&self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if walk.failed.load(Ordering::Relaxed) {
            bump(&self.counters.upper_failures);
            return Walking::End;
        }
        let seed = self.lower.seed();
        let walking = self.upper.walk(&mut walk.cursor, &mut |item| {
            if !self.lower.holds(&Key::new(item.key, seed)) {
                show(item);
            }
        });
        let Walking::Wait(pending) = walking else { return walking };
        let failed = Arc::clone(&walk.failed);
        Walking::Wait(Box::pin(async move {
            failed.store(pending.await.is_err(), Ordering::Relaxed);
            Ok(())
        }))
    }
}
