//! What a key holds, for readers of the feed.

use moneta_item::{Item, Key, Lookup, Version};

use crate::context::Cx;
use crate::error::StoreError;
use crate::op::Op;
use crate::steps::{finish, look_up};
use crate::store::Store;
use crate::visit::Unseen;

/// What a key holds when its change is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// This item.
    Item(Item),
    /// Nothing: it was deleted under this version, or what it held has expired. Nothing up to this version may be there.
    Buried(Version),
    /// Nothing that could be told: it was evicted, or has no version.
    Unknown,
}

/// Looks up what a key holds, for a reader of the feed that is told of a [`crate::feed::Change::Set`].
///
/// # Errors
/// The store's.
pub async fn held<S: Store>(store: &S, cx: &Cx, key: &[u8]) -> Result<Held, StoreError> {
    let key = Key::new(key, store.seed());
    match look_up(store, cx, &key, Op::Peek).await? {
        Lookup::Found(item) if item.meta.unversioned => Ok(Held::Unknown),
        Lookup::Found(item) => Ok(Held::Item(item)),
        _ => {
            // Behind the look, which takes note of what has expired.
            let buried = finish(store.call(cx, &key, Op::BuriedAs, &mut Unseen)).await?.version();
            Ok(if buried == Version::ZERO { Held::Unknown } else { Held::Buried(buried) })
        }
    }
}
