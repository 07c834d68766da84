//! What the engine itself has to know of a library's configuration.

use std::path::PathBuf;
use std::time::Duration;

use moneta_store::versions::Versioning;

/// What a folder must be to be this engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The engine's name.
    pub engine: &'static str,
    /// Version of what it writes. Folders of a higher one are refused.
    pub format: u32,
    /// Parts by hash of key.
    pub shards: usize,
}

/// What the engine itself has to know of a configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where items lie.
    pub folder: PathBuf,
    /// What the folder must be.
    pub identity: Identity,
    /// Largest value, in bytes.
    pub item_max: usize,
    /// Time between two calls of [`maintain`](crate::Database::maintain).
    pub interval: Duration,
    /// Threads that read for requests.
    pub readers: usize,
    /// How versions are made and kept.
    pub versioning: Versioning,
}
