//! Writes by version: the lower tier decides, since it remembers deletes, unless the upper one alone has the key.

use std::cmp::Ordering;

use moneta_store::steps::{finish, start_operation};
use moneta_store::versions::{Standing, Verdict, digest, follows};
use moneta_store::{
    Deleted, ErrorKind, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, Put, Step, Store, StoreError, Unseen,
    Value, Version, Written,
};

use super::Call;
use super::admission::Known;
use crate::stripes::Held;

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// [`Put::Newer`], with the key's lock: without allocation where nothing waits. `how` is that, with its `base`.
    pub(super) fn put_newer_at_once(
        self,
        held: Held<'_>,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        (how, base): (Put, Option<Version>),
    ) -> Step {
        let shared = self.shared;
        let flushed = shared.is_flush_past();
        let mut seen = None;
        let compare = &mut |there: &ItemRef<'_>| seen = Some(standing(item, there));
        let above = match shared.upper.call(self.cx, key, Op::Peek, compare) {
            Step::Done(outcome) => self.judged(item, outcome.map(Outcome::lookup), seen),
            Step::Wait(pending) => {
                let (kept, key, meta, value, held) =
                    (self.kept(), OwnedKey::of(key), item.meta, item.value.to_vec(), held.keep());
                return start_operation(async move {
                    let _held = held;
                    let (call, item) = (kept.call(), ItemRef { meta, value: Value::whole(&value) });
                    let above = call.judged(&item, pending.await.map(Outcome::lookup), None);
                    call.put_newer_than(&key.key(), &item, (how, base), flushed, above).await
                });
            }
        };
        if let Some(written) = refused(&item.meta, base, above) {
            held.release_unchanged();
            return Step::ended(written);
        }
        // What others wrote is not withheld: its deletes must be remembered below. It counts against the budget.
        let _ = shared.admits(key, item.value.len(), Known::InUse);
        let above = match shared.lower.call(self.cx, key, Op::Put(item, how), &mut Unseen) {
            Step::Done(below) => match self.settle_newer(key, item, below.map(Outcome::written)) {
                Step::Done(written) if shared.is_flush_past() == flushed || changed_nothing(&written) => {
                    return Step::Done(written.map(Outcome::Written));
                }
                above => above,
            },
            Step::Wait(pending) => {
                let (kept, key, meta, value, held) =
                    (self.kept(), OwnedKey::of(key), item.meta, item.value.to_vec(), held.keep());
                return start_operation(async move {
                    let _held = held;
                    let (call, key, item) = (kept.call(), key.key(), ItemRef { meta, value: Value::whole(&value) });
                    let below = call.change_below(&key, Step::Wait(pending)).await.map(Outcome::written);
                    call.end_newer(&key, &item, below, flushed).await
                });
            }
        };
        let (kept, key, held) = (self.kept(), OwnedKey::of(key), held.keep());
        start_operation(async move {
            let _held = held;
            let written = finish(above).await;
            kept.call().take_back_if_flushed(&key.key(), flushed).await?;
            written
        })
    }

    /// [`Put::Newer`], under the key's lock.
    pub(super) async fn put_newer(
        self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        how: (Put, Option<Version>),
        flushed: bool,
    ) -> Result<Written, StoreError> {
        let mut seen = None;
        let compare = &mut |there: &ItemRef<'_>| seen = Some(standing(item, there));
        let step = self.shared.upper.call(self.cx, key, Op::Peek, compare);
        let above = finish(step).await.map(Outcome::lookup);
        let above = self.judged(item, above, seen);
        self.put_newer_than(key, item, how, flushed, above).await
    }

    /// The same, given what the upper tier has.
    async fn put_newer_than(
        self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        (how, base): (Put, Option<Version>),
        flushed: bool,
        above: Option<(Verdict, Version)>,
    ) -> Result<Written, StoreError> {
        if let Some(written) = refused(&item.meta, base, above) {
            return Ok(written);
        }
        if self.shared.moves.is_watched() {
            Box::pin(self.note_move(key)).await;
        }
        let _ = self.shared.admits(key, item.value.len(), Known::InUse);
        let step = self.shared.lower.call(self.cx, key, Op::Put(item, how), &mut Unseen);
        let below = self.change_below(key, step).await.map(Outcome::written);
        self.end_newer(key, item, below, flushed).await
    }

    /// Does in the upper tier what follows from the lower one's answer.
    fn settle_newer(self, key: &Key<'_>, item: &ItemRef<'_>, below: Result<Written, StoreError>) -> Step<Written> {
        if changed_nothing(&below) { Step::Done(below) } else { self.settle(key, item, below) }
    }

    /// The same, and what follows from a flush meanwhile.
    async fn end_newer(
        self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        below: Result<Written, StoreError>,
        flushed: bool,
    ) -> Result<Written, StoreError> {
        if changed_nothing(&below) {
            return below;
        }
        let written = finish(self.settle(key, item, below)).await;
        self.take_back_if_flushed(key, flushed).await?;
        written
    }

    /// How a write stands to what the upper tier has, if that has the key. `seen`: as a visit found it.
    fn judged(
        self,
        item: &ItemRef<'_>,
        above: Result<Lookup, StoreError>,
        seen: Option<(Verdict, Version)>,
    ) -> Option<(Verdict, Version)> {
        match self.shared.counted(above) {
            Ok(Lookup::Found(there)) => Some(standing(item, &there.as_ref())),
            Ok(Lookup::Visited) => seen,
            _ => None,
        }
    }

    /// [`Op::Bury`].
    pub(super) fn bury(self, key: &Key<'_>, version: Version) -> Step {
        let (kept, key) = (self.kept(), OwnedKey::of(key));
        start_operation(async move { kept.call().bury_locked(&key.key(), version).await })
    }

    async fn bury_locked(self, key: &Key<'_>, version: Version) -> Result<Deleted, StoreError> {
        let _held = self.lock(key).await;
        let mut seen = None;
        let compare = &mut |there: &ItemRef<'_>| seen = Some(against(version, there, || Standing::Deleted(version)));
        let step = self.shared.upper.call(self.cx, key, Op::Peek, compare);
        let above = match self.shared.counted(finish(step).await.map(Outcome::lookup)) {
            Ok(Lookup::Found(there)) => Some(against(version, &there.as_ref(), || Standing::Deleted(version))),
            Ok(Lookup::Visited) => seen,
            _ => None,
        };
        if let Some((Verdict::Older, by)) = above {
            return Ok(Deleted::Superseded { by });
        }
        let step = self.shared.lower.call(self.cx, key, Op::Bury(version), &mut Unseen);
        let below = self.change_below(key, step).await.map(Outcome::deleted);
        if matches!(below, Ok(Deleted::Superseded { .. })) {
            return below;
        }
        if below.as_ref().is_err_and(|error| error.kind() != ErrorKind::ClockAhead) {
            self.shared.counters.lower_failures.bump();
        }
        let dropped = finish(self.drop_above(key)).await;
        let below = below?;
        Ok(if matches!(dropped, Ok(Deleted::Deleted)) { Deleted::Deleted } else { below })
    }
}

