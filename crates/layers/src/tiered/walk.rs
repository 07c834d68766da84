//! A walk of both tiers: the lower one first, which has nearly all there is, then of the upper one what the lower has not.
//!
//! That is what the budget withheld, what the lower tier has dropped for want of room, and everything while it is off (a
//! lower tier that is off is to end its walk at once). An upper tier that fails to walk, or cannot at all, has nothing more to
//! show, as for reads. Whether the lower tier has an item is asked without reading a device
//! ([`Op::Holds`]). An item that the lower tier drops between the two parts may be shown twice.
//!
//! In between, each batch begins with the keys that moved since the last one (`moves`): neither part might come to them.
//!
//! What the lower tier shows has its last access and its mark of being fetched from there: hits above are not in it.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_store::steps::{finish, into_pending, start};
use moneta_store::{
    Cursor, Cx, Item, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, Step, Store, StoreError, Unseen, Walked,
    Walking, component,
};
use parking_lot::Mutex;

use super::keep::HEADER_BYTES;
use super::moves::Watch;
use super::promotion::ReadSnapshot;
use super::{Call, Tiered};

/// Keys that moved of which a batch shows no more: each may cost a read of a device.
const MOVED_MAX: usize = 64;
/// How often in a row what was found is looked at again because the key was changed before it was shown. A key that is changed
/// all the time is shown as it was a moment ago, rather than never.
const RETRIES_MAX: u32 = 100;

/// Where a walk of both tiers stands.
struct Walk {
    watch: Watch,
    /// What was found of the keys that moved.
    found: Arc<Mutex<Vec<Found>>>,
    retries: u32,
    stage: Stage,
    cursor: Cursor,
    /// The upper tier has failed to walk on.
    failed: Arc<AtomicBool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Changes that were under way when the walk registered have to end.
    Begun,
    Below,
    Above,
    /// Both tiers were read. Keys that were on their way up meanwhile have to be there.
    Through,
    /// What moved is still to be shown.
    Over,
}

/// An item as it was found.
struct Found {
    key: OwnedKey,
    meta: ItemMeta,
    value_bytes: usize,
    /// When that was.
    snapshot: ReadSnapshot,
}

impl<U: Store + 'static, L: Store + 'static> component::Walk for Tiered<U, L> {
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let since = cursor.oldest();
        let begin = || Walk {
            watch: Watch::new(&self.0.moves),
            found: Arc::default(),
            retries: 0,
            stage: Stage::Begun,
            cursor: Cursor::since(since),
            failed: Arc::default(),
        };
        let mut walk: Box<Walk> = cursor.take().unwrap_or_else(|| Box::new(begin()));
        let walking = Call { shared: &self.0, cx }.walk_on(&mut walk, show);
        if !matches!(walking, Walking::End) {
            cursor.keep(walk);
        }
        walking
    }
}

impl<U: Store + 'static, L: Store + 'static> Call<'_, U, L> {
    fn walk_on(self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if let Some(walking) = self.show_moved(walk, show) {
            return walking;
        }
        match walk.stage {
            Stage::Begun => {
                walk.stage = Stage::Below;
                self.pass_changes()
            }
            Stage::Below => self.walk_below(walk, show),
            Stage::Above => self.walk_above(walk, show),
            Stage::Through => {
                walk.stage = Stage::Over;
                self.pass_changes()
            }
            Stage::Over => Walking::End,
        }
    }

    /// Waits for the end of the changes that are under way.
    fn pass_changes(self) -> Walking {
        let stripes = self.shared.stripes.clone();
        match start(async move {
            stripes.pass_all().await;
            Ok(())
        }) {
            Step::Done(_) => Walking::More,
            Step::Wait(pending) => Walking::Wait(pending),
        }
    }

    /// Shows keys that moved, as they are now. `None`: there are none.
    fn show_moved(self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Option<Walking> {
        self.show_found(walk, show);
        let moved = match walk.watch.take(MOVED_MAX) {
            Ok(moved) if moved.is_empty() => return None,
            Ok(moved) => moved,
            Err(overrun) => return Some(Walking::Wait(Box::pin(ready(Err(overrun))))),
        };
        let (kept, into) = (self.kept(), Arc::clone(&walk.found));
        let look = start(async move {
            let call = kept.call();
            for key in moved {
                // With its lock: a key that is moved up again is in neither tier for a moment.
                let held = call.lock(&key.key()).await;
                let found = call.find_either(&key.key()).await;
                let snapshot = call.shared.snapshot(&key.key(), false);
                held.release_unchanged();
                if let Lookup::Found(Item { meta, value }) = found? {
                    into.lock().push(Found { key, meta, value_bytes: value.len(), snapshot });
                }
            }
            Ok(())
        });
        if !matches!(look, Step::Done(Ok(()))) {
            return Some(Walking::Wait(into_pending(look)));
        }
        self.show_found(walk, show);
        Some(Walking::More)
    }

    /// Shows what was found, but for what may have changed since: that has to be looked at again.
    fn show_found(self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) {
        let now = self.shared.clock.now();
        for Found { key, meta, value_bytes, snapshot } in std::mem::take(&mut *walk.found.lock()) {
            if walk.retries < RETRIES_MAX && !self.shared.still_holds(&key.key(), &snapshot) {
                walk.retries += 1;
                walk.watch.put_back(key);
                continue;
            }
            walk.retries = 0;
            if !meta.expiry.is_dead(now) {
                let key = key.key().bytes;
                show(&Walked { key, meta, value_bytes, size: HEADER_BYTES + key.len() + value_bytes });
            }
        }
    }

    /// The item in either tier.
    async fn find_either(self, key: &Key<'_>) -> Result<Lookup, StoreError> {
        let mut seen = None;
        let step = self.look(key, &mut |item: &ItemRef<'_>| seen = Some(Item::copy(item)));
        let lookup = finish(step).await.map(Outcome::lookup)?;
        Ok(seen.map_or(lookup, Lookup::Found))
    }

    fn walk_below(self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        match walk_part(&self.shared.lower, self.cx, &mut walk.cursor, show) {
            Walking::End => {
                walk.watch.go_above();
                (walk.stage, walk.cursor) = (Stage::Above, Cursor::default());
                Walking::More
            }
            walking => walking,
        }
    }

    fn walk_above(self, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if walk.failed.load(Ordering::Relaxed) {
            self.shared.counters.upper_failures.bump();
            walk.stage = Stage::Through;
            return Walking::More;
        }
        let lower = &self.shared.lower;
        let seed = lower.seed();
        let walking = walk_part(&self.shared.upper, self.cx, &mut walk.cursor, &mut |item| {
            if !lower.call(self.cx, &Key::new(item.key, seed), Op::Holds, &mut Unseen).holds() {
                show(item);
            }
        });
        match walking {
            Walking::More => Walking::More,
            Walking::End => {
                walk.stage = Stage::Through;
                Walking::More
            }
            Walking::Wait(pending) => {
                let failed = Arc::clone(&walk.failed);
                Walking::Wait(Box::pin(async move {
                    failed.store(pending.await.is_err(), Ordering::Relaxed);
                    Ok(())
                }))
            }
        }
    }
}

/// A batch of a tier's walk; one that cannot walk has nothing to show.
fn walk_part(tier: &impl Store, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
    tier.parts().walk.map_or(Walking::End, |part| part.walk(cx, cursor, show))
}
