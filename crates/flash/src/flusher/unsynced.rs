//! The writes since the last sync.

use std::sync::Arc;

use crate::log::buffer::Buffer;
use moneta_device::devices::Devices;

/// Writes that are not synced and whose data is still in RAM.
pub(super) struct Unsynced {
    /// Buffers of regions of which something was written.
    pub(super) buffers: Vec<Arc<Buffer>>,
    /// Failed syncs of all devices that have been handled.
    pub(super) failures: u64,
}

impl Unsynced {
    pub(super) fn new(devices: &Devices) -> Self {
        Self { buffers: Vec::new(), failures: devices.failed_syncs() }
    }

    /// Notes that part of a region is about to be written.
    pub(super) fn note(&mut self, buffer: &Arc<Buffer>) {
        if !self.buffers.iter().any(|known| Arc::ptr_eq(known, buffer)) {
            self.buffers.push(Arc::clone(buffer));
        }
    }

    /// Drops a region whose buffer is about to be released.
    pub(super) fn forget(&mut self, buffer: &Arc<Buffer>) {
        self.buffers.retain(|known| !Arc::ptr_eq(known, buffer));
    }

    /// Drops flushed regions.
    pub(super) fn prune(&mut self) {
        self.buffers.retain(|buffer| !buffer.is_discarded());
    }
}
