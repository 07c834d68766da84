//! Devices for tests: in RAM; recording, so that a test can cut the power at any write; failing on command; and losing unsynced
//! writes.

mod faulty;
mod memory;
mod recording;
mod volatile;

pub use faulty::{Faults, FaultyMedia};
pub use memory::MemoryMedia;
pub use recording::{Cut, Recorded, RecordingMedia};
pub use volatile::{Event, Odds, Replay, VolatileMedia};
