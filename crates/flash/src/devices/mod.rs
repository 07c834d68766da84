//! The devices of a tier: opens, checks and locks them, and keeps the tier's state in their superblocks.
//!
//! All checks come before the first write. A tier that starts empty is a new tier with a new identity, so that old contents of
//! the regions are ignored.

mod inspect;
mod lock;
mod named_hash;
mod place;
mod room;
mod size;
mod superblock;
mod superblocks;
#[cfg(test)]
mod tests;
mod tier;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::KeyHash;
use parking_lot::Mutex;

use crate::config::{FlashConfig, ITEMS_PER_REGION};
use crate::error::FlashError;
use crate::format::hash::hash;
use crate::io::{Aligned, BLOCK_BYTES, Media, SyncsCounted};
use lock::Whereabouts;
use place::Place;
#[cfg(feature = "testing")]
use superblock::Head;
use superblock::{FIRST_REGION, IN_USE, Superblock};
use superblocks::Superblocks;
use tier::{Candidate, Plan, Wanted};

/// The devices of a tier, opened and locked for as long as one of its [`Media`] lives.
pub struct Devices {
    media: Vec<Arc<dyn Media>>,
    failed_syncs: Arc<AtomicU64>,
    /// Device and offset of each region.
    places: Vec<(u32, u64)>,
    region_bytes: usize,
    superblocks: Mutex<Superblocks>,
    tier: u64,
    seed: u64,
    key_hash: KeyHash,
    shard_bits: u32,
    layout: u64,
    snapshot_path: Option<PathBuf>,
    /// The paths and identities of the files.
    whereabouts: Vec<Whereabouts>,
}

/// The result of [`Devices::open`].
pub struct Opened {
    /// The devices.
    pub devices: Devices,
    /// None of them holds a tier that is kept: the tier starts empty.
    pub fresh: bool,
    /// Why it starts empty although there was a tier, in a sentence.
    pub why_fresh: Option<String>,
}

/// The state of the tier as a whole. Stored in every superblock; the newest is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierState {
    /// Regions with a lower sequence number are flushed.
    pub flushed_below: u64,
    /// Second at which a delayed flush takes effect; 0: none.
    pub flush_at: u32,
    /// Sequence numbers begin above this one. Also taken over by a tier that starts empty.
    pub sequence_floor: u64,
    /// The next run gives regions sequence numbers above this one: no run gives out a greater one than its superblocks have
    /// here. 0 in what earlier builds wrote.
    pub region_floor: u64,
    /// Identity of the valid index snapshot; 0: none.
    pub clean_stop: u64,
    /// The contents of the devices are void: the tier starts empty.
    pub abandoned: bool,
    /// The version of the last flush that was commanded; 0: none.
    pub floor_version: u64,
    /// The second at which it takes effect, or took.
    pub floor_from: u32,
    /// Items with a lower version count no longer: the greatest bound of all flushes that took effect.
    pub floor_bound: u64,
    /// The log has all changes with a greater stamp, as a version's time and counter; 0: it is not kept as a feed.
    pub feed_from: u64,
    /// The stamp at which a run began whose predecessor ended without a stop, and lost what it took last; 0: none did.
    pub lost: u64,
}

impl Devices {
    /// Opens, checks and locks the devices of `config`, and gives them the sizes it names.
    ///
    /// # Errors
    /// A sentence that says what to do; the devices are then unchanged.
    pub fn open(config: &FlashConfig) -> Result<Opened, FlashError> {
        let wanted = check(config)?;
        let mut places = Vec::with_capacity(config.devices.len());
        for device in &config.devices {
            places.push(Place::open(device, &places)?);
        }
        let candidates = places
            .iter()
            .map(|place| {
                let (bytes, bytes_before) = (place.bytes, place.length_before);
                Ok(Candidate { path: place.path.clone(), bytes, bytes_before, head: place.head()? })
            })
            .collect::<Result<Vec<_>, FlashError>>()?;
        let plan = tier::plan(&candidates, wanted, random)?;
        places.iter().try_for_each(Place::allocate)?;
        let snapshot_path = places[0].snapshot_path();
        let media = places
            .iter_mut()
            .map(|place| Ok(Arc::new(place.accept(config.direct)?) as Arc<dyn Media>))
            .collect::<Result<Vec<_>, FlashError>>()?;
        let mut opened = Self::assemble(media, &candidates, plan, snapshot_path)?;
        opened.devices.whereabouts = places.iter().map(Place::whereabouts).collect::<Result<_, _>>()?;
        places.iter().try_for_each(Place::cut)?;
        Ok(opened)
    }

