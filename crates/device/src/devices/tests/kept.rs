//! Tiers that are kept, and those that start empty and say why.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::{MIB, REGION, assert_says, config, in_ram, kept, open, paths, refusal};
use crate::config::TierConfig;
use crate::devices::{Devices, TierState};
use crate::io::testing::MemoryMedia;
use crate::io::{Aligned, Media};

/// Why an existing tier starts empty under `start_empty`. Checks that it is refused unchanged without that option.
fn started_empty(devices: &[(&Path, u64)]) -> (u64, String) {
    let bytes = || devices.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = bytes();
    assert_says(&refusal(devices), &["cannot be kept", "give all of it as it was", "flash_start_empty"]);
    assert!(bytes() == before, "the refusal changed something");
    let opened = Devices::open(&TierConfig { start_empty: true, ..config(devices) }).unwrap();
    assert!(opened.fresh);
    (opened.devices.tier(), opened.why_fresh.unwrap())
}

#[test]
fn a_new_file_is_allocated_whole_and_found_again_with_its_state() {
    let (_folder, [path]) = paths();
    let opened = open(&[(&path, 9 * MIB)]).unwrap();
    assert!(opened.fresh && opened.why_fresh.is_none());
    let devices = opened.devices;
    assert_eq!(devices.regions(), 32);
    let (tier, seed, layout) = (devices.tier(), (devices.seed(), devices.key_hash()), devices.layout());
    let state = TierState { flushed_below: 5, flush_at: 6, sequence_floor: 7, clean_stop: 8, ..TierState::default() };
    for _ in 0..3 {
        devices.save(&state).unwrap();
    }
    drop(devices);
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!(found.len(), 9 * MIB);
    assert!(found.blocks() * 512 >= 9 * MIB, "no hole");

    let opened = open(&[(&path, 9 * MIB)]).unwrap();
    assert!(!opened.fresh && opened.why_fresh.is_none());
    let devices = opened.devices;
    let found = (devices.tier(), (devices.seed(), devices.key_hash()), devices.layout(), devices.state());
    assert_eq!(found, (tier, seed, layout, state));
    assert_eq!(devices.region_bytes(), REGION as usize);
    assert_eq!(devices.snapshot_path(), Some(path.with_file_name("device-0.snapshot")));
}

#[test]
fn a_directory_gets_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(&[(folder.path(), 6 * MIB)]).unwrap();
    assert_eq!(opened.devices.snapshot_path(), Some(folder.path().join("moneta.flash.snapshot")));
    assert_eq!(std::fs::metadata(folder.path().join("moneta.flash")).unwrap().len(), 6 * MIB);
}

#[test]
fn regions_of_several_devices_alternate_and_the_larger_one_has_the_rest() {
    let (_folder, [small, large]) = paths();
    let opened = open(&[(&small, MIB + 2 * REGION), (&large, MIB + 20 * REGION)]).unwrap();
    let devices = opened.devices;
    let places: Vec<(usize, u64)> = (0..5).map(|region| devices.place(region)).collect();
    assert_eq!(places, [(0, MIB), (1, MIB), (0, MIB + REGION), (1, MIB + REGION), (1, MIB + 2 * REGION)]);
    assert_eq!(devices.regions(), 22);
    assert_eq!(devices.place(21), (1, MIB + 19 * REGION));
    let end = devices.place(21).1 + REGION;
    assert!(end <= devices.media(1).bytes());
}

