//! Changes in files, for dumps and backups: segments that are complete or not there, in chains without holes.
//!
//! # A segment
//!
//! Numbers are little-endian. About 64 MiB; written once, never changed.
//!
//! ```text
//! ┌ "MNTSEG" 0 1 · length u32 · header, JSON · XXH3 of it u64
//! │ block: "MBLK" · stored u32 · raw u32 · records u32 · time read u64 · XXH3 u64 (all before it, and what is stored) · stored bytes
//! │ block …                                               raw bytes are at most 256 KiB, or one record; perhaps by zstd
//! └ "MFTR" · length u32 · footer, JSON · XXH3 of it u64
//! ```
//!
//! The header says what the changes are of, and from which cursor on; the footer up to which, how many there are, and the BLAKE3 hash
//! of all before it. Records are in [`record`].
//!
//! # A chain
//!
//! A folder of an [`Archive`]. What lies in it was put there by names that nobody else chooses, and comes into being by a record that
//! only one can create:
//!
//! ```text
//! CHAIN/000000000000-5f0c…a1.segment     a segment; without a record of its number that names it, nothing
//! CHAIN/000000000000.commit              JSON: the segment's name, length, hash, cursors, watermark, counts
//! CHAIN/000000000001.commit              begins with the cursor that the one before ended with, or the chain is refused
//! CHAIN/DONE                             JSON: no more comes; of a base: all that the source held is in it
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | changes to and from bytes |
//! | [`form`], [`segment`] | header, blocks, footer: written and read in one pass |
//! | [`archive`], [`nowhere`], [`mod@probe`] | where files lie: create-only names; a directory; nowhere; whether they are |
//! | [`claims`] | who does what, of processes that share work |
//! | [`chain`] | segments in their order, without holes |
//! | [`sink`], [`source`] | a chain as the end, and as the begin, of a feed's pump |

pub mod archive;
pub mod chain;
mod checksum;
pub mod claims;
pub mod error;
pub mod form;
pub mod nowhere;
pub mod probe;
pub mod record;
pub mod segment;
pub mod sink;
pub mod source;

pub use archive::{Archive, Created, Directory};
pub use chain::{Chain, Committed, Done};
pub use claims::{Claim, Claims, Pulse, Taken};
pub use error::SegmentError;
pub use form::Form;
pub use nowhere::Nowhere;
pub use probe::probe;
pub use segment::{Counts, Footer, Header, SegmentReader, SegmentWriter};
pub use sink::ChainSink;
pub use source::ChainSource;
