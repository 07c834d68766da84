//! The superblock: describes a device and its tier.
//!
//! There are two copies, at 0 and at 4 KiB, written in turn, so that an interrupted write leaves the older one. The newest valid
//! copy is used. Regions begin at 1 MiB; the space between is zero.
//!
//! ```text
//!       0                4                8                12               16
//!       +----------------+----------------+----------------+----------------+
//!    0  | magic                           | version        | devices        |
//!       +----------------+----------------+----------------+----------------+
//!   16  | checksum                        | generation                      |
//!       +----------------+----------------+----------------+----------------+
//!   32  | tier                            | device                          |
//!       +----------------+----------------+----------------+----------------+
//!   48  | seed                            | region bytes                    |
//!       +----------------+----------------+----------------+----------------+
//!   64  | regions                         | number         | flags          |
//!       +----------------+----------------+----------------+----------------+
//!   80  | flushed below                   | flush at       | shard bits     |
//!       +----------------+----------------+----------------+----------------+
//!   96  | sequence floor                  | clean stop                      |
//!       +----------------+----------------+----------------+----------------+
//!  112  | hash           | 0              | floor: version                  |
//!       +----------------+----------------+----------------+----------------+
//!  128  | floor: from    | 0              | region floor                    |
//!       +----------------+----------------+----------------+----------------+
//!  144  | key of the hash, 32 bytes                                         |
//!       +-------------------------------------------------------------------+
//!  176  | floor: bound                    | feed from                       |
//!       +----------------+----------------+----------------+----------------+
//!  192  | feed: lost before               | 0 up to 512                     |
//!       +----------------+--------------------------------------------------+
//!  512  | retired regions| the number of each on this device, 4 bytes each   |
//!       +----------------+--------------------------------------------------+
//!       | 0 up to 4096                                                      |
//!       +-------------------------------------------------------------------+
//! ```
//! The highest bit in the number of a retired region: it has a bad block and is still in use.
//! Numbers are little-endian. The checksum is XXH3 of all 4096 bytes, with the checksum field as 0. Every version keeps magic,
//! version and checksum in these places. In version 1, `shard bits` and everything from 112 on is 0: its tiers use hash 1, and
//! their shard bits follow from their sizes. Early builds of version 2 left `region floor` 0.

use std::fmt;
use std::io;

use super::named_hash::NamedHash;
use super::state::TierState;
use crate::format::hash::hash;
use crate::io::{Aligned, BLOCK_BYTES, Media};

/// First bytes of a Moneta device.
const MAGIC: [u8; 8] = *b"MONETASB";
/// The version written, and the newest one read.
const VERSION: u32 = crate::format::VERSION as u32;
/// The oldest one read.
const VERSION_1: u32 = crate::format::VERSION_1 as u32;
/// Where the first region begins, in bytes.
pub(super) const FIRST_REGION: u64 = 1 << 20;
/// Flag: the contents of the tier are void.
const ABANDONED: u32 = 1;
/// Bytes of the fixed-length fields.
const FIELD_BYTES: usize = 200;
/// Offset of the list of retired regions.
const RETIRED: usize = 512;
/// Marks a number in the list whose region is in use: it has a bad block, and is retired when it is emptied.
pub(super) const IN_USE: u32 = 1 << 31;
/// Most retired regions that fit into a superblock.
pub(super) const RETIRED_MAX: usize = (BLOCK_BYTES - RETIRED) / 4 - 1;
const CHECKSUM: std::ops::Range<usize> = 16..24;

const _: () = assert!(2 * BLOCK_BYTES as u64 <= FIRST_REGION && FIRST_REGION.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(FIELD_BYTES <= RETIRED);

/// The fields of a superblock.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Grows with every write to any device of the tier.
    pub(super) generation: u64,
    /// Identity of the tier.
    pub(super) tier: u64,
    /// Devices of the tier.
    pub(super) devices: u32,
    /// Identity of this device.
    pub(super) device: u64,
    /// The number of this device in the tier, from 0.
    pub(super) number: u32,
    /// The salt of record checksums; also the seed of the key hash if `hash` is XXH3.
    pub(super) seed: u64,
    /// Bytes of a region.
    pub(super) region_bytes: u64,
    /// Regions of this device.
    pub(super) regions: u64,
    /// Bits of a key's hash that choose the index shard, fixed for the life of the tier; 0 in version 1, which does not store
    /// them.
    pub(super) shard_bits: u32,
    /// How keys are hashed.
    pub(super) hash: NamedHash,
    /// Retired regions of this device, by their number on it; with [`IN_USE`] those that are to be.
    pub(super) retired: Vec<u32>,
    /// The tier's state.
    pub(super) state: TierState,
}