#[test]
fn a_device_that_grows_or_joins_keeps_the_tier_but_not_the_layout() {
    let (_folder, [first, second]) = paths();
    let devices = open(&[(&first, 6 * MIB)]).unwrap().devices;
    let (tier, layout) = (devices.tier(), devices.layout());
    devices.save(&TierState { clean_stop: 3, ..TierState::default() }).unwrap();
    drop(devices);

    let grown = open(&[(&first, 8 * MIB)]).unwrap();
    assert!(!grown.fresh);
    assert_eq!((grown.devices.regions(), grown.devices.tier()), (28, tier));
    assert_eq!(grown.devices.state().clean_stop, 3);
    let grown_layout = grown.devices.layout();
    assert_ne!(grown_layout, layout);
    drop(grown);

    let joined = open(&[(&second, 6 * MIB), (&first, 8 * MIB)]).unwrap();
    assert!(!joined.fresh);
    assert_eq!((joined.devices.regions(), joined.devices.tier()), (48, tier));
    assert_eq!(joined.devices.state().clean_stop, 3);
    let joined_layout = joined.devices.layout();
    drop(joined);

    let other_order = open(&[(&first, 8 * MIB), (&second, 6 * MIB)]).unwrap();
    assert!(!other_order.fresh);
    let layouts = [layout, grown_layout, joined_layout, other_order.devices.layout()];
    assert!((0..4).all(|one| (0..one).all(|other| layouts[one] != layouts[other])));
}

/// Turns both superblocks of a device into version 1, which names no shard bits.
fn as_version_1(image: &mut [u8]) {
    for block in image[..8192].chunks_exact_mut(4096) {
        block[8] = 1;
        block[16..24].fill(0);
        block[92..96].fill(0);
        block[112..].fill(0);
        let checksum = crate::format::hash::hash(block);
        block[16..24].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn the_shard_bits_of_a_tier_stay_whatever_it_grows_to() {
    let config = TierConfig { region_bytes: 64 << 20, ..in_ram() };
    let sparse = |bytes: u64| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        Arc::new(crate::io::FileMedia::new(file.try_clone().unwrap(), vec![file], bytes)) as Arc<dyn Media>
    };
    let on = |media: &Arc<dyn Media>| Devices::on(vec![media.clone()], &config).unwrap();
    // 9 GiB are 36 times 256 MiB, so 64 shards; 17 GiB are 68 times, so 128.
    let (before, after) = (sparse((9 << 30) + MIB), sparse((17 << 30) + MIB));
    assert_eq!(on(&before).devices.shard_bits(), 6);
    assert_eq!(on(&sparse((17 << 30) + MIB)).devices.shard_bits(), 7);
    for from_version_1 in [false, true] {
        let mut head = Aligned::zeroed(MIB as usize);
        before.read_at(&mut head, 0).unwrap();
        if from_version_1 {
            as_version_1(&mut head);
        }
        after.write_at(&head, 0).unwrap();
        let grown = on(&after);
        assert!(!grown.fresh);
        assert_eq!((grown.devices.regions(), grown.devices.shard_bits()), (17 * 16, 6));
        assert_eq!(on(&after).devices.shard_bits(), 6, "and at the next start");
    }
}

#[test]
fn retired_regions_are_remembered_on_their_devices() {
    let media: Vec<Arc<dyn Media>> = vec![MemoryMedia::new(6 * MIB), MemoryMedia::new(6 * MIB)];
    let config = in_ram();
    let devices = Devices::on(media.clone(), &config).unwrap().devices;
    assert_eq!(devices.retired(), []);
    for region in [3, 8, 3] {
        devices.retire(region).unwrap();
    }
    for region in [5, 6, 8] {
        devices.note_bad(region).unwrap();
    }
    devices.retire(6).unwrap();
    drop(devices);
    let devices = Devices::on(media.clone(), &config).unwrap().devices;
    assert_eq!((devices.retired(), devices.bad()), (vec![3, 6, 8], vec![5]));
    drop(devices);
    // In the tier that begins with one of the devices alone, its bad blocks are still marked.
    let config = TierConfig { start_empty: true, ..config };
    let alone = Devices::on(vec![media[1].clone()], &config).unwrap();
    assert!(alone.fresh);
    assert_eq!((alone.devices.retired(), alone.devices.bad()), (vec![1, 2], vec![]));
}

#[test]
fn a_device_that_shrinks_or_leaves_is_refused_or_makes_the_tier_start_empty_if_that_is_wanted() {
    let (_folder, [first, second]) = paths();
    let both = [(first.as_path(), 6 * MIB), (second.as_path(), 6 * MIB)];
    let devices = open(&both).unwrap().devices;
    devices.save(&TierState { flushed_below: 9, sequence_floor: 1234, clean_stop: 5, ..TierState::default() }).unwrap();
    let tier = devices.tier();
    drop(devices);

    let (smaller, why) = started_empty(&[(&first, 6 * MIB), (&second, 5 * MIB)]);
    assert_ne!(smaller, tier);
    assert_says(&why, &["device-1", "smaller", "6 MiB before"]);
    assert_eq!(std::fs::metadata(&second).unwrap().len(), 5 * MIB);
    let again = open(&[(&first, 6 * MIB), (&second, 5 * MIB)]).unwrap();
    assert!(!again.fresh && again.devices.tier() == smaller);
    assert_eq!(
        again.devices.state(),
        TierState { sequence_floor: 1234, ..TierState::default() },
        "only the floor stays"
    );
    drop(again);

    let (alone, why) = started_empty(&[(&first, 6 * MIB)]);
    assert_ne!(alone, smaller);
    assert_says(&why, &["1 of the 2 devices of the tier is missing"]);
    // The device that was left out is unchanged, and is not combined with the tier that began without it.
    assert_says(&refusal(&both), &["device-1", "belongs to another tier than", "device-0"]);
    assert_eq!(kept(&[(&first, 6 * MIB)]), alone);
}

#[test]
fn a_file_cut_behind_our_back_is_refused_or_makes_the_tier_start_empty_if_that_is_wanted() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 6 * MIB)]).unwrap());
    File::options().write(true).open(&path).unwrap().set_len(5 * MIB).unwrap();
    assert_says(&started_empty(&[(&path, 6 * MIB)]).1, &["smaller"]);
}

