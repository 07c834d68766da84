//! The devices of a tier: opening, checking and locking them, and what their superblocks say of the tier.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::FlashConfig;
use crate::error::FlashError;
use crate::io::Media;

/// The devices of a tier, opened and locked.
pub struct Devices {
    media: Vec<Arc<dyn Media>>,
    places: Vec<(usize, u64)>,
    region_bytes: usize,
}

/// What [`Devices::open`] found.
pub struct Opened {
    /// The devices.
    pub devices: Devices,
    /// Nothing is on any of them that counts: the tier starts empty.
    pub fresh: bool,
    /// Why it starts empty although something was there, in a sentence.
    pub why_fresh: Option<String>,
}

/// What is known of the tier as a whole. Kept in every superblock; the newest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierState {
    /// Records with a lower sequence number are flushed.
    pub flushed_below: u64,
    /// Second at which a flush is due; 0: none.
    pub flush_at: u32,
    /// Sequence numbers begin above this one.
    pub sequence_floor: u64,
    /// Identity of the index snapshot that fits; 0: none.
    pub clean_stop: u64,
    /// What is on the devices counts no longer: the tier starts empty.
    pub abandoned: bool,
}

impl Devices {
    /// Opens, checks and locks the devices of `config`, and brings them to the sizes it names.
    ///
    /// # Errors
    /// A sentence that says what to do; the devices are then as they were.
    pub fn open(config: &FlashConfig) -> Result<Opened, FlashError> {
        let _ = config;
        unimplemented!()
    }

    /// The same with devices that a test made.
    ///
    /// # Errors
    /// As [`Devices::open`].
    #[cfg(feature = "testing")]
    pub fn on(media: Vec<Arc<dyn Media>>, config: &FlashConfig) -> Result<Opened, FlashError> {
        let _ = (media, config);
        unimplemented!()
    }

    /// Regions of all devices.
    pub fn regions(&self) -> usize {
        self.places.len()
    }

    /// Bytes of a region.
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// Identity of the tier, random: another one each time a tier starts empty.
    pub fn tier(&self) -> u64 {
        unimplemented!()
    }

    /// Seed under which keys are hashed, random, kept for the life of the tier.
    pub fn seed(&self) -> u64 {
        unimplemented!()
    }

    /// Device and offset of a region.
    #[inline]
    pub fn place(&self, region: usize) -> (usize, u64) {
        self.places[region]
    }

    /// One device.
    #[inline]
    pub fn media(&self, device: usize) -> &Arc<dyn Media> {
        &self.media[device]
    }

    /// All devices.
    pub fn all(&self) -> &[Arc<dyn Media>] {
        &self.media
    }

    /// The tier's state as it was saved last.
    pub fn state(&self) -> TierState {
        unimplemented!()
    }

    /// Writes the tier's state to all devices and waits until it is there.
    ///
    /// # Errors
    /// The first device's that failed; the others were written nevertheless.
    pub fn save(&self, state: &TierState) -> io::Result<()> {
        let _ = state;
        unimplemented!()
    }

    /// Fingerprint of the tier, its devices, their order and sizes: equal ones number regions alike.
    pub fn layout(&self) -> u64 {
        unimplemented!()
    }

    /// Where an index snapshot is kept: next to the first device's file; `None` where that is a block device.
    pub fn snapshot_path(&self) -> Option<PathBuf> {
        unimplemented!()
    }
}
