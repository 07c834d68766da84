//! The feed: the log, read in the order of appending.
//!
//! ```text
//!  place ──▶ stamp ──────────────────▶ fence
//!            records of up to a few     all that was appended before the
//!            regions, merged by stamp   fence was drawn is below it
//! ```
//!
//! Every record has a stamp, and stamps grow with the appends of all open regions together. So a place in the feed is a stamp,
//! and it means the same before and after a restart. A reader draws a *fence*: a stamp below which no append is still under
//! way. Up to it the reader merges the records of the regions that it has not read, from RAM or from the device, in the order of
//! their stamps. Writers do nothing for readers, and a reader keeps copies of what it reads, never a region's buffer.
//!
//! What is not in the log, or not any more, is one number: the stamp up to which changes may be missing ([`telling::Telling`]). A
//! reader that comes from below it is told of a gap.
//!
//! Carried-forward records are no changes. A region that has nothing else is passed over, unless the reader was told of a gap or
//! begins at the start: what it lacks may be among them.

mod ahead;
mod fence;
pub(crate) mod gaps;
mod log_feed;
mod reader;
mod stream;
pub(crate) mod telling;
