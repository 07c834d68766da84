//! Changes of which the home has not said whether it stored the result, since it failed just then: until they are settled
//! (`settling`).

use std::collections::VecDeque;

use moneta_store::OwnedKey;
use parking_lot::Mutex;

use crate::own::Own;

/// Such changes.
#[derive(Default)]
pub(crate) struct Unknowns(pub(crate) Mutex<VecDeque<Unknown>>);

/// A change, and what its rounds left.
pub(crate) struct Unknown {
    pub(crate) key: OwnedKey,
    /// The name of the home's node.
    pub(crate) home: String,
    pub(crate) own: Own,
}
