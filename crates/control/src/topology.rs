//! Topologies: which slots an app's replicas have, and who holds them. A document has an epoch and is changed by values.

mod change;
mod document;
#[cfg(test)]
mod tests;

pub use change::{Change, Found, Order};
pub use document::{Document, Replica, Slot};
