//! Decides what several devices form together: a tier that is kept, one that starts empty, or a mixture that is refused.
//!
//! Pure functions of the devices' heads and wanted sizes, without I/O.

use std::path::{Path, PathBuf};

use super::named_hash::NamedHash;
use super::size::Size;
use super::state::TierState;
use super::superblock::{FIRST_REGION, Head, IN_USE, Superblock};
use crate::error::TierError;
use crate::regions::identity::SHARD_BITS_MAX;

/// Fewest regions of a new tier: with less, none is left to empty while others are filled and written.
const LEAST_REGIONS: u64 = 16;

/// Bytes of device for each shard of the index.
const SHARD_BYTES: u64 = 256 << 20;
/// Fewest bits that choose a shard: enough that threads seldom contend for a lock.
const SHARD_BITS_MIN: u32 = 4;

/// A device that shall be part of the tier.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its path.
    pub(super) path: PathBuf,
    /// Bytes to use.
    pub(super) bytes: u64,
    /// Bytes it had before.
    pub(super) bytes_before: u64,
    /// Its decoded superblocks.
    pub(super) head: Head,
}

/// The decision about the candidates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The tier starts empty.
    pub(super) fresh: bool,
    /// Why it starts empty although there was a tier.
    pub(super) why_fresh: Option<String>,
    /// Generation of the newest superblock found; 0 without one.
    pub(super) generation: u64,
    /// The superblocks to write, one for each candidate, of the next generation.
    pub(super) superblocks: Vec<Superblock>,
}

impl Candidate {
    fn regions(&self, region_bytes: u64) -> u64 {
        regions_in(self.bytes, region_bytes)
    }

    fn superblock(&self) -> Option<&Superblock> {
        match &self.head {
            Head::Ours(superblock, _) => Some(superblock),
            _ => None,
        }
    }

    fn refused(&self, reason: String) -> TierError {
        refused(&self.path, reason)
    }
}

/// The requirements of a tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Bytes of a region.
    pub(super) region_bytes: u64,
    /// Fewest bytes of a region with which an existing tier may be kept although its regions have another size. `None`: such a
    /// tier is not kept.
    pub(super) region_bytes_kept: Option<u64>,
    /// Start empty if the existing tier cannot be kept.
    pub(super) start_empty: bool,
}

impl Wanted {
    /// The bytes of a region, given the existing superblocks.
    fn region_bytes(&self, kept: &[Option<&Superblock>]) -> u64 {
        let there = kept.iter().flatten().next().map(|found| found.region_bytes);
        let fits = |bytes: &u64| self.region_bytes_kept.is_some_and(|least| *bytes >= least);
        there.filter(fits).unwrap_or(self.region_bytes)
    }
}

