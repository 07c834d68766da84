//! How far clocks may be apart, and what that means for an item that one node is given and another one has shown.

/// In milliseconds: the default of nodes' `max_clock_skew`.
pub(crate) const APART: u64 = 500;

/// The moment as of which an item counts as current on any node, where another node was asked for it at `asked` by this process's
/// clock. Both are in milliseconds since the Unix epoch. A node that has started after it may have lost something newer, and does
/// not create the item.
pub(crate) fn surely_current(asked: u64) -> u64 {
    asked.saturating_sub(APART)
}
