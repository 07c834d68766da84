//! Opening devices: which tiers are kept, start empty or are refused, with which message, and that a refusal changes nothing.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use tempfile::TempDir;

use super::{Devices, Opened, TierState};
use crate::config::{DeviceConfig, FlashConfig};
use crate::error::FlashError;
use crate::io::testing::{Faults, FaultyMedia, MemoryMedia, RecordingMedia};
use crate::io::{Aligned, Media};

const REGION: u64 = 256 << 10;
const MIB: u64 = 1 << 20;

fn config(devices: &[(&Path, u64)]) -> FlashConfig {
    let devices =
        devices.iter().map(|(path, bytes)| DeviceConfig { path: path.to_path_buf(), bytes: *bytes }).collect();
    FlashConfig { region_bytes: REGION as usize, ..FlashConfig::new(devices) }
}

fn open(devices: &[(&Path, u64)]) -> Result<Opened, FlashError> {
    Devices::open(&config(devices))
}

fn refusal(devices: &[(&Path, u64)]) -> String {
    match open(devices) {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    }
}

/// A temporary folder and some paths in it.
fn paths<const N: usize>() -> (TempDir, [PathBuf; N]) {
    let folder = tempfile::tempdir().unwrap();
    let paths = std::array::from_fn(|number| folder.path().join(format!("device-{number}")));
    (folder, paths)
}

fn assert_says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
}

/// The identity of a tier that is kept.
fn kept(devices: &[(&Path, u64)]) -> u64 {
    let opened = open(devices).unwrap();
    assert!(!opened.fresh && opened.why_fresh.is_none());
    opened.devices.tier()
}

/// Why an existing tier starts empty under `start_empty`. Checks that it is refused unchanged without that option.
fn started_empty(devices: &[(&Path, u64)]) -> (u64, String) {
    let bytes = || devices.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = bytes();
    assert_says(&refusal(devices), &["cannot be kept", "give all of it as it was", "flash_start_empty"]);
    assert!(bytes() == before, "the refusal changed something");
    let opened = Devices::open(&FlashConfig { start_empty: true, ..config(devices) }).unwrap();
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
    let config = FlashConfig { region_bytes: 64 << 20, ..config(&[]).with_a_device() };
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
    let config = config(&[]).with_a_device();
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
    let config = FlashConfig { start_empty: true, ..config };
    let alone = Devices::on(vec![media[1].clone()], &config).unwrap();
    assert!(alone.fresh);
    assert_eq!((alone.devices.retired(), alone.devices.bad()), (vec![1, 2], vec![]));
}

#[test]
fn a_tier_hashed_by_a_function_that_this_build_lacks_is_refused() {
    let media = MemoryMedia::new(6 * MIB);
    let config = config(&[]).with_a_device();
    drop(Devices::on(vec![media.clone()], &config).unwrap());
    media.tamper(|image| {
        for block in image[..8192].chunks_exact_mut(4096) {
            block[112] = 9;
            block[16..24].fill(0);
            let checksum = crate::format::hash::hash(block);
            block[16..24].copy_from_slice(&checksum.to_le_bytes());
        }
    });
    let refused = Devices::on(vec![media], &config).err().unwrap().to_string();
    assert_says(&refused, &["another function (number 9)", "begin anew"]);
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
fn too_little_room_is_refused_with_the_least_size() {
    let (folder, [first, second]) = paths();
    let sentence = refusal(&[(&first, 2 * MIB)]);
    assert_says(&sentence, &["device-0", "2 MiB is too small", "16 regions of 256 KiB", "at least 5 MiB"]);
    drop(open(&[(&first, 5 * MIB)]).unwrap());
    let sentence = refusal(&[(&first, 5 * MIB), (&second, MIB)]);
    assert_says(&sentence, &["device-1", "at least 1280 KiB"]);
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["device-0", "device-0.lock"], "the files made for the other are gone");
    kept(&[(&first, 5 * MIB)]);
}