/// Omits secrets.
impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Superblock")
            .field("generation", &self.generation)
            .field("tier", &self.tier)
            .field("devices", &self.devices)
            .field("device", &self.device)
            .field("number", &self.number)
            .field("region_bytes", &self.region_bytes)
            .field("regions", &self.regions)
            .field("shard_bits", &self.shard_bits)
            .field("hash", &self.hash)
            .field("retired", &self.retired)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// One copy of a superblock, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// Zeros.
    Blank,
    /// Foreign data.
    Foreign,
    /// A superblock by its magic, but torn or damaged.
    Damaged,
    /// A valid one of this later version.
    Newer(u32),
    /// A valid one.
    Whole(Superblock),
}

impl Superblock {
    /// The block to write.
    pub(super) fn encode(&self) -> Aligned {
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        let mut fields = Vec::with_capacity(FIELD_BYTES);
        fields.extend(MAGIC);
        fields.extend(VERSION.to_le_bytes());
        fields.extend(self.devices.to_le_bytes());
        fields.extend(0u64.to_le_bytes());
        fields.extend(self.generation.to_le_bytes());
        fields.extend(self.tier.to_le_bytes());
        fields.extend(self.device.to_le_bytes());
        fields.extend(self.seed.to_le_bytes());
        fields.extend(self.region_bytes.to_le_bytes());
        fields.extend(self.regions.to_le_bytes());
        fields.extend(self.number.to_le_bytes());
        fields.extend((if self.state.abandoned { ABANDONED } else { 0 }).to_le_bytes());
        fields.extend(self.state.flushed_below.to_le_bytes());
        fields.extend(self.state.flush_at.to_le_bytes());
        fields.extend(self.shard_bits.to_le_bytes());
        fields.extend(self.state.sequence_floor.to_le_bytes());
        fields.extend(self.state.clean_stop.to_le_bytes());
        fields.extend(self.hash.name.to_le_bytes());
        fields.extend(0u32.to_le_bytes());
        fields.extend(self.state.floor_version.to_le_bytes());
        fields.extend(self.state.floor_from.to_le_bytes());
        fields.extend(0u32.to_le_bytes());
        fields.extend(self.state.region_floor.to_le_bytes());
        fields.extend(self.hash.key);
        fields.extend(self.state.floor_bound.to_le_bytes());
        fields.extend(self.state.feed_from.to_le_bytes());
        fields.extend(self.state.lost.to_le_bytes());
        block[..FIELD_BYTES].copy_from_slice(&fields);
        let retired = &self.retired[..self.retired.len().min(RETIRED_MAX)];
        block[RETIRED..RETIRED + 4].copy_from_slice(&(retired.len() as u32).to_le_bytes());
        for (place, region) in block[RETIRED + 4..].chunks_exact_mut(4).zip(retired) {
            place.copy_from_slice(&region.to_le_bytes());
        }
        let checksum = hash(&block);
        block[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads a block of 4 KiB.
    pub(super) fn decode(block: &[u8]) -> Copied {
        if block.iter().all(|&byte| byte == 0) {
            return Copied::Blank;
        }
        if block[..8] != MAGIC {
            return Copied::Foreign;
        }
        let mut unsigned = block.to_vec();
        unsigned[CHECKSUM].fill(0);
        if hash(&unsigned).to_le_bytes() != block[CHECKSUM] {
            return Copied::Damaged;
        }
        match number32(block, 8) {
            version @ VERSION_1..=VERSION => Copied::Whole(Self::fields(block, version)),
            later => Copied::Newer(later),
        }
    }

    fn fields(block: &[u8], version: u32) -> Self {
        let hash = if version == VERSION_1 {
            NamedHash::UNNAMED
        } else {
            NamedHash { name: number32(block, 112), key: block[144..176].try_into().expect("32 bytes") }
        };
        let retired = block[RETIRED + 4..].chunks_exact(4).map(|number| number32(number, 0));
        Self {
            devices: number32(block, 12),
            generation: number64(block, 24),
            tier: number64(block, 32),
            device: number64(block, 40),
            seed: number64(block, 48),
            region_bytes: number64(block, 56),
            regions: number64(block, 64),
            number: number32(block, 72),
            shard_bits: number32(block, 92),
            hash,
            retired: retired.take(number32(block, RETIRED) as usize).collect(),
            state: TierState {
                abandoned: number32(block, 76) & ABANDONED != 0,
                flushed_below: number64(block, 80),
                flush_at: number32(block, 88),
                sequence_floor: number64(block, 96),
                clean_stop: number64(block, 104),
                floor_version: number64(block, 120),
                floor_from: number32(block, 128),
                region_floor: number64(block, 136),
                floor_bound: number64(block, 176),
                feed_from: number64(block, 184),
                lost: number64(block, 192),
            },
        }
    }

    /// Writes it as copy `slot` and syncs the device.
    pub(super) fn write(&self, media: &dyn Media, slot: usize) -> io::Result<()> {
        media.write_at(&self.encode(), (slot * BLOCK_BYTES) as u64)?;
        media.sync()
    }
}

fn number32(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(block[offset..offset + 4].try_into().expect("four bytes"))
}

fn number64(block: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(block[offset..offset + 8].try_into().expect("eight bytes"))
}

/// The head of a device: both copies of the superblock combined.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one for each device, at a start")]
pub(super) enum Head {
    /// A blank device, or one with only a torn first superblock.
    Blank,
    /// Foreign data.
    Foreign,
    /// A Moneta device without a valid copy.
    Damaged,
    /// A Moneta device of this later version.
    Newer(u32),
    /// A Moneta device; the index of the newest copy.
    Ours(Superblock, usize),
}

impl Head {
    /// Reads the first MiB of a device: its superblocks, and if there are none, whether the rest is zero. `read` fills a buffer
    /// from an offset, with zeros beyond the end.
    pub(super) fn read(mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>) -> io::Result<Self> {
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        read(&mut block, 0)?;
        let first = Superblock::decode(&block);
        read(&mut block, BLOCK_BYTES as u64)?;
        let head = Self::of(first, Superblock::decode(&block));
        if head == Self::Blank {
            let mut rest = Aligned::zeroed(FIRST_REGION as usize - 2 * BLOCK_BYTES);
            read(&mut rest, 2 * BLOCK_BYTES as u64)?;
            if rest.iter().any(|&byte| byte != 0) {
                return Ok(Self::Foreign);
            }
        }
        Ok(head)
    }

    fn of(first: Copied, second: Copied) -> Self {
        use Copied::{Blank, Damaged, Foreign, Newer, Whole};
        match (first, second) {
            (Newer(version), _) | (_, Newer(version)) => Self::Newer(version),
            (Whole(first), Whole(second)) if second.generation > first.generation => Self::Ours(second, 1),
            (Whole(first), _) => Self::Ours(first, 0),
            (_, Whole(second)) => Self::Ours(second, 1),
            // Regions are written only after both copies.
            (Blank, Blank) | (Damaged, Blank) => Self::Blank,
            (Damaged, _) | (_, Damaged) => Self::Damaged,
            (Foreign, _) | (_, Foreign) => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            generation,
            tier: 0x1122_3344_5566_7788,
            devices: 3,
            device: 0x99AA_BBCC_DDEE_FF00,
            number: 2,
            seed: 0x0102_0304_0506_0708,
            region_bytes: 8 << 20,
            regions: 1234,
            shard_bits: 5,
            hash: NamedHash { name: 2, key: std::array::from_fn(|byte| byte as u8) },
            retired: vec![6, 1000],
            state: TierState {
                flushed_below: 77,
                flush_at: 88,
                sequence_floor: 99,
                clean_stop: 111,
                abandoned: generation.is_multiple_of(2),
                floor_version: 222,
                floor_from: 333,
                region_floor: 444,
                floor_bound: 555,
                feed_from: 666,
                lost: 777,
            },
        }
    }

    fn head(copies: [&[u8]; 2]) -> Head {
        Head::read(|buffer, offset| {
            buffer.fill(0);
            if let Some(copy) = copies.get(offset as usize / BLOCK_BYTES) {
                buffer[..copy.len()].copy_from_slice(copy);
            }
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn every_field_comes_back() {
        for generation in [1, 2] {
            let written = superblock(generation);
            assert_eq!(Superblock::decode(&written.encode()), Copied::Whole(written));
        }
    }

    #[test]
    fn the_layout_is_the_one_drawn() {
        let block = superblock(5).encode();
        assert_eq!(&block[..16], b"MONETASB\x03\0\0\0\x03\0\0\0");
        assert_eq!(block[24], 5);
        assert_eq!(&block[32..40], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(&block[40..48], 0x99AA_BBCC_DDEE_FF00u64.to_le_bytes());
        assert_eq!(&block[48..56], 0x0102_0304_0506_0708u64.to_le_bytes());
        assert_eq!((block[58], block[64], block[72], block[76]), (0x80, 1234u64 as u8, 2, 0));
        assert_eq!((block[80], block[88], block[96], block[104]), (77, 88, 99, 111));
        assert_eq!((block[92], block[112], block[120], block[128], block[129]), (5, 2, 222, 77, 1));
        assert_eq!(block[136..144], 444u64.to_le_bytes());
        assert_eq!(block[144..176], std::array::from_fn::<u8, 32, _>(|byte| byte as u8));
        assert_eq!((block[512], block[516], block[520], block[521]), (2, 6, 0xE8, 3));
        assert_eq!(&block[176..184], 555u64.to_le_bytes());
        assert_eq!((&block[184..192], &block[192..200]), (&666u64.to_le_bytes()[..], &777u64.to_le_bytes()[..]));
        assert!(block[200..512].iter().chain(&block[524..]).all(|&byte| byte == 0));
    }

    #[test]
    fn version_1_is_read_and_an_older_build_refuses_what_replaces_it() {
        let mut block = superblock(5).encode().to_vec();
        block[8] = 1;
        block[92..96].fill(0);
        block[112..].fill(0);
        sign(&mut block);
        let found = match Superblock::decode(&block) {
            Copied::Whole(found) => found,
            other => panic!("{other:?}"),
        };
        let state = TierState {
            floor_version: 0,
            floor_from: 0,
            region_floor: 0,
            floor_bound: 0,
            feed_from: 0,
            lost: 0,
            ..superblock(5).state
        };
        let expected =
            Superblock { shard_bits: 0, hash: NamedHash::UNNAMED, retired: Vec::new(), state, ..superblock(5) };
        assert_eq!(found, expected);
        // What is written is version 3: a build that knows only the first takes either copy of it for a newer one's.
        assert_eq!(number32(&found.encode(), 8), 3);
    }

    #[test]
    fn what_is_printed_has_neither_seed_nor_secret() {
        let printed = format!("{:?}", superblock(5));
        let secrets = ["seed", "72623859790382856", "[0, 1, 2", "key"];
        assert!(secrets.iter().all(|secret| !printed.contains(secret)), "{printed}");
        assert!(printed.contains("hash: NamedHash { name: 2, .. }"), "{printed}");
    }

    #[test]
    fn more_retired_regions_than_there_is_room_for_are_cut_off() {
        let written = Superblock { retired: (0..2000).collect(), ..superblock(1) };
        let expected = Superblock { retired: (0..RETIRED_MAX as u32).collect(), ..superblock(1) };
        assert_eq!(Superblock::decode(&written.encode()), Copied::Whole(expected));
    }

    fn sign(block: &mut [u8]) {
        block[CHECKSUM].fill(0);
        let checksum = hash(block);
        block[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let whole = superblock(3).encode();
        for bit in 0..8 * BLOCK_BYTES {
            let mut block = whole.to_vec();
            block[bit / 8] ^= 1 << (bit % 8);
            let found = Superblock::decode(&block);
            assert!(matches!(found, Copied::Damaged | Copied::Foreign), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn the_newest_whole_copy_counts() {
        let (old, new) = (superblock(6).encode(), superblock(7).encode());
        let mut torn = new.to_vec();
        torn[60..].fill(0);
        assert_eq!(head([&old, &new]), Head::Ours(superblock(7), 1));
        assert_eq!(head([&new, &old]), Head::Ours(superblock(7), 0));
        assert_eq!(head([&old, &torn]), Head::Ours(superblock(6), 0));
        assert_eq!(head([&torn, &old]), Head::Ours(superblock(6), 1));
        assert_eq!(head([&torn, &torn]), Head::Damaged);
    }

    #[test]
    fn a_first_write_cut_short_leaves_a_blank_device() {
        let first = superblock(1).encode();
        assert_eq!(head([&first[..100], &[]]), Head::Blank);
        assert_eq!(head([&[], &[]]), Head::Blank);
        assert_eq!(head([&first, &[]]), Head::Ours(superblock(1), 0));
    }

    #[test]
    fn what_is_not_ours_is_told_apart_from_what_is_blank() {
        assert_eq!(head([b"#!/bin/sh\n", &[]]), Head::Foreign);
        assert_eq!(head([&[], b"later"]), Head::Foreign);
        let beyond = Head::read(|buffer, offset| {
            buffer.fill(u8::from(offset > BLOCK_BYTES as u64));
            Ok(())
        });
        assert_eq!(beyond.unwrap(), Head::Foreign);
    }

    #[test]
    fn a_newer_version_is_told_if_its_checksum_holds() {
        let mut block = superblock(3).encode().to_vec();
        block[8] = 4;
        assert_eq!(Superblock::decode(&block), Copied::Damaged);
        sign(&mut block);
        assert_eq!(head([&superblock(3).encode(), &block]), Head::Newer(4));
    }
}
