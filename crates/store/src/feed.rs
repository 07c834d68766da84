//! What a store tells of its changes, for replication, catching up and capture.

use std::pin::Pin;
use std::sync::Arc;

use moneta_item::{Item, Key, Lookup, Version};

use crate::context::Cx;
use crate::error::StoreError;
use crate::op::Op;
use crate::steps::{finish, look_up};
use crate::store::{Store, Unseen};
use crate::versions::Floor;

/// Tells of the changes of a store, in about the order in which they happened.
pub trait Feed: Send + Sync {
    /// Where the feed ends now: what comes behind this happens from now on.
    fn end(&self) -> Place;

    /// Where the changes since a moment begin, in milliseconds since the Unix epoch, by this store's clock.
    fn since(&self, millis: u64) -> Place;

    /// Up to `limit` changes from a place on.
    fn read(&self, from: Place, limit: usize) -> Batch;

    /// Ends when there are changes from a place on.
    fn changed(&self, from: Place) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A place in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the feed: another after each start of the process.
    pub incarnation: u64,
    /// Changes before it.
    pub position: u64,
}

/// Changes that follow each other.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Changes are missing before the first: those since this moment at the latest, in milliseconds since the Unix epoch.
    pub gap: Option<u64>,
    /// The changes.
    pub changes: Vec<Change>,
    /// Where to read on.
    pub next: Place,
    /// Everything that the feed was told until then is before [`Batch::next`], in milliseconds since the Unix epoch.
    pub watermark: u64,
}

/// One change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key was given a value, or another life, or was marked. What it holds by now is for the reader to look up: this
    /// change, or a newer one.
    Set(Arc<[u8]>),
    /// The key was deleted under this version, whether it was there or not.
    Deleted(Arc<[u8]>, Version),
    /// The store was flushed.
    Flushed(Floor),
}

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

/// Looks up what a key holds, for a reader of the feed that is told of a [`Change::Set`].
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
