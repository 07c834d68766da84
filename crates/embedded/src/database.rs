//! What a library has to do to be an engine: keep bytes under keys, in shards that have one writer each.
//!
//! Everything a client can ask for is made of this by [`crate::Embedded`]. A library brings reads from any thread, batches of
//! writes that take effect in one piece, and a bound on its size.

use std::sync::Arc;

use moneta_store::metric::Sample;
use moneta_store::{Health, Key, StoreStats};

use crate::error::{EmbeddedError, Failure};
use crate::record::Header;
use crate::settings::Settings;
use crate::shared::EngineShared;

/// A library that keeps bytes under keys.
pub trait Database: Sized + Send + Sync + 'static {
    /// What it is told at its start.
    type Config;

    /// Writes of one shard that take effect together.
    type Batch<'a>: Batch
    where
        Self: 'a;

    /// What the engine itself has to know of `config`.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    fn settings(config: &Self::Config) -> Result<Settings, EmbeddedError>;

    /// Opens what the folder holds. The folder is this process's own already.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(config: &Self::Config, shared: &Arc<EngineShared>) -> Result<Self, EmbeddedError>;

    /// Begins a batch. Called by the one thread that writes to `shard`.
    ///
    /// # Errors
    /// If the library fails.
    fn begin(&self, shard: usize) -> Result<Self::Batch<'_>, Failure>;

    /// Shows the record under a key, as of the last batch that took effect; false where none is.
    ///
    /// # Errors
    /// If the library fails.
    fn read(&self, shard: usize, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool, Failure>;

    /// Shows keys and records in some fixed order, after the key `after` or from the first, until
    /// `look` returns false.
    ///
    /// # Errors
    /// If the library fails.
    fn scan(
        &self,
        shard: usize,
        after: Option<&[u8]>,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure>;

    /// Makes room after a batch ended in [`Failure::Full`]; false if there is none to be made. Called by the shard's writer, for
    /// one request as often as it takes: so each call has to get further.
    ///
    /// # Errors
    /// If the library fails.
    fn make_room(&self, shard: usize) -> Result<bool, Failure>;

    /// The work of each interval: writes out what has waited in memory, removes expired items.
    ///
    /// # Errors
    /// If the library fails. It is called again after another interval.
    fn maintain(&self) -> Result<(), Failure>;

    /// Brings everything that took effect to where it outlives a kill of the process and, if the library is asked to survive
    /// that, of the machine.
    ///
    /// # Errors
    /// If the library fails.
    fn sync(&self) -> Result<(), Failure>;

    /// Fills in gauges and counters that only the library knows.
    fn stats(&self, stats: &mut StoreStats);

    /// The library's own metrics.
    fn metrics(&self) -> Vec<Sample>;

    /// Adds what is out of the ordinary.
    fn health(&self, health: &mut Health);
}

/// Writes of one shard that take effect together, and reads that see them.
pub trait Batch {
    /// Copies the record under a key to `into`, whatever that held before; false where none is.
    ///
    /// # Errors
    /// If the library fails.
    fn read(&mut self, key: &Key<'_>, into: &mut Vec<u8>) -> Result<bool, Failure>;

    /// Stores a record; `header` is what it begins with.
    ///
    /// # Errors
    /// If there is no room or the library fails. The batch is dropped then.
    fn put(&mut self, key: &Key<'_>, header: &Header, record: &[u8]) -> Result<(), Failure>;

    /// Removes what is under a key, if anything is.
    ///
    /// # Errors
    /// As for [`Batch::put`].
    fn delete(&mut self, key: &Key<'_>) -> Result<(), Failure>;

    /// Lets all of it take effect: every read that begins later sees it.
    ///
    /// # Errors
    /// As for [`Batch::put`].
    fn commit(self) -> Result<(), Failure>;
}
