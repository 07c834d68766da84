//! Engine: RocksDB, sharded by hash of key. For those who want what RocksDB has: compression, levels, its tools and its fame.
//!
//! Everything a client can ask for is [`moneta_embedded`]'s; here is what RocksDB is told, how its size is bounded, what its
//! compaction leaves out, and what it says of itself. It has no observers: files are removed whole, without reading what was in
//! them.

mod batch;
mod config;
mod database;
mod filter;
mod metrics;
mod options;
mod shard;
mod shards;

pub use batch::RocksBatch;
pub use config::{Compaction, Compression, Filter, Log, RocksConfig};
pub use metrics::metrics;
pub use moneta_embedded::EmbeddedError as RocksError;
pub use shards::RocksDatabase;

/// The engine on RocksDB. `Rocks::open` opens or makes a folder.
pub type Rocks = moneta_embedded::Embedded<RocksDatabase>;
