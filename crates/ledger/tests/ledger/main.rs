//! What ledgers promise, on each backend, and what stands on a ledger.

mod backup;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod figures;
mod suite;
