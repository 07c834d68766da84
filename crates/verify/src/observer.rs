//! Who is told how far a run is, and may end it.

use crate::error::Side;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A server lists its keys.
    Walking(Side),
    /// Keys are compared; how many, where that is known.
    Comparing(Option<u64>),
    /// A is asked for each of so many keys of B.
    LookingForExtra(u64),
    /// So many keys that were repaired are looked at once more.
    LookingAfterRepairs(u64),
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys that were listed, or looked at for the first time.
    pub keys: u64,
    /// Keys found to differ since the run began.
    pub different: u64,
    /// Keys that looked different and are looked at again.
    pub suspects: u64,
}

/// Is told how a run gets on, from any of its threads.
pub trait Observer: Sync {
    /// A phase begins.
    fn phase(&self, _phase: Phase) {}

    /// Some keys further.
    fn progress(&self, _progress: Progress) {}

    /// Whether the run is to end with what it has. Asked often: several times a second.
    fn should_stop(&self) -> bool {
        false
    }
}

/// No observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Observer for Unwatched {}
