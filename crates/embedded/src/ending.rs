//! How a request ends for which there is no room. What its key had is removed by then.

use moneta_store::{Deleted, Lookup, Number, Written};

/// An end that a request can have.
pub(crate) trait Ending: Sized {
    /// The end without room; `None`: an error.
    fn without_room() -> Option<Self>;
}

impl Ending for Written {
    fn without_room() -> Option<Self> {
        Some(Self::OutOfMemory)
    }
}

impl Ending for Number {
    fn without_room() -> Option<Self> {
        Some(Self::OutOfMemory)
    }
}

impl Ending for Deleted {
    /// Where there is no room to mark the item, it goes.
    fn without_room() -> Option<Self> {
        Some(Self::Deleted)
    }
}

impl Ending for Lookup {
    fn without_room() -> Option<Self> {
        None
    }
}
