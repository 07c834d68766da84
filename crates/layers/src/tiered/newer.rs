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
use super::counters::bump;

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// [`Put::Newer`], under the key's lock.
    pub(super) async fn put_newer(
        self,
        key: &Key<'_>,
        meta: ItemMeta,
        value: &[u8],
        (how, base): (Put, Option<Version>),
        flushed: bool,
    ) -> Result<Written, StoreError> {
        let written =
            || Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(&meta, [value]) };
        match self.above(key, meta.version(), &written).await {
            Some((Verdict::Newer, above)) if !follows(base, Some(above)) => return Ok(Written::Superseded),
            Some((Verdict::Older, _)) => return Ok(Written::Superseded),
            Some((Verdict::Same, _)) => return Ok(Written::Unchanged { cas: meta.cas }),
            Some((Verdict::Newer, _)) | None => {}
        }
        let item = ItemRef { meta, value: Value::whole(value) };
        if self.shared.moves.is_watched() {
            Box::pin(self.note_move(key)).await;
        }
        // What others wrote is not withheld: its deletes must be remembered below. It counts against the budget.
        let _ = self.shared.admits(key, value.len(), Known::InUse);
        let step = self.shared.lower.call(self.cx, key, Op::Put(&item, how), &mut Unseen);
        let below = self.change_below(key, step).await.map(Outcome::written);
        let answer = match below {
            // What the upper tier has is what the lower one has, or newer.
            Ok(Written::Superseded | Written::NotStored | Written::Unchanged { .. }) => return below,
            Err(error) if error.kind() == ErrorKind::ClockAhead => return Err(error),
            below => finish(self.settle(key, &item, below)).await,
        };
        self.take_back_if_flushed(key, flushed).await?;
        answer
    }

    /// [`Op::Bury`].
    pub(super) fn bury(self, key: &Key<'_>, version: Version) -> Step {
        let (kept, key) = (self.kept(), OwnedKey::of(key));
        start_operation(async move { kept.call().bury_locked(&key.key(), version).await })
    }

    async fn bury_locked(self, key: &Key<'_>, version: Version) -> Result<Deleted, StoreError> {
        let _held = self.lock(key).await;
        let above = self.above(key, version, &|| Standing::Deleted(version)).await;
        if above.is_some_and(|(verdict, _)| verdict == Verdict::Older) {
            return Ok(Deleted::Superseded);
        }
        let step = self.shared.lower.call(self.cx, key, Op::Bury(version), &mut Unseen);
        let below = self.change_below(key, step).await.map(Outcome::deleted);
        if matches!(below, Ok(Deleted::Superseded)) {
            return below;
        }
        if below.as_ref().is_err_and(|error| error.kind() != ErrorKind::ClockAhead) {
            bump(&self.shared.counters.lower_failures);
        }
        let dropped = finish(self.drop_above(key)).await;
        let below = below?;
        Ok(if matches!(dropped, Ok(Deleted::Deleted)) { Deleted::Deleted } else { below })
    }

    /// How a write under a version stands to the item in the upper tier, if that has one, and the version of that. Looks at values only
    /// where both have one version.
    async fn above(
        self,
        key: &Key<'_>,
        version: Version,
        written: &impl Fn() -> Standing,
    ) -> Option<(Verdict, Version)> {
        let compare = |item: &ItemRef<'_>| {
            let there = item.meta.version();
            let verdict = match version.cmp(&there) {
                Ordering::Greater => Verdict::Newer,
                Ordering::Less => Verdict::Older,
                Ordering::Equal => {
                    let digest = digest(&item.meta, [&item.value.to_vec()[..]]);
                    written().against(&Standing::Item { version: there, expiry: item.meta.expiry, digest })
                }
            };
            (verdict, there)
        };
        let mut seen = None;
        let step = self.shared.upper.call(self.cx, key, Op::Peek, &mut |item: &ItemRef<'_>| seen = Some(compare(item)));
        match self.shared.counted(finish(step).await.map(Outcome::lookup)) {
            Ok(Lookup::Found(item)) => Some(compare(&item.as_ref())),
            Ok(Lookup::Visited) => seen,
            _ => None,
        }
    }
}
