//! How values are cut.

/// Bytes of a piece's data, unless told otherwise.
///
/// memcached takes 48 bytes for its header, 8 for the CAS value, the key with a byte after it (42 to 45 here) and 2 after
/// the value. With those and the piece's own 24 this makes 21,628 to 21,631 bytes, which lie in chunks of 21,696, of which 48
/// fill a page of 1 MiB but for 0.7 %. All pieces lie in that one slab class, so that large values of any length share
/// their memory and one queue of eviction; the larger classes waste up to 5 % of a page, and those up to a fifth of each value.
pub(super) const PIECE_BYTES: usize = 21 << 10;

/// How a [`super::Chunked`] store cuts values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkedConfig {
    /// Bytes of value in a piece, at least 1; the last piece has what is left. Fits a slab of memcached unless told.
    pub piece_bytes: u32,
    /// Values of up to this many bytes are one entry, together with what is known of the item (64 bytes). As long as a piece
    /// unless told.
    pub whole_max: usize,
    /// Longest value, in bytes; 1 MiB unless told. The store below is never asked for an entry longer than a piece or the
    /// longest whole value, and 64 bytes.
    pub item_max: usize,
}

impl Default for ChunkedConfig {
    fn default() -> Self {
        Self { piece_bytes: PIECE_BYTES as u32, whole_max: PIECE_BYTES, item_max: 1 << 20 }
    }
}
