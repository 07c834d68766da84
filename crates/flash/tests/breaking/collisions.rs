//! Keys that the index takes for one another: what is acknowledged for one of them must hold whatever is done to the other,
//! also after a crash. The silent failure is a recovery that tells them apart where the running index does not: a deleted
//! value comes back, or a stored one is gone.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{Flash, FlashConfig, Media};
use moneta_store::{Clock, Deleted, Key, KeyHash, Store};

use crate::drive::{START, config, delete, device_bytes, get, numbers, open, set, wait};

/// The lowest bits of a hash, which choose the place in the index of a shard.
const PLACE: u64 = (1 << 36) - 1;

/// A hash as an index of `1 << shard_bits` shards sees it.
pub fn identity(hash: u64, shard_bits: u32) -> u64 {
    hash & PLACE | hash >> (64 - shard_bits) << 36
}

/// Two keys that an index of `1 << shard_bits` shards takes for one, and one of twice the shards does not.
pub fn colliding(seed: KeyHash, shard_bits: u32) -> (Vec<u8>, Vec<u8>) {
    // Of 2^22 keys there are about eight pairs that agree in 40 bits, half of which differ in the next: none in one of 50 rounds.
    (0..).find_map(|round| colliding_among(seed, shard_bits, round)).expect("a round has such a pair")
}

fn colliding_among(seed: KeyHash, shard_bits: u32, round: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    let name = |number: u32| format!("{round:x}:{number:08x}").into_bytes();
    let hash = |number: u32| Key::new(&name(number), seed).hash;
    let mut hashes: Vec<(u64, u32)> = (0..1 << 22).map(|number| (identity(hash(number), shard_bits), number)).collect();
    hashes.sort_unstable();
    let mut pairs = hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| (pair[0].1, pair[1].1));
    let apart = |&(a, b): &(u32, u32)| identity(hash(a), shard_bits + 1) != identity(hash(b), shard_bits + 1);
    pairs.find(apart).map(|(a, b)| (name(a), name(b)))
}

/// A tier of 16 shards, and two keys that share an entry in its index.
fn tier(regions: u64, carry_percent: u8) -> (Arc<MemoryMedia>, Arc<Clock>, Flash, Vec<u8>, Vec<u8>) {
    let (media, clock) = (MemoryMedia::new(device_bytes(regions)), Arc::new(Clock::manual(START)));
    let config = FlashConfig { carry_percent, ..config() };
    let flash = open(media.clone(), &config, &clock);
    let (a, b) = colliding(flash.seed(), 4);
    (media, clock, flash, a, b)
}

/// Kills the node when all is on the device, and starts it again.
fn restart(media: &Arc<MemoryMedia>, clock: &Arc<Clock>, flash: Flash) -> Flash {
    wait(flash.sync()).unwrap();
    flash.crash();
    open(media.clone(), &config(), clock)
}

#[test]
fn a_key_whose_entry_another_took_stays_deleted_after_a_crash() {
    let (media, clock, flash, a, b) = tier(24, 0);
    set(&flash, &a, b"of A", 0).unwrap();
    set(&flash, &b, b"of B", 0).unwrap();
    assert_eq!(delete(&flash, &b).unwrap(), Deleted::Deleted);
    delete(&flash, &a).unwrap();
    assert_eq!(get(&flash, &a).unwrap(), None);
    let flash = restart(&media, &clock, flash);
    assert_eq!((get(&flash, &a).unwrap(), get(&flash, &b).unwrap()), (None, None));
}

#[test]
fn a_key_that_is_stored_after_the_delete_of_one_it_is_taken_for_stays_stored() {
    let (media, clock, flash, a, b) = tier(24, 0);
    // The region of what lives up to ten minutes is begun before the one of the tombstone.
    set(&flash, b"short", b"lived", 60).unwrap();
    set(&flash, &b, b"of B", 0).unwrap();
    assert_eq!(delete(&flash, &b).unwrap(), Deleted::Deleted);
    set(&flash, &a, b"of A", 60).unwrap();
    let flash = restart(&media, &clock, flash);
    assert_eq!(get(&flash, &a).unwrap().as_deref(), Some(&b"of A"[..]));
    assert_eq!(get(&flash, &b).unwrap(), None);
}

#[test]
fn a_deleted_key_is_not_carried_forward_for_one_it_is_taken_for() {
    // A tenth of a region may be carried for each that is emptied: less than what B takes.
    let (_, _, flash, a, b) = tier(24, 10);
    set(&flash, &a, b"of A", 0).unwrap();
    delete(&flash, &a).unwrap();
    set(&flash, &b, &[b'b'; 40 << 10], 0).unwrap();
    // It is read, so that it is worth carrying, until its region is emptied.
    let mut written = 0;
    while get(&flash, &b).unwrap().is_some() {
        set(&flash, format!("filler {written}").as_bytes(), &[b'f'; 16 << 10], 0).unwrap();
        written += 1;
        assert!(written < 1000, "the region of B is not emptied, or B was carried");
    }
    assert_eq!(get(&flash, &a).unwrap(), None, "it was deleted");
}

/// A device of many GiB that takes no more memory than was written to it.
struct Sparse {
    bytes: u64,
    blocks: Mutex<HashMap<u64, [u8; BLOCK]>>,
}

const BLOCK: usize = 4096;

impl Sparse {
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, blocks: Mutex::default() })
    }

    /// The same device, larger.
    fn grown(&self, bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, blocks: Mutex::new(self.blocks.lock().unwrap().clone()) })
    }
}

impl Media for Sparse {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let blocks = self.blocks.lock().unwrap();
        for (number, part) in (offset / BLOCK as u64..).zip(buffer.chunks_mut(BLOCK)) {
            match blocks.get(&number) {
                Some(block) => part.copy_from_slice(&block[..part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut blocks = self.blocks.lock().unwrap();
        for (number, part) in (offset / BLOCK as u64..).zip(bytes.chunks(BLOCK)) {
            blocks.insert(number, part.try_into().expect("whole blocks"));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn keys_that_share_an_entry_share_it_in_a_tier_that_has_grown() {
    let clock = Arc::new(Clock::manual(START));
    let config = FlashConfig { region_bytes: 8 << 20, ..config() };
    let media = Sparse::new(1 << 30);
    let flash = open(media.clone(), &config, &clock);
    let (a, b) = colliding(flash.seed(), 4);
    set(&flash, &a, b"of A", 0).unwrap();
    set(&flash, &b, b"of B", 0).unwrap();
    assert_eq!(delete(&flash, &b).unwrap(), Deleted::Deleted);
    delete(&flash, &a).unwrap();
    wait(flash.sync()).unwrap();
    flash.crash();
    // A tier that begins with 8 GiB has 32 shards.
    let flash = open(media.grown(8 << 30), &config, &clock);
    assert!(numbers(&flash).device_bytes > 4 << 30, "the tier has grown");
    assert_eq!((get(&flash, &a).unwrap(), get(&flash, &b).unwrap()), (None, None));
}
