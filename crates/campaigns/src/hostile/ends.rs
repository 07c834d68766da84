//! When a part of an attack is over, and what a server that answers wrongly ends it with.

use std::time::Instant;

use moneta_bench::address::{Address, Subject};
use moneta_bench::interrupt;
use moneta_bench::{BenchError, Result};

/// Whether a deadline has passed, for loops that also look at interrupts.
pub(super) fn is_past(until: Instant) -> Result<bool> {
    interrupt::check()?;
    Ok(Instant::now() >= until)
}

/// A reply that is not the one expected.
pub(super) fn unexpected(address: &Address, reply: &[u8]) -> BenchError {
    address.violated(format!("the good client got {:?}", String::from_utf8_lossy(reply)))
}
