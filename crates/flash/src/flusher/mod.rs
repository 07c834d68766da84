//! Writes regions to devices: one thread, large aligned writes, one sync for all requests that wait for it.
//!
//! A round writes the full regions. It also writes the appends to open regions if the flush interval is over, a request waits
//! for durability, or a megabyte is unwritten. The appends that a syncing round declares durable are fixed at its start:
//!
//! ```text
//!  1  number = appended()            every append up to it lies in a region of 2 or 3
//!  2  the end of each open region    under its group's lock
//!  3  the full regions               includes those sealed before 2
//!  4  write 3, then 2                whether or not a region of 2 was sealed since
//!  5  sync
//!  6  appends up to number are durable
//! ```
//!
//! The last block of an open region is written partly filled, and again in the next round. Its first part never changes until
//! the whole block is written, so a torn write of it loses no record that was written before.
//!
//! A region's footer and trailer follow its records only after a sync ([`tails`]): a device may write unsynced blocks in any
//! order, and a trailer asserts that all records before it are there. After a failed sync everything unsynced is in doubt and
//! is written again ([`doubt`]).

pub(crate) mod bad_blocks;
mod doubt;
pub(crate) mod engine;
pub(crate) mod health;
pub(crate) mod queue;
pub(crate) mod round;
mod strays;
mod tails;
mod unsynced;
mod wait;
pub(crate) mod waiting;
mod writing;
