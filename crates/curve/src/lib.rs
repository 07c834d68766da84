//! The curve of misses over room: how many gets would miss if a cache were smaller or larger, measured while it serves.
//!
//! | module | what it holds |
//! |---|---|
//! | [`curve`] | misses over items and over bytes |
//! | [`sampler`] | the estimate by sampled keys, in bounded memory: what a node keeps |
//! | `level` | an order of use of sampled keys at one rate, of which the sampler has several |
//! | [`exact`] | the same curve by all keys: for traces |
//! | `histogram` | how much room gets need to be hits |

pub mod curve;
pub mod exact;
mod histogram;
mod level;
pub mod sampler;

pub use curve::{Curve, Room};
pub use exact::Exact;
pub use sampler::{HALF_LIFE, Read, Sampled, Sampler, Served};
