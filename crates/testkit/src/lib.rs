//! What tests of stores need: a specification that runs, a suite that compares any store with it, and layers that differ from
//! what they wrap.
//!
//! [`store_conformance!`] makes the tests of a new store in one line; [`suite`] has the rest. `process` (feature `process`) starts
//! and ends what runs beside a test.

pub mod doubles;
#[cfg(feature = "feed")]
pub mod feed;
pub mod model;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "rights")]
pub mod rights;
pub mod suite;
