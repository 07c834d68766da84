//! Backups of nodes: what they held, and everything that changed since, in an archive from which any moment is restored.
//!
//! ```text
//! ARCHIVE/archive.json                        whether it is encrypted, and the public keys
//! ARCHIVE/slots/SLOT/bases/000000/…           a chain of segments: all that the node held
//! ARCHIVE/slots/SLOT/bases/000000.json        makes the base exist: of which moment it is, and where in the changes it stands
//! ARCHIVE/slots/SLOT/parts/000000.json        a part of the changes begins: at which cursor, after which part
//! ARCHIVE/slots/SLOT/parts/000000/…           a chain of segments: what changed
//! ARCHIVE/verified/1795389400000.json         a restore was tried then, and held
//! ```
//!
//! A *restore point* is a base and the changes after it up to a segment's watermark. A merge makes a base of another one and
//! changes; it reads and writes the archive alone. Parts that follow each other are a *line*; a gap in the source's feed begins
//! another line, with a base of its own. All files are written once, by names that are free, so nothing is uploaded twice and two
//! writers cannot mix.
//!
//! | module | what it holds |
//! |---|---|
//! | [`layout`] | names and records of an archive |
//! | `sealed` | encryption of segments |
//! | [`take`], `follow`, `ends` | from a node into the archive |
//! | [`point`], [`rings`] | what a restore to a moment needs, and which slot has which keys |
//! | [`state`] | what nodes held at a restore point, whatever its size |
//! | [`merge`], [`keep`], [`mirror`] | a new base in the archive; what goes; a second copy |
//! | [`restore`], [`verify`] | from the archive into nodes; whether that would work |
//! | [`moment`] | times as people write them |
//! | [`status`] | numbers for people and alerts |

mod ends;
pub mod error;
mod follow;
pub mod keep;
pub mod layout;
pub mod merge;
pub mod mirror;
pub mod moment;
mod owner;
pub mod point;
pub mod restore;
pub mod rings;
#[cfg(feature = "age")]
pub mod sealed;
pub mod state;
pub mod status;
pub mod take;
pub mod verify;

pub use error::BackupError;
