//! The items that a server under attack holds.

/// Bytes of a large item: nearly 1 MiB, which is as large as servers take by default.
pub(super) const LARGE: usize = 1024 * 1024 - 1024;
/// Large items: more than a server with little memory keeps there.
pub(super) const LARGE_ITEMS: usize = 100;
/// Small items.
pub(super) const KEYS: usize = 20_000;

pub(super) fn large_key(index: usize) -> String {
    format!("large{index}")
}

pub(super) fn small_key(index: usize) -> String {
    format!("small:{index:0100}")
}