/// Decides about `candidates`; `random` gives identities and secrets.
pub(super) fn plan(
    candidates: &[Candidate],
    wanted: Wanted,
    mut random: impl FnMut() -> Result<u64, TierError>,
) -> Result<Plan, TierError> {
    candidates.iter().try_for_each(recognise)?;
    let newest_of = |tier: u64| {
        let of_tier = candidates.iter().filter_map(Candidate::superblock).filter(move |found| found.tier == tier);
        of_tier.max_by_key(|found| found.generation).expect("the tier is one that was found")
    };
    let counts = |found: &Superblock| !newest_of(found.tier).state.abandoned;
    let kept: Vec<Option<&Superblock>> =
        candidates.iter().map(|candidate| candidate.superblock().filter(|found| counts(found))).collect();
    one_tier(candidates, &kept)?;
    let region_bytes = wanted.region_bytes(&kept);
    same_region_size(candidates, &kept, region_bytes)?;
    enough_room(candidates, region_bytes)?;

    let found = || candidates.iter().filter_map(Candidate::superblock);
    let generation = found().map(|found| found.generation).max().unwrap_or(0);
    let tier = kept.iter().flatten().next().map(|found| newest_of(found.tier));
    let why_fresh = match tier {
        Some(newest) => {
            let why = missing(newest, &kept).or_else(|| smaller(candidates, &kept, region_bytes));
            if let Some(why) = why.as_ref().filter(|_| !wanted.start_empty) {
                return Err(TierError::Config(format!(
                    "the SSD tier cannot be kept as it is: {why}; give all of it as it was, or begin with an empty one \
                     (flash_start_empty, for this one start)"
                )));
            }
            why
        }
        None => found().next().map(|_| {
            "the tier was given up while its devices failed, and what is on them may be out of date".to_string()
        }),
    };
    let keeps = tier.filter(|_| why_fresh.is_none());
    let count = candidates.len() as u32;
    let shared = match keeps {
        Some(newest) => Superblock {
            generation: generation + 1,
            devices: count,
            shard_bits: shard_bits_kept(&kept, region_bytes),
            ..newest.clone()
        },
        None => Superblock {
            generation: generation + 1,
            tier: random()?,
            devices: count,
            device: 0,
            number: 0,
            seed: random()?,
            region_bytes,
            regions: 0,
            shard_bits: shard_bits_for(candidates.iter().map(|found| found.regions(region_bytes)).sum(), region_bytes),
            hash: NamedHash::keyed(&mut random)?,
            retired: Vec::new(),
            state: TierState {
                sequence_floor: found().map(|found| found.state.sequence_floor).max().unwrap_or(0),
                ..TierState::default()
            },
        },
    };
    let members = kept.iter().map(|found| found.filter(|_| keeps.is_some()));
    let mut next_number = members.clone().flatten().count() as u32;
    let superblocks = candidates.iter().zip(members).map(|(candidate, member)| {
        let (device, number) = match member {
            Some(member) => (member.device, member.number),
            None => {
                next_number += 1;
                (random()?, next_number - 1)
            }
        };
        // A bad block stays bad, whichever tier the device belongs to.
        let found = candidate.superblock().filter(|found| found.region_bytes == region_bytes);
        let mut retired = found.map_or_else(Vec::new, |found| found.retired.clone());
        if keeps.is_none() {
            retired.iter_mut().for_each(|number| *number &= !IN_USE);
        }
        Ok(Superblock { device, number, regions: candidate.regions(region_bytes), retired, ..shared.clone() })
    });
    let superblocks = superblocks.collect::<Result<_, TierError>>()?;
    Ok(Plan { fresh: keeps.is_none(), why_fresh, generation, superblocks })
}

/// Bits that choose the shard, for a new tier with this many regions.
fn shard_bits_for(regions: u64, region_bytes: u64) -> u32 {
    let shards = (regions * region_bytes / SHARD_BYTES).next_power_of_two();
    shards.trailing_zeros().clamp(SHARD_BITS_MIN, SHARD_BITS_MAX)
}

/// The same for a tier that is kept. In version 1 they follow from its last sizes, before it grows. If the start that introduced
/// version 2 was interrupted, some devices name them and the others already have another size.
pub(super) fn shard_bits_kept(kept: &[Option<&Superblock>], region_bytes: u64) -> u32 {
    let named = kept.iter().flatten().map(|found| found.shard_bits).find(|bits| *bits != 0);
    named.unwrap_or_else(|| shard_bits_for(kept.iter().flatten().map(|found| found.regions).sum(), region_bytes))
}

fn regions_in(bytes: u64, region_bytes: u64) -> u64 {
    bytes.saturating_sub(FIRST_REGION) / region_bytes
}

/// Refuses a device that is not Moneta's or that this build cannot read.
fn recognise(candidate: &Candidate) -> Result<(), TierError> {
    let reason = match &candidate.head {
        Head::Ours(found, _) if !found.hash.is_known() => format!(
            "was written by a Moneta that hashes keys by another function (number {}); start that version, or begin anew \
             with an empty one (remove the file; wipe the first MiB of a block device)",
            found.hash.name
        ),
        Head::Ours(found, _) if found.shard_bits > SHARD_BITS_MAX => format!(
            "names {} bits for the shards of its index, and {SHARD_BITS_MAX} is the most; start the version that wrote it, \
             or begin anew with an empty one (remove the file; wipe the first MiB of a block device)",
            found.shard_bits
        ),
        Head::Blank | Head::Ours(..) => return Ok(()),
        Head::Foreign => "holds something that is not Moneta's; name another place, or empty this one first \
             (remove the file; wipe the first MiB of a block device)"
            .to_string(),
        Head::Damaged => "is Moneta's, but both copies of its superblock are damaged; restore it, or begin anew \
             with an empty one (remove the file; wipe the first MiB of a block device)"
            .to_string(),
        Head::Newer(version) => format!(
            "was written by a newer Moneta (format {version}); start that version, or begin anew with an empty one \
             (remove the file; wipe the first MiB of a block device)"
        ),
    };
    Err(candidate.refused(reason))
}

