//! A region on its way from the log to the flusher.

use std::sync::Arc;

use crate::log::buffer::Buffer;

/// A full region on its way to the device.
pub(crate) struct Sealed {
    pub(crate) region: usize,
    pub(crate) sequence: u64,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) end: usize,
    /// Footer and trailer, which end the region.
    pub(crate) tail: Vec<u8>,
}
