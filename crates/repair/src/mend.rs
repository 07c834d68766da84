//! What is done about a key that differs.
//!
//! Where both sides have it, what is right is written to the other one, if that has nothing newer by now; it creates nothing, so a
//! side that evicts the key meanwhile stays without it. Where one side alone has it, the other one is asked whether it remembers a
//! delete: by a write that creates nothing, under the version of that item.

use moneta_store::steps::finish;
use moneta_store::{
    Cx, Expiry, Item, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, Policy, Put, Store, StoreError, Unseen, Value,
    Version, Written,
};

use crate::compare::{Difference, Differs, Right};
use crate::report::Cause;
use crate::side::Side;

/// A moment that is before all that nodes remember: what was current then replaces what is older, and creates nothing.
const LONG_AGO: u64 = 1;

/// How a repair writes.
#[derive(Clone, Copy, Debug)]
pub struct Mending {
    /// Nothing is written.
    pub only_looks: bool,
    /// The newest flush on A, and on B.
    pub floors: [Version; 2],
    /// Items of a backup's rollback are newer than what is on the other side; otherwise a rollback is its side's own, as a flush.
    pub takes_rollbacks: bool,
    /// All times are looked at, so that a side that lists nothing of a key has nothing older of it.
    pub is_full: bool,
}

impl Mending {
    /// Whether an item with this version is its side's own.
    fn leaves(&self, version: Version) -> bool {
        !self.takes_rollbacks && version.is_of_rollback()
    }
}

/// What became of a key, the bytes that were copied, and whether A was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mended {
    /// What became of it.
    pub cause: Cause,
    /// Bytes of key and value.
    pub bytes: u64,
    /// What was written was written to A.
    pub is_to_a: bool,
}

/// Repairs a key.
pub async fn mend(a: &Side, b: &Side, difference: &Difference, mending: Mending) -> Mended {
    let (from, to, floor) = match difference.right {
        Right::A => (a, b, mending.floors[1]),
        Right::B => (b, a, mending.floors[0]),
    };
    let is_to_a = difference.right == Right::B;
    let cause = match difference.differs {
        Differs::Version if mending.leaves(difference.item.version) => {
            return Mended { cause: Cause::Flushed, bytes: 0, is_to_a };
        }
        Differs::Version => Cause::Older,
        Differs::Life => Cause::Life,
        Differs::Alone => return alone(from, to, difference, (floor, mending, is_to_a)).await,
    };
    if mending.only_looks {
        return Mended { cause, bytes: 0, is_to_a };
    }
    copy(from, to, &difference.key, cause, is_to_a).await
}

/// A key that one side alone has.
async fn alone(
    from: &Side,
    to: &Side,
    difference: &Difference,
    (floor, mending, is_to_a): (Version, Mending, bool),
) -> Mended {
    let ended = |cause, is_to_a| Mended { cause, bytes: 0, is_to_a };
    let key = &difference.key[..];
    let version = difference.item.version;
    if version <= floor {
        return ended(Cause::Flushed, is_to_a);
    }
    // Where something older may be there, no more than the item itself may take its place.
    if !mending.is_full || mending.only_looks {
        match held(&to.node(key).store, key).await {
            Err(_) => return ended(Cause::Failed, is_to_a),
            Ok(Some(there)) if there.meta.version() >= version => return ended(Cause::Changed, is_to_a),
            Ok(Some(_)) if mending.leaves(version) => return ended(Cause::Flushed, is_to_a),
            Ok(Some(_)) if mending.only_looks => return ended(Cause::Older, is_to_a),
            Ok(Some(_)) => return copy(from, to, key, Cause::Older, is_to_a).await,
            Ok(None) => {}
        }
    }
    match remembers(&to.node(key).store, key, version).await {
        Err(_) => ended(Cause::Failed, is_to_a),
        Ok(Written::Superseded { by }) if by <= floor => ended(Cause::Flushed, is_to_a),
        Ok(Written::Superseded { by }) => match held(&to.node(key).store, key).await {
            Err(_) => ended(Cause::Failed, is_to_a),
            // It was written there meanwhile.
            Ok(Some(_)) => ended(Cause::Changed, is_to_a),
            Ok(None) if mending.only_looks => ended(Cause::Deleted, !is_to_a),
            Ok(None) => {
                let by = by.max(version);
                let buried = call(from.target(key), key, Op::Bury(by)).await;
                ended(if buried.is_ok() { Cause::Deleted } else { Cause::Failed }, !is_to_a)
            }
        },
        Ok(Written::NotStored) => ended(Cause::Evicted, is_to_a),
        Ok(Written::Stored { .. }) if mending.leaves(version) => ended(Cause::Flushed, is_to_a),
        Ok(Written::Stored { .. }) => copy(from, to, key, Cause::Older, is_to_a).await,
        Ok(_) => ended(Cause::Changed, is_to_a),
    }
}

/// Copies what a side has to the other one.
async fn copy(from: &Side, to: &Side, key: &[u8], cause: Cause, is_to_a: bool) -> Mended {
    let ended = |cause| Mended { cause, bytes: 0, is_to_a };
    let item = match held(&from.node(key).store, key).await {
        Err(_) => return ended(Cause::Failed),
        Ok(None) => return ended(Cause::Changed),
        Ok(Some(item)) => item,
    };
    let bytes = (key.len() + item.value.len()) as u64;
    let put = Put::Newer { as_of: LONG_AGO, base: None };
    match call(to.target(key), key, Op::Put(&item.as_ref(), put)).await.map(Outcome::written) {
        Err(_) => ended(Cause::Failed),
        Ok(Written::Stored { .. } | Written::Unchanged { .. }) => Mended { cause, bytes, is_to_a },
        // It was evicted meanwhile, or something newer came.
        Ok(Written::NotStored) => ended(Cause::Evicted),
        Ok(Written::TooLarge | Written::OutOfMemory) => ended(Cause::Refused),
        Ok(_) => ended(Cause::Changed),
    }
}

/// What a node makes of an item of this version that is dead from its start, and would create nothing: whether it knows of
/// something newer.
async fn remembers(store: &std::sync::Arc<dyn Store>, key: &[u8], version: Version) -> Result<Written, StoreError> {
    let meta = ItemMeta { cas: version.0, expiry: Expiry(1), ..ItemMeta::default() };
    let item = ItemRef { meta, value: Value::whole(&[]) };
    let put = Put::Newer { as_of: LONG_AGO, base: None };
    call(store, key, Op::Put(&item, put)).await.map(Outcome::written)
}

async fn held(store: &std::sync::Arc<dyn Store>, key: &[u8]) -> Result<Option<Item>, StoreError> {
    Ok(match call(store, key, Op::Peek).await?.lookup() {
        Lookup::Found(item) => Some(item),
        _ => None,
    })
}

async fn call(store: &std::sync::Arc<dyn Store>, key: &[u8], op: Op<'_>) -> Result<Outcome, StoreError> {
    let cx = Cx::outside().under(Policy::Batch);
    finish(store.call(&cx, &Key::new(key, store.seed()), op, &mut Unseen)).await
}