#[test]
fn a_tier_that_was_given_up_starts_empty() {
    let (_folder, [first, second]) = paths();
    let both = [(first.as_path(), 6 * MIB), (second.as_path(), 6 * MIB)];
    let devices = open(&both).unwrap().devices;
    let tier = devices.tier();
    devices.save(&TierState { abandoned: true, sequence_floor: 88, ..TierState::default() }).unwrap();
    drop(devices);
    let opened = open(&both).unwrap();
    assert!(opened.fresh && opened.devices.tier() != tier);
    assert_says(&opened.why_fresh.unwrap(), &["given up"]);
    assert_eq!(opened.devices.state(), TierState { sequence_floor: 88, ..TierState::default() });
}

#[test]
fn an_empty_or_zero_file_is_taken() {
    let (_folder, [empty, zeros]) = paths();
    File::create(&empty).unwrap();
    File::create(&zeros).unwrap().write_all(&[0; 100_000]).unwrap();
    for path in [empty, zeros] {
        let opened = open(&[(&path, 6 * MIB)]).unwrap();
        assert!(opened.fresh && opened.why_fresh.is_none());
    }
}

#[test]
fn a_region_size_that_was_not_chosen_gives_way_to_the_one_that_is_there() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 20 * MIB)]).unwrap());
    let open = |least: u64, region_bytes: u64| {
        let config = config(&[(&path, 20 * MIB)]);
        Devices::open(&TierConfig { region_bytes: region_bytes as usize, region_bytes_kept: Some(least), ..config })
    };
    for region_bytes in [MIB, REGION] {
        let opened = open(REGION, region_bytes).unwrap();
        assert!(!opened.fresh && opened.devices.region_bytes() as u64 == REGION);
    }
    let too_small = open(REGION + 4096, MIB).err().unwrap().to_string();
    assert_says(&too_small, &["made with regions of 256 KiB, not 1 MiB"]);
}

#[test]
fn direct_and_buffered_media_read_what_the_other_wrote() {
    let (_folder, [path]) = paths();
    let mut block = Aligned::zeroed(4096);
    for (number, direct) in [true, false, true].into_iter().enumerate() {
        let opened = Devices::open(&TierConfig { direct, ..config(&[(&path, 6 * MIB)]) }).unwrap();
        let media = opened.devices.media(0);
        media.read_at(&mut block, MIB).unwrap();
        assert!(block.iter().all(|&byte| byte == number as u8));
        block.fill(number as u8 + 1);
        media.write_at(&block, MIB).unwrap();
        media.sync().unwrap();
    }
}
