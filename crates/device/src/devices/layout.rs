//! Where regions lie on the devices of a tier.

use super::superblock::{FIRST_REGION, Superblock};
use crate::format::hash::hash;

/// Assigns regions to the devices in turn, so that neighbours lie on different devices; the larger ones get the rest.
pub(super) fn places(superblocks: &[&Superblock]) -> Vec<(u32, u64)> {
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

/// The number of the region at an offset among those of its device.
pub(super) fn number_on_device(offset: u64, region_bytes: usize) -> u32 {
    ((offset - FIRST_REGION) / region_bytes as u64) as u32
}

/// Fingerprint of a tier, its devices, their order and sizes.
pub(super) fn layout(superblocks: &[&Superblock]) -> u64 {
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
