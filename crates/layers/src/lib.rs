//! Layers: stores that stand on other stores, and know no engine.
//!
//! [`Tiered`] makes one store of two, such as RAM over SSD. [`Chunked`] keeps items on a server that can only get, set and
//! delete values up to some size.

mod chunked;
pub mod feed;
mod stripes;
mod tiered;

pub use chunked::{Chunked, ChunkedConfig};
pub use tiered::{Promotion, TierStats, Tiered, TieredConfig};

/// The declarations of the layers' metrics.
pub fn metrics() -> impl Iterator<Item = moneta_store::metric::Metric> {
    tiered::metrics().chain(chunked::metrics())
}
