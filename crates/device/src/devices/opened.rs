//! The devices of a tier that is open, and the tier's state in their superblocks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::KeyHash;
use moneta_store::aligned::{Aligned, BLOCK_BYTES};
use parking_lot::Mutex;

use super::layout::number_on_device;
use super::lock::Whereabouts;
use super::state::TierState;
use super::superblock::{IN_USE, Superblock};
use super::superblocks::Superblocks;
use crate::io::Media;

/// The devices of a tier, opened and locked for as long as one of its [`Media`] lives.
pub struct Devices {
    pub(super) media: Vec<Arc<dyn Media>>,
    pub(super) failed_syncs: Arc<AtomicU64>,
    /// Device and offset of each region.
    pub(super) places: Vec<(u32, u64)>,
    pub(super) region_bytes: usize,
    pub(super) superblocks: Mutex<Superblocks>,
    pub(super) tier: u64,
    pub(super) seed: u64,
    pub(super) key_hash: KeyHash,
    pub(super) shard_bits: u32,
    pub(super) layout: u64,
    pub(super) snapshot_path: Option<PathBuf>,
    /// The paths and identities of the files.
    pub(super) whereabouts: Vec<Whereabouts>,
}

impl Devices {
    /// Regions of all devices.
    pub fn regions(&self) -> usize {
        self.places.len()
    }

    /// Bytes of a region.
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// Identity of the tier, random: a new one each time a tier starts empty.
    pub fn tier(&self) -> u64 {
        self.tier
    }

    /// The random salt of the checksums of this tier's records, fixed for the life of the tier. Clients do not know it, so they
    /// cannot store a value that passes for a record.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How keys are hashed for the life of the tier.
    pub fn key_hash(&self) -> KeyHash {
        self.key_hash
    }

    /// Bits of a key's hash that choose its shard of the index. Fixed for the life of the tier, whatever size it grows to, since
    /// deletes and restarts distinguish keys by shard and tag.
    pub fn shard_bits(&self) -> u32 {
        self.shard_bits
    }

    /// Regions that are out of use because a device cannot read or write them.
    pub fn retired(&self) -> Vec<usize> {
        self.listed(0)
    }

    /// Regions in use with a block that a device does not write. They are retired when they are emptied.
    pub fn bad(&self) -> Vec<usize> {
        self.listed(IN_USE)
    }

    /// Regions that superblocks list with that mark.
    fn listed(&self, mark: u32) -> Vec<usize> {
        let superblocks = self.superblocks.lock();
        let all: Vec<&Superblock> = superblocks.all().collect();
        let is_listed = |(device, offset): &(u32, u64)| {
            all[*device as usize].retired.contains(&(number_on_device(*offset, self.region_bytes) | mark))
        };
        let places = self.places.iter().enumerate();
        places.filter(|(_, place)| is_listed(place)).map(|(region, _)| region).collect()
    }

    /// Writes down that a region has a block which the device does not write, unless it is retired.
    ///
    /// # Errors
    /// That of the first device that failed. The next saved state has it.
    pub fn note_bad(&self, region: usize) -> io::Result<()> {
        let (device, offset) = self.place(region);
        let mut superblocks = self.superblocks.lock();
        superblocks.retire(device, number_on_device(offset, self.region_bytes) | IN_USE);
        let state = superblocks.state();
        superblocks.save(&state, &self.media)
    }

    /// Whether [`Devices::retire`] was called for a region, even if it failed.
    pub fn is_retired(&self, region: usize) -> bool {
        let (device, offset) = self.place(region);
        let number = number_on_device(offset, self.region_bytes);
        self.superblocks.lock().all().nth(device).is_some_and(|superblock| superblock.retired.contains(&number))
    }

    /// Takes a region out of use for good, and waits until both copies of the superblocks say so.
    ///
    /// # Errors
    /// That of the first device that failed. The next saved state records the region as retired, so it must not be used again.
    pub fn retire(&self, region: usize) -> io::Result<()> {
        let (device, offset) = self.place(region);
        let mut superblocks = self.superblocks.lock();
        superblocks.retire(device, number_on_device(offset, self.region_bytes));
        let state = superblocks.state();
        superblocks.save(&state, &self.media)?;
        superblocks.save(&state, &self.media)
    }

    /// Writes down that changes up to a stamp may be missing in the log.
    ///
    /// # Errors
    /// That of the first device that failed. The next saved state has it.
    pub fn save_feed_from(&self, stamp: u64) -> io::Result<()> {
        self.note_feed_from(stamp);
        let mut superblocks = self.superblocks.lock();
        let state = superblocks.state();
        superblocks.save(&state, &self.media)
    }

    /// Changes up to a stamp may be missing in the log. The next state that is saved has it.
    pub fn note_feed_from(&self, stamp: u64) {
        let mut superblocks = self.superblocks.lock();
        let TierState { feed_from, lost, .. } = superblocks.state();
        superblocks.set_feed(feed_from.max(stamp), lost);
    }

    /// Sets [`TierState::feed_from`] and [`TierState::lost`]. The next state that is saved has them.
    pub fn set_feed(&self, feed_from: u64, lost: u64) {
        self.superblocks.lock().set_feed(feed_from, lost);
    }

    /// Whether a device can be read at all, tested at its superblocks.
    pub fn is_readable(&self, device: usize) -> bool {
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        self.media[device].read_at(&mut block, 0).is_ok()
    }

    /// Device and offset of a region.
    #[inline]
    pub fn place(&self, region: usize) -> (usize, u64) {
        let (device, offset) = self.places[region];
        (device as usize, offset)
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

    /// Syncs that have failed so far, of all devices, whichever thread made them.
    pub fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::Acquire)
    }

    /// The tier's last saved state.
    pub fn state(&self) -> TierState {
        self.superblocks.lock().state()
    }

    /// Writes the tier's state to all devices and waits until it is durable.
    ///
    /// # Errors
    /// That of the first device that failed; the others were written nevertheless.
    pub fn save(&self, state: &TierState) -> io::Result<()> {
        self.superblocks.lock().save(state, &self.media)
    }

    /// The same in both copies of every superblock: for state that must survive the loss of a copy, since otherwise removed items
    /// would come back.
    ///
    /// # Errors
    /// As [`Devices::save`].
    pub fn save_twice(&self, state: &TierState) -> io::Result<()> {
        let mut superblocks = self.superblocks.lock();
        superblocks.save(state, &self.media)?;
        superblocks.save(state, &self.media)
    }

    /// Fingerprint of the tier, its devices, their order and sizes. Equal fingerprints mean equal region numbers.
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// Paths that do not lead to the opened file or device any more.
    pub fn gone(&self) -> Vec<PathBuf> {
        self.whereabouts.iter().filter(|place| !place.is_there()).map(|place| place.path.clone()).collect()
    }

    /// The path of the index snapshot: next to the first device's file; `None` if that is a block device.
    pub fn snapshot_path(&self) -> Option<PathBuf> {
        self.snapshot_path.clone()
    }
}
