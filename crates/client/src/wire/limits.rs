//! How much of a reply is taken.

/// Longest line of a reply, in bytes: a key, a handful of numbers, an error in words.
pub const LINE_MAX: usize = 8192;
/// Most bytes of a reply that is no item, such as a list of statistics: many times what any server has to tell, and few enough
/// to be looked at again with each piece that comes.
pub const LIST_MAX: usize = 256 << 10;
/// The largest value any memcached takes: a reply that claims more is garbage.
pub const VALUE_LIMIT: usize = 1 << 30;
