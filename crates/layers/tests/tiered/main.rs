//! Two tiers as one store: the suite on every kind of pair, and what only two tiers can get wrong.
//!
//! Guards against the silent failures of tiering: an old value brought up over a newer one, a key that one tier has and the
//! other has lost the delete of, a lock that is never released.

mod dynamic;
mod failures;
mod handles;
mod leaky;
mod metrics;
mod policies;
mod races;
mod scripted;
mod slow;
mod suites;
mod together;
mod upper;
mod walks;
