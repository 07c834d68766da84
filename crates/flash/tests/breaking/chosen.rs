//! Keys that a client chooses so that they share an index entry with another client's: the item stored last would replace the
//! other. The silent failure is a hash of which such keys can be had without its secret, or one that changes in the life of a
//! tier, so that nothing is found any more.

use std::sync::Arc;

use moneta_flash::Flash;
use moneta_flash::testing::MemoryMedia;
use moneta_store::{Clock, KeyHash, Store};
use xxhash_rust::xxh3::xxh3_64;

use crate::drive::{START, config, device_bytes, get, open, set, wait};

/// Keys of one hash under [`SEED`] and one in 1,400 other seeds of XXH3 (xxHash's issue 1127).
const PAIR: [[u8; 32]; 2] = [
    *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x51\x15\x12\x10\x40\x44\0\0\0\0\0\x82\x04\0\x01\x05",
    *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xae\xea\xed\xef\xbf\xbb\xff\xff\xff\xff\xff\x7d\xfb\xff\xfe\xfa",
];
const SEED: u64 = 0x2468_b3bc_26a4_4073;

/// Bytes of a superblock, of which there are two.
const SUPERBLOCK: usize = 4096;

/// Makes an empty tier one of an earlier build of the same format, whose keys are hashed under a seed.
fn hash_by_seed(media: &MemoryMedia, seed: u64) {
    media.tamper(|image| {
        for block in image[..2 * SUPERBLOCK].chunks_exact_mut(SUPERBLOCK) {
            block[48..56].copy_from_slice(&seed.to_le_bytes());
            block[112..116].copy_from_slice(&1u32.to_le_bytes());
            block[144..176].fill(0);
            block[16..24].fill(0);
            let checksum = xxh3_64(block);
            block[16..24].copy_from_slice(&checksum.to_le_bytes());
        }
    });
}

/// Number and secret of the hash in both copies of the superblock.
fn hashes(media: &MemoryMedia) -> [(u8, Vec<u8>); 2] {
    let image = media.image();
    [0, SUPERBLOCK].map(|copy| (image[copy + 112], image[copy + 144..copy + 176].to_vec()))
}

/// Stores both keys of the pair, in different blocks: of those in one block each is found, whatever its entry.
fn set_both(flash: &Flash) {
    set(flash, &PAIR[0], b"one's", 0).unwrap();
    set(flash, b"between", &[0; 8192], 0).unwrap();
    set(flash, &PAIR[1], b"two's", 0).unwrap();
}

#[test]
fn one_client_s_key_does_not_displace_another_s() {
    let clock = Arc::new(Clock::manual(START));
    for _ in 0..8 {
        let flash = open(MemoryMedia::new(device_bytes(24)), &config(), &clock);
        set_both(&flash);
        let found = PAIR.map(|key| get(&flash, &key).unwrap());
        assert_eq!(found, [Some(b"one's".to_vec()), Some(b"two's".to_vec())]);
    }
}

#[test]
fn a_tier_that_was_hashed_under_a_seed_stays_so() {
    let (media, clock) = (MemoryMedia::new(device_bytes(24)), Arc::new(Clock::manual(START)));
    drop(open(media.clone(), &config(), &clock));
    hash_by_seed(&media, SEED);
    let flash = open(media.clone(), &config(), &clock);
    assert_eq!(flash.seed(), KeyHash::seeded(SEED));
    set(&flash, b"key", b"value", 0).unwrap();
    // What the keyed hash is for.
    set_both(&flash);
    assert_eq!(get(&flash, &PAIR[0]).unwrap(), None);
    wait(flash.sync()).unwrap();
    flash.crash();
    let flash = open(media.clone(), &config(), &clock);
    assert_eq!(flash.seed(), KeyHash::seeded(SEED));
    assert_eq!(get(&flash, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(get(&flash, &PAIR[1]).unwrap().as_deref(), Some(&b"two's"[..]));
    assert_eq!(hashes(&media), [(1, vec![0; 32]), (1, vec![0; 32])]);
}

#[test]
fn a_new_tier_has_a_secret_which_it_keeps_and_no_other_tier_has() {
    let (media, clock) = (MemoryMedia::new(device_bytes(24)), Arc::new(Clock::manual(START)));
    let flash = open(media.clone(), &config(), &clock);
    let hash = flash.seed();
    assert_eq!(hash.name(), "aes-cmac");
    set(&flash, b"key", b"value", 0).unwrap();
    drop(flash);
    let [(name, secret), second] = hashes(&media);
    assert_eq!((name, &secret), (2, &second.1));
    assert!(secret[..16] != [0; 16] && secret[16..] == [0; 16]);
    let flash = open(media.clone(), &config(), &clock);
    assert_eq!(flash.seed(), hash);
    assert_eq!(get(&flash, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(flash);
    assert_eq!(hashes(&media)[0].1, secret);
    assert_ne!(open(MemoryMedia::new(device_bytes(24)), &config(), &clock).seed(), hash);
}
