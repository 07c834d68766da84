//! Opens the devices of a tier read-only, for inspection.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use super::layout::{layout, places};
use super::opened::Devices;
use super::place::file_path;
use super::superblock::{FIRST_REGION, Head, Superblock};
use super::superblocks::Superblocks;
use super::tier::{refused, shard_bits_kept};
use crate::error::TierError;
use crate::io::{FileMedia, Media};

impl Devices {
    /// Opens all or some devices of a tier that no node has open. Changes nothing.
    ///
    /// # Errors
    /// If a path is not a Moneta device, or a node has it open, or the devices belong to different tiers.
    pub fn inspect(paths: &[PathBuf]) -> Result<Self, TierError> {
        let mut media = Vec::new();
        let mut found: Vec<Superblock> = Vec::new();
        for path in paths {
            let path = file_path(path);
            let (file, superblock) = open(&path)?;
            if found.first().is_some_and(|first| first.tier != superblock.tier) {
                return Err(refused(&path, "is of another tier than the device before it".into()));
            }
            let failed = |source| TierError::Io { path: path.clone(), what: "open it again", source };
            let lock = file.try_clone().map_err(failed)?;
            let bytes = FIRST_REGION + superblock.regions * superblock.region_bytes;
            media.push(Arc::new(FileMedia::new(file, vec![lock], bytes)) as Arc<dyn Media>);
            found.push(superblock);
        }
        let all: Vec<&Superblock> = found.iter().collect();
        let Some(first) = all.first() else { return Err(TierError::Config("no device to look at".into())) };
        Ok(Self {
            region_bytes: first.region_bytes as usize,
            places: places(&all),
            tier: first.tier,
            seed: first.seed,
            key_hash: first.hash.function(first.seed),
            shard_bits: shard_bits_kept(&all.iter().copied().map(Some).collect::<Vec<_>>(), first.region_bytes),
            layout: layout(&all),
            superblocks: Mutex::new(Superblocks::found(found)),
            media,
            failed_syncs: Arc::default(),
            snapshot_path: None,
            whereabouts: Vec::new(),
        })
    }

    /// How many devices the tier has, by its superblocks.
    pub fn tier_devices(&self) -> u32 {
        self.superblocks.lock().all().next().map_or(0, |superblock| superblock.devices)
    }
}

fn open(path: &Path) -> Result<(File, Superblock), TierError> {
    let failed = |what| move |source| TierError::Io { path: path.to_owned(), what, source };
    let file = File::open(path).map_err(failed("open it"))?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Err(refused(path, "is in use by a running node; stop it first, or read its metrics".into()));
    }
    let read = |buffer: &mut [u8], offset: u64| {
        buffer.fill(0);
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        Ok(())
    };
    match Head::read(read).map_err(failed("read its superblock"))? {
        Head::Ours(superblock, _) => Ok((file, superblock)),
        Head::Blank => Err(refused(path, "holds nothing yet".into())),
        Head::Foreign => Err(refused(path, "is not a device of Moneta's".into())),
        Head::Damaged => Err(refused(path, "is Moneta's, but both of its superblocks are damaged".into())),
        Head::Newer(version) => Err(refused(path, format!("has format version {version}; a newer Moneta can read it"))),
    }
}