#[test]
fn a_full_file_system_is_refused_with_what_is_missing() {
    let (folder, [path]) = paths();
    let sentence = refusal(&[(&path, 1 << 50)]);
    assert_says(&sentence, &["device-0", "needs 1048576 GiB more", "are free"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    drop(open(&[(&path, 5 * MIB)]).unwrap());
    let before = std::fs::read(&path).unwrap();
    assert_says(&refusal(&[(&path, 1 << 50)]), &["more on its file system"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_not_ours_is_refused_untouched() {
    let (_folder, [script, late, short]) = paths();
    let cases: [(&PathBuf, u64, &[u8]); 3] =
        [(&script, 0, b"#!/bin/sh\nexit 1\n"), (&late, 700_000, b"a table"), (&short, 5000, b"x")];
    for (path, offset, content) in cases {
        File::create(path).unwrap().write_all_at(content, offset).unwrap();
        let before = std::fs::read(path).unwrap();
        assert_says(&refusal(&[(path, 6 * MIB)]), &["not Moneta's", "remove the file"]);
        assert_eq!(std::fs::read(path).unwrap(), before);
    }
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
fn damage_and_a_newer_version_are_refused_untouched() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 6 * MIB)]).unwrap());
    let whole = std::fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    // One damaged copy does no harm.
    file.write_all_at(&[0xFF; 4], 40).unwrap();
    kept(&[(&path, 6 * MIB)]);
    file.write_all_at(&[0xFF; 4], 4096 + 40).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_says(&refusal(&[(&path, 6 * MIB)]), &["both copies of its superblock are damaged", "begin anew"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let mut newer = whole[..4096].to_vec();
    newer[8] = 9;
    newer[16..24].fill(0);
    let checksum = crate::format::hash::hash(&newer);
    newer[16..24].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&newer, 0).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_says(&refusal(&[(&path, 6 * MIB)]), &["newer Moneta (format 9)", "start that version"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_region_size_that_was_not_chosen_gives_way_to_the_one_that_is_there() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 20 * MIB)]).unwrap());
    let open = |item_max: usize, region_bytes: u64| {
        let config = config(&[(&path, 20 * MIB)]);
        Devices::open(&FlashConfig { region_bytes: region_bytes as usize, region_bytes_kept: true, item_max, ..config })
    };
    for region_bytes in [MIB, REGION] {
        let opened = open(64 << 10, region_bytes).unwrap();
        assert!(!opened.fresh && opened.devices.region_bytes() as u64 == REGION);
    }
    let too_small = open(65 << 10, MIB).err().unwrap().to_string();
    assert_says(&too_small, &["made with regions of 256 KiB, not 1 MiB"]);
}

#[test]
fn another_region_size_is_refused_with_the_one_to_give() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 20 * MIB)]).unwrap());
    let before = std::fs::read(&path).unwrap();
    let other = FlashConfig { region_bytes: MIB as usize, ..config(&[(&path, 20 * MIB)]) };
    let sentence = Devices::open(&other).err().unwrap().to_string();
    assert_says(&sentence, &["made with regions of 256 KiB, not 1 MiB", "give a region size of 256 KiB"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let odd = FlashConfig { region_bytes: 5000, ..config(&[(&path, 20 * MIB)]) };
    assert_says(&Devices::open(&odd).err().unwrap().to_string(), &["multiple of 4 KiB"]);
    assert_says(&refusal(&[]), &["at least one path"]);
}

#[test]
fn devices_of_two_tiers_and_copies_are_refused_untouched() {
    let (_folder, [first, second, copy]) = paths();
    drop(open(&[(&first, 6 * MIB)]).unwrap());
    drop(open(&[(&second, 6 * MIB)]).unwrap());
    std::fs::copy(&first, &copy).unwrap();
    let before: Vec<Vec<u8>> = [&first, &second, &copy].map(|path| std::fs::read(path).unwrap()).into();
    assert_says(
        &refusal(&[(&first, 6 * MIB), (&second, 6 * MIB)]),
        &["device-1", "belongs to another tier", "device-0"],
    );
    assert_says(&refusal(&[(&first, 6 * MIB), (&copy, 6 * MIB)]), &["device-2", "is a copy of", "device-0"]);
    assert_says(&refusal(&[(&first, 6 * MIB), (&first, 6 * MIB)]), &["is the same as", "once"]);
    for (path, before) in [&first, &second, &copy].into_iter().zip(before) {
        assert!(std::fs::read(path).unwrap() == before, "{} was touched", path.display());
    }
}

#[test]
fn a_device_is_locked_while_it_may_be_written() {
    let (_folder, [path]) = paths();
    let opened = open(&[(&path, 6 * MIB)]).unwrap();
    let media = Arc::clone(opened.devices.media(0));
    drop(opened);
    assert_says(&refusal(&[(&path, 6 * MIB)]), &["in use by another process", "stop that one"]);
    drop(media);
    kept(&[(&path, 6 * MIB)]);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let (folder, [path]) = paths();
    let nowhere = folder.path().join("no/such/place");
    assert_says(&refusal(&[(&nowhere, 6 * MIB)]), &["directory that does not exist", "make the directory"]);
    assert_says(&refusal(&[(Path::new("/dev/null"), 6 * MIB)]), &["neither a file, a directory nor a block device"]);
    drop(open(&[(&path, 6 * MIB)]).unwrap());
}

#[test]
fn without_permission_a_device_is_refused_untouched() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, [path]) = paths();
    drop(open(&[(&path, 6 * MIB)]).unwrap());
    let before = std::fs::read(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Root may write anything, so a separate thread first changes to an unprivileged user, who does not own the folder.
    let root = std::fs::metadata(folder.path()).unwrap().uid() == 0;
    let new = folder.path().join("new");
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            let unprivileged = rustix::thread::Uid::from_raw(65534);
            if root {
                rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged).unwrap();
                assert_says(&refusal(&[(&new, 6 * MIB)]), &["new: this user may not read and write it"]);
            }
            refusal(&[(&path, 6 * MIB)])
        });
        let sentence = refused.join().unwrap();
        assert_says(&sentence, &["device-0", "this user may not read and write it", "change its owner or mode"]);
    });
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn direct_and_buffered_media_read_what_the_other_wrote() {
    let (_folder, [path]) = paths();
    let mut block = Aligned::zeroed(4096);
    for (number, direct) in [true, false, true].into_iter().enumerate() {
        let opened = Devices::open(&FlashConfig { direct, ..config(&[(&path, 6 * MIB)]) }).unwrap();
        let media = opened.devices.media(0);
        media.read_at(&mut block, MIB).unwrap();
        assert!(block.iter().all(|&byte| byte == number as u8));
        block.fill(number as u8 + 1);
        media.write_at(&block, MIB).unwrap();
        media.sync().unwrap();
    }
}