/// Refuses devices of several tiers, and copies.
fn one_tier(candidates: &[Candidate], kept: &[Option<&Superblock>]) -> Result<(), TierError> {
    let mut seen: Vec<(&Candidate, &Superblock)> = Vec::new();
    for (candidate, found) in candidates.iter().zip(kept) {
        let Some(found) = found else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, other)| other.tier != found.tier) {
            return Err(candidate.refused(format!(
                "belongs to another tier than {}; give the devices of one tier, or empty this one first (remove the \
                 file; wipe the first MiB of a block device)",
                other.path.display()
            )));
        }
        if let Some((other, _)) = seen.iter().find(|(_, other)| other.number == found.number) {
            return Err(candidate.refused(format!("is a copy of {}; give only one of them", other.path.display())));
        }
        seen.push((candidate, found));
    }
    Ok(())
}

fn same_region_size(
    candidates: &[Candidate],
    kept: &[Option<&Superblock>],
    region_bytes: u64,
) -> Result<(), TierError> {
    for (candidate, found) in candidates.iter().zip(kept) {
        if let Some(found) = found.filter(|found| found.region_bytes != region_bytes) {
            return Err(candidate.refused(format!(
                "was made with regions of {}, not {}; give a region size of {}, or begin anew with an empty one",
                Size(found.region_bytes),
                Size(region_bytes),
                Size(found.region_bytes)
            )));
        }
    }
    Ok(())
}

fn enough_room(candidates: &[Candidate], region_bytes: u64) -> Result<(), TierError> {
    let regions = |candidate: &Candidate| candidate.regions(region_bytes);
    let total: u64 = candidates.iter().map(regions).sum();
    let lacking = LEAST_REGIONS.saturating_sub(total);
    // The message asks for the missing bytes at the first device; each device must hold at least one region.
    for (candidate, lacking) in candidates.iter().zip(std::iter::once(lacking).chain(std::iter::repeat(0))) {
        let needed = (regions(candidate) + lacking).max(1);
        if needed > regions(candidate) {
            return Err(candidate.refused(format!(
                "{} is too small: a tier needs at least {LEAST_REGIONS} regions of {}; give it at least {}, or \
                 smaller regions",
                Size(candidate.bytes),
                Size(region_bytes),
                Size(FIRST_REGION + needed * region_bytes)
            )));
        }
    }
    Ok(())
}

/// Why a tier cannot be kept: devices are missing, and the newest version of any item may be on them.
fn missing(newest: &Superblock, kept: &[Option<&Superblock>]) -> Option<String> {
    let here = |number| kept.iter().flatten().any(|found| found.number == number);
    let missing = (0..newest.devices).filter(|&number| !here(number)).count();
    (missing > 0).then(|| {
        format!(
            "{missing} of the {} devices of the tier {} missing, and newer versions may lie there",
            newest.devices,
            if missing == 1 { "is" } else { "are" }
        )
    })
}

/// The same for a device that shall be smaller than before.
fn smaller(candidates: &[Candidate], kept: &[Option<&Superblock>], region_bytes: u64) -> Option<String> {
    candidates.iter().zip(kept).find_map(|(candidate, found)| {
        let left = regions_in(candidate.bytes.min(candidate.bytes_before), region_bytes);
        let found = found.filter(|found| left < found.regions)?;
        Some(format!(
            "{} has become smaller ({} before), and newer versions may have lain on what is cut off",
            candidate.path.display(),
            Size(FIRST_REGION + found.regions * found.region_bytes)
        ))
    })
}

/// The error for a refused device.
pub(super) fn refused(path: &Path, reason: String) -> TierError {
    TierError::Device { path: path.to_owned(), reason }
}
