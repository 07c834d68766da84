//! Last writes of processes that are gone, which [`crate::mend`] is to compare on all copies.

use crate::living::Process;

/// Last writes that are to be compared. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// The processes that wrote them.
    pub(crate) of: Vec<Process>,
    /// When they were written.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// Not before.
    pub(crate) at: u64,
    /// Some node could not be asked.
    pub(crate) is_repeated: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Mending(pub(crate) Vec<Span>);