#[test]
fn a_crash_at_any_byte_of_a_save_leaves_the_state_before_or_after() {
    let recording = RecordingMedia::new(MemoryMedia::new(6 * MIB));
    let config = config(&[]).with_a_device();
    let on = |image: Vec<u8>| Devices::on(vec![MemoryMedia::of(image)], &config).unwrap();
    let devices = Devices::on(vec![recording.clone()], &config).unwrap().devices;
    let made = recording.events();
    let states: Vec<TierState> =
        (1..5).map(|number| TierState { flushed_below: number, ..TierState::default() }).collect();
    states.iter().for_each(|state| devices.save(state).unwrap());
    let mut cuts = 0;
    recording.each_cut(512, |cut, image| {
        let opened = on(image.to_vec());
        cuts += 1;
        if cut.events < made {
            return;
        }
        assert!(!opened.fresh, "{cut:?}");
        assert_eq!(opened.devices.tier(), devices.tier());
        // Two events a save: the write and the sync.
        let saved = (cut.events - made).div_ceil(2) as u64;
        let found = opened.devices.state().flushed_below;
        assert!(found == saved || found == saved + 1, "{cut:?}: {found}");
    });
    assert!(cuts > 4 * 8);
}

#[test]
fn a_start_cut_short_at_any_write_can_be_repeated() {
    // Two devices, of which the second is new, or has become smaller: the writes to both are cut together.
    for smaller in [false, true] {
        let (first, second) = (MemoryMedia::new(6 * MIB), MemoryMedia::new(6 * MIB));
        let config = FlashConfig { start_empty: true, ..config(&[]).with_a_device() };
        let before: Vec<Arc<dyn Media>> = match smaller {
            true => vec![first.clone(), second.clone()],
            false => vec![first.clone()],
        };
        let tier = Devices::on(before, &config).unwrap().devices.tier();
        for allowed in 0.. {
            let copies = [first.image(), second.image()].map(MemoryMedia::of);
            let mut image = copies[1].image();
            image.truncate(if smaller { 5 * MIB as usize } else { 6 * MIB as usize });
            let second = MemoryMedia::of(image);
            let budget = Budget::new(allowed);
            let limited: Vec<Arc<dyn Media>> = vec![budget.over(copies[0].clone()), budget.over(second.clone())];
            let done = Devices::on(limited, &config).is_ok();
            let opened = Devices::on(vec![copies[0].clone(), second], &config)
                .unwrap_or_else(|error| panic!("after {allowed} writes: {error}"));
            assert_eq!(opened.devices.tier() == tier, !smaller, "after {allowed} writes");
            if done {
                assert!(!opened.fresh && allowed > 2);
                break;
            }
        }
    }
}

