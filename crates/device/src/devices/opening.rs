//! Opens, checks and locks the devices of a tier. All checks come before the first write.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use moneta_store::aligned::BLOCK_BYTES;
use parking_lot::Mutex;

use super::layout::{layout, places};
use super::opened::Devices;
use super::place::DevicePlace;
#[cfg(feature = "testing")]
use super::superblock::Head;
use super::superblock::Superblock;
use super::superblocks::Superblocks;
use super::tier::{self, Candidate, Plan, Wanted};
use crate::config::TierConfig;
use crate::error::TierError;
use crate::io::{Media, SyncsCounted};

/// The result of [`Devices::open`].
pub struct Opened {
    /// The devices.
    pub devices: Devices,
    /// None of them holds a tier that is kept: the tier starts empty.
    pub fresh: bool,
    /// Why it starts empty although there was a tier, in a sentence.
    pub why_fresh: Option<String>,
}

impl Devices {
    /// Opens, checks and locks the devices of `config`, and gives them the sizes it names.
    ///
    /// # Errors
    /// A sentence that says what to do; the devices are then unchanged.
    pub fn open(config: &TierConfig) -> Result<Opened, TierError> {
        let wanted = check(config)?;
        let mut places = Vec::with_capacity(config.devices.len());
        for device in &config.devices {
            places.push(DevicePlace::open(device, &places)?);
        }
        let candidates = places
            .iter()
            .map(|place| {
                let (bytes, bytes_before) = (place.bytes, place.length_before);
                Ok(Candidate { path: place.path.clone(), bytes, bytes_before, head: place.head()? })
            })
            .collect::<Result<Vec<_>, TierError>>()?;
        let plan = tier::plan(&candidates, wanted, random)?;
        places.iter().try_for_each(DevicePlace::allocate)?;
        let snapshot_path = places[0].snapshot_path();
        let media = places
            .iter_mut()
            .map(|place| Ok(Arc::new(place.accept(config.direct)?) as Arc<dyn Media>))
            .collect::<Result<Vec<_>, TierError>>()?;
        let mut opened = Self::assemble(media, &candidates, plan, snapshot_path)?;
        opened.devices.whereabouts = places.iter().map(DevicePlace::whereabouts).collect::<Result<_, _>>()?;
        places.iter().try_for_each(DevicePlace::cut)?;
        Ok(opened)
    }

    /// The same with devices that a test provides.
    ///
    /// # Errors
    /// As [`Devices::open`].
    #[cfg(feature = "testing")]
    pub fn on(media: Vec<Arc<dyn Media>>, config: &TierConfig) -> Result<Opened, TierError> {
        let wanted = check(config)?;
        let candidates = media
            .iter()
            .enumerate()
            .map(|(number, media)| {
                let path = PathBuf::from(format!("device {number}"));
                let head = Head::read(|buffer, offset| media.read_at(buffer, offset))
                    .map_err(|source| TierError::Io { path: path.clone(), what: "read its superblock", source })?;
                Ok(Candidate { path, bytes: media.bytes(), bytes_before: media.bytes(), head })
            })
            .collect::<Result<Vec<_>, TierError>>()?;
        let plan = tier::plan(&candidates, wanted, random)?;
        Self::assemble(media, &candidates, plan, None)
    }

    /// Carries a plan out.
    fn assemble(
        media: Vec<Arc<dyn Media>>,
        candidates: &[Candidate],
        plan: Plan,
        snapshot_path: Option<PathBuf>,
    ) -> Result<Opened, TierError> {
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
}

/// Checks the configuration without looking at the devices; returns the requirements.
fn check(config: &TierConfig) -> Result<Wanted, TierError> {
    let bytes = config.region_bytes;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(TierError::Config(format!("regions of {bytes} bytes: give a multiple of 4 KiB")));
    }
    if config.devices.is_empty() {
        return Err(TierError::Config("no device: give at least one path and size".into()));
    }
    Ok(Wanted {
        region_bytes: bytes as u64,
        region_bytes_kept: config.region_bytes_kept,
        start_empty: config.start_empty,
    })
}

/// Random numbers for identities, seeds and secrets, from the system.
fn random() -> Result<u64, TierError> {
    getrandom::u64().map_err(|error| TierError::Start {
        what: "a tier, for which the system has to give random numbers",
        source: error.into(),
    })
}
