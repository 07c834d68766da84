//! Items as entries of another store: the suite on every way to cut them, and what only a store in parts can get wrong.
//!
//! Guards against the silent failures of such a layer: a value of two writes, a value that another client left under the same
//! name, and above all an old value that comes back, because a server hung, failed or was cut off and did later what it had
//! been told before.

mod entries;
mod faulty;
#[allow(dead_code, reason = "shared with the tests of two tiers")]
#[path = "../tiered/leaky.rs"]
mod leaky;
#[allow(dead_code, reason = "shared with the tests of two tiers")]
#[path = "../tiered/slow.rs"]
mod slow;
mod stale;
mod suites;
