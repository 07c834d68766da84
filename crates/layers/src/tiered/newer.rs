//! Writes by version: the lower tier decides, since it remembers deletes, unless the upper one alone has the key.

use moneta_store::steps::{finish, look_up, start_operation};
use moneta_store::versions::{Standing, Verdict, digest, follows};
use moneta_store::{
    Deleted, ErrorKind, Item, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, Put, Step, Store, StoreError,
    Unseen, Value, Version, Written,
};

use super::Call;
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
        let written = Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(&meta, [value]) };
        let above = self.above(key).await;
        match above.as_ref().map(|above| written.against(&standing(above))) {
            Some(Verdict::Newer) if !follows(base, above.map(|above| above.meta.version())) => {
                return Ok(Written::Superseded);
            }
            Some(Verdict::Older) => return Ok(Written::Superseded),
            Some(Verdict::Same) => return Ok(Written::Unchanged { cas: meta.cas }),
            Some(Verdict::Newer) | None => {}
        }
        let item = ItemRef { meta, value: Value::whole(value) };
        if self.shared.moves.is_watched() {
            Box::pin(self.note_move(key)).await;
        }
        // What others wrote is not withheld: its deletes must be remembered below. It counts against the budget.
        let _ = self.shared.admits(key, value.len());
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
        let above = self.above(key).await;
        if above.as_ref().is_some_and(|above| Standing::Deleted(version).against(&standing(above)) == Verdict::Older) {
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

    /// The item in the upper tier, if that has one.
    async fn above(self, key: &Key<'_>) -> Option<Item> {
        match self.shared.counted(look_up(&self.shared.upper, self.cx, key, Op::Peek).await) {
            Ok(Lookup::Found(item)) => Some(item),
            _ => None,
        }
    }
}

fn standing(item: &Item) -> Standing {
    Standing::Item {
        version: item.meta.version(),
        expiry: item.meta.expiry,
        digest: digest(&item.meta, [item.value.as_slice()]),
    }
}
