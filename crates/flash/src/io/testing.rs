//! Devices for tests: in RAM, recorded so that a test can cut the power at any write, and failing on command.

mod faulty;
mod memory;
mod recording;

pub use faulty::{Faults, FaultyMedia};
pub use memory::MemoryMedia;
pub use recording::{Cut, Recorded, RecordingMedia};
