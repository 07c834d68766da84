//! Engine: LMDB, a file of a bounded size in a memory map, written by one thread and read by many without locks. For sets that
//! fit the page cache, are read far more than written, and should be there at once after a restart.
//!
//! Everything a client can ask for is [`moneta_embedded`]'s; here is how an item lies in LMDB, how room is made before there is
//! none, how expired items go, and when the file is synced.

mod batch;
mod config;
mod database;
mod environment;
mod metrics;
mod room;
mod tables;

pub use batch::LmdbBatch;
pub use config::{Durability, LmdbConfig};
pub use environment::LmdbDatabase;
pub use metrics::metrics;
pub use moneta_embedded::EmbeddedError as LmdbError;

/// The engine on LMDB. `Lmdb::open` opens or makes a folder.
pub type Lmdb = moneta_embedded::Embedded<LmdbDatabase>;