#[test]
fn a_first_start_cut_short_at_any_write_leaves_no_tier_that_lacks_a_device() {
    let config = config(&[]).with_a_device();
    for allowed in 0.. {
        let blank = [MemoryMedia::new(6 * MIB), MemoryMedia::new(6 * MIB)];
        let budget = Budget::new(allowed);
        let limited: Vec<Arc<dyn Media>> = blank.iter().map(|media| budget.over(media.clone())).collect();
        let done = Devices::on(limited, &config).is_ok();
        let again = Devices::on(blank.iter().map(|media| media.clone() as _).collect(), &config);
        let again = again.unwrap_or_else(|error| panic!("after {allowed} writes: {error}"));
        if done {
            assert!(!again.fresh && allowed == 4);
            break;
        }
    }
}

#[test]
fn a_save_that_one_device_fails_reaches_the_others() {
    let faulty = FaultyMedia::new(MemoryMedia::new(6 * MIB));
    let sound = MemoryMedia::new(6 * MIB);
    let config = config(&[]).with_a_device();
    let devices = Devices::on(vec![faulty.clone(), sound.clone()], &config).unwrap().devices;
    faulty.set(Faults { writes: true, ..Faults::default() });
    assert!(devices.save(&TierState { abandoned: true, ..TierState::default() }).is_err());
    faulty.set(Faults::default());
    drop(devices);
    assert!(Devices::on(vec![faulty, sound], &config).unwrap().fresh);
}

/// A device of which another thread's sync fails between a write and the sync behind it, and loses the write.
struct Raced {
    image: MemoryMedia,
    /// The device as other threads sync it, until one has.
    others: Mutex<Option<Arc<dyn Media>>>,
    /// What was there before the write.
    before: Mutex<Option<(u64, Aligned)>>,
}

impl Media for Raced {
    fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.image.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let other = self.others.lock().take();
        let mut before = Aligned::zeroed(bytes.len());
        self.image.read_at(&mut before, offset)?;
        self.image.write_at(bytes, offset)?;
        if let Some(other) = other {
            *self.before.lock() = Some((offset, before));
            other.sync().unwrap_err();
        }
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        match self.before.lock().take() {
            Some((offset, before)) => self.image.write_at(&before, offset).and(Err(Errno::IO.into())),
            None => Ok(()),
        }
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

#[test]
fn a_save_that_another_thread_s_failed_sync_lost_has_failed() {
    let image = Arc::into_inner(MemoryMedia::new(6 * MIB)).unwrap();
    let media = Arc::new(Raced { image, others: Mutex::default(), before: Mutex::default() });
    let config = config(&[]).with_a_device();
    let devices = Devices::on(vec![media.clone()], &config).unwrap().devices;
    let state = TierState { flushed_below: 7, ..devices.state() };
    *media.others.lock() = Some(devices.all()[0].clone());
    assert!(devices.save(&state).is_err(), "it is not on the device");
    devices.save(&state).unwrap();
    drop(devices);
    assert_eq!(Devices::on(vec![media], &config).unwrap().devices.state().flushed_below, 7);
}

/// The number of writes, over several devices, that succeed; all later ones fail.
struct Budget(std::sync::atomic::AtomicUsize);

impl Budget {
    fn new(allowed: usize) -> Arc<Self> {
        Arc::new(Self(allowed.into()))
    }

    fn over(self: &Arc<Self>, inner: Arc<MemoryMedia>) -> Arc<dyn Media> {
        Arc::new(Limited { budget: Arc::clone(self), inner })
    }
}

struct Limited {
    budget: Arc<Budget>,
    inner: Arc<MemoryMedia>,
}

impl Media for Limited {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let left = self.budget.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| std::io::Error::other("the power is off"))?;
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

impl FlashConfig {
    /// Devices made by a test need no path, but a configuration must name one.
    fn with_a_device(mut self) -> Self {
        self.devices.push(DeviceConfig { path: "in RAM".into(), bytes: 0 });
        self
    }
}
