//! Writing regions to devices: one thread, large aligned writes, one sync for all that waits for it.
//!
//! A round writes the regions that are full, and what was appended to open ones if the flush interval is over, a request
//! waits for durability, or a megabyte has piled up. What a round that syncs declares to be on the devices is fixed at its
//! start:
//!
//! ```text
//!  1  number = appended()            every append up to it lies in what 2 or 3 finds
//!  2  the end of each open region    under its group's lock
//!  3  the full regions               what was sealed before 2 is among them
//!  4  write 3, then 2                whether or not a region of 2 was sealed since
//!  5  sync
//!  6  number is durable
//! ```
//!
//! The block in which an open region ends is written as far as it is filled, and again with the next round; until a device
//! has the whole block its first part never changes, so a torn write of it costs no record that was written before.
//!
//! A region's footer and trailer follow its records only after a sync ([`tails`]): a device may write what was not synced in
//! any order, and a trailer says that all records before it are there. What a sync that fails leaves behind is in doubt, and
//! is written again ([`doubt`]).

mod doubt;
mod health;
mod queue;
mod round;
mod tails;
mod waiting;
mod writing;

pub(crate) use health::off;
pub(crate) use queue::{FlushQueue, Job};
pub(crate) use round::{Engine, Flusher};
pub(crate) use waiting::Goal;
