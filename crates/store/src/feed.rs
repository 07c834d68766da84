//! What a store tells of its changes, for replication, catching up and capture.

use std::pin::Pin;
use std::sync::Arc;

use moneta_item::Version;

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
