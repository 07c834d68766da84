//! How segments are written.

/// How segments are written.
#[derive(Clone, Debug)]
pub struct Form {
    /// The source as segments name it.
    pub source: String,
    /// Bytes after which a segment ends, at the next mark.
    pub segment_bytes: u64,
    /// Blocks are compressed.
    pub compresses: bool,
    /// The changes are items by a list of keys: each key once, each item current when it was read.
    pub listed: bool,
}

/// Bytes of a segment, unless something else is asked for.
pub const SEGMENT_BYTES: u64 = 64 << 20;