/// How a write under a version stands to an item, and the version of that. Looks at values only where both have one version.
fn against(version: Version, there: &ItemRef<'_>, written: impl FnOnce() -> Standing) -> (Verdict, Version) {
    let found = there.meta.version();
    let verdict = match version.cmp(&found) {
        Ordering::Greater => Verdict::Newer,
        Ordering::Less => Verdict::Older,
        Ordering::Equal => {
            let digest = digest(&there.meta, [&there.value.to_vec()[..]]);
            written().against(&Standing::Item { version: found, expiry: there.meta.expiry, digest })
        }
    };
    (verdict, found)
}

/// The same for an item that is written.
fn standing(item: &ItemRef<'_>, there: &ItemRef<'_>) -> (Verdict, Version) {
    let meta = &item.meta;
    against(meta.version(), there, || Standing::Item {
        version: meta.version(),
        expiry: meta.expiry,
        digest: digest(meta, [&item.value.to_vec()[..]]),
    })
}

/// What ends a write that is not newer than what the upper tier has, or does not follow it.
fn refused(meta: &ItemMeta, base: Option<Version>, above: Option<(Verdict, Version)>) -> Option<Written> {
    match above? {
        (Verdict::Newer, above) if !follows(base, Some(above)) => Some(Written::Superseded { by: above }),
        (Verdict::Older, by) => Some(Written::Superseded { by }),
        (Verdict::Same, _) => Some(Written::Unchanged { cas: meta.cas }),
        (Verdict::Newer, _) => None,
    }
}

/// Whether a write has left the lower tier as it was: what the upper one has is what that has, or newer.
fn changed_nothing(below: &Result<Written, StoreError>) -> bool {
    match below {
        Ok(written) => matches!(written, Written::Superseded { .. } | Written::NotStored | Written::Unchanged { .. }),
        Err(error) => error.kind() == ErrorKind::ClockAhead,
    }
}
