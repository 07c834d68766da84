//! Tries to break the engine: power cuts at any byte, flipped bits, failing and stalling devices, races, kills.
//!
//! What must hold throughout: a key shows a value that was written for it, not older than what was known to be on the
//! device, and never one that was deleted, flushed or overwritten for good.

mod bad_blocks;
mod bad_writes;
mod chosen;
mod collisions;
mod crash;
mod drive;
mod faults;
mod flips;
mod flushing;
mod history;
mod kill;
mod lives;
mod lost;
mod neighbours;
mod order;
mod races;
mod room;
mod slow;
mod strays;
mod torn;
mod walks;
mod wipes;
