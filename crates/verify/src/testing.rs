//! Functions for fuzz targets only.

use std::io;

use crate::list::KeyList;

/// The keys of a file of keys, in its order.
///
/// # Errors
/// When a line does not fit the others, or has no end.
pub fn keys_of_list(text: &[u8]) -> io::Result<Vec<Box<[u8]>>> {
    let mut list = KeyList::new(text);
    std::iter::from_fn(|| list.next().transpose()).collect()
}
