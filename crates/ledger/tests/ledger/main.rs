//! What ledgers promise, on each backend, and what stands on a ledger.

mod embedded;
mod image;
mod suite;