    /// The same with devices that a test provides.
    ///
    /// # Errors
    /// As [`Devices::open`].
    #[cfg(feature = "testing")]
    pub fn on(media: Vec<Arc<dyn Media>>, config: &FlashConfig) -> Result<Opened, FlashError> {
        let wanted = check(config)?;
        let candidates = media
            .iter()
            .enumerate()
            .map(|(number, media)| {
                let path = PathBuf::from(format!("device {number}"));
                let head = Head::read(|buffer, offset| media.read_at(buffer, offset))
                    .map_err(|source| FlashError::Io { path: path.clone(), what: "read its superblock", source })?;
                Ok(Candidate { path, bytes: media.bytes(), bytes_before: media.bytes(), head })
            })
            .collect::<Result<Vec<_>, FlashError>>()?;
        let plan = tier::plan(&candidates, wanted, random)?;
        Self::assemble(media, &candidates, plan, None)
    }

    /// Carries a plan out.
    fn assemble(
        media: Vec<Arc<dyn Media>>,
        candidates: &[Candidate],
        plan: Plan,
        snapshot_path: Option<PathBuf>,
    ) -> Result<Opened, FlashError> {
        let (fresh, why_fresh) = (plan.fresh, plan.why_fresh.clone());
        let failed_syncs = Arc::<AtomicU64>::default();
        let superblocks = Superblocks::carry_out(plan, candidates, &media, Arc::clone(&failed_syncs))?;
        let all: Vec<&Superblock> = superblocks.all().collect();
        let counted = |media| Arc::new(SyncsCounted::new(media, Arc::clone(&failed_syncs))) as Arc<dyn Media>;
        let media = media.into_iter().map(counted).collect();
        let devices = Self {
            region_bytes: all[0].region_bytes as usize,
            places: places(&all),
            tier: all[0].tier,
            seed: all[0].seed,
            key_hash: all[0].hash.function(all[0].seed),
            shard_bits: all[0].shard_bits,
            layout: layout(&all),
            superblocks: Mutex::new(superblocks),
            media,
            failed_syncs,
            snapshot_path,
            whereabouts: Vec::new(),
        };
        Ok(Opened { devices, fresh, why_fresh })
    }

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

/// Checks the configuration without looking at the devices; returns the requirements.
fn check(config: &FlashConfig) -> Result<Wanted, FlashError> {
    let bytes = config.region_bytes;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(FlashError::Config(format!("regions of {bytes} bytes: give a multiple of 4 KiB")));
    }
    if config.devices.is_empty() {
        return Err(FlashError::Config("no device: give at least one path and size".into()));
    }
    let least = ITEMS_PER_REGION * config.item_max as u64;
    Ok(Wanted {
        region_bytes: bytes as u64,
        region_bytes_kept: config.region_bytes_kept.then_some(least),
        start_empty: config.start_empty,
    })
}

/// Assigns regions to the devices in turn, so that neighbours lie on different devices; the larger ones get the rest.
fn places(superblocks: &[&Superblock]) -> Vec<(u32, u64)> {
    let most = superblocks.iter().map(|superblock| superblock.regions).max().unwrap_or(0);
    let row = |index: u64| {
        let has = move |(_, superblock): &(usize, &&Superblock)| index < superblock.regions;
        let place = move |(device, superblock): (usize, &&Superblock)| {
            (device as u32, FIRST_REGION + index * superblock.region_bytes)
        };
        superblocks.iter().enumerate().filter(has).map(place)
    };
    (0..most).flat_map(row).collect()
}

fn number_on_device(offset: u64, region_bytes: usize) -> u32 {
    ((offset - FIRST_REGION) / region_bytes as u64) as u32
}

fn layout(superblocks: &[&Superblock]) -> u64 {
    let first = superblocks[0];
    let mut bytes = Vec::new();
    bytes.extend(first.tier.to_le_bytes());
    bytes.extend(first.region_bytes.to_le_bytes());
    for superblock in superblocks {
        bytes.extend(superblock.device.to_le_bytes());
        bytes.extend(superblock.regions.to_le_bytes());
    }
    hash(&bytes)
}

/// Random numbers for identities, seeds and secrets, from the system.
fn random() -> Result<u64, FlashError> {
    getrandom::u64().map_err(|error| FlashError::Start {
        what: "a tier, for which the system has to give random numbers",
        source: error.into(),
    })
}
