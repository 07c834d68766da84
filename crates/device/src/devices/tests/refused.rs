//! What is refused, untouched, with a sentence that says what to do.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MIB, assert_says, config, in_ram, kept, open, paths, refusal};
use crate::config::TierConfig;
use crate::devices::Devices;
use crate::io::testing::MemoryMedia;

#[test]
fn a_tier_hashed_by_a_function_that_this_build_lacks_is_refused() {
    let media = MemoryMedia::new(6 * MIB);
    let config = in_ram();
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
fn another_region_size_is_refused_with_the_one_to_give() {
    let (_folder, [path]) = paths();
    drop(open(&[(&path, 20 * MIB)]).unwrap());
    let before = std::fs::read(&path).unwrap();
    let other = TierConfig { region_bytes: MIB as usize, ..config(&[(&path, 20 * MIB)]) };
    let sentence = Devices::open(&other).err().unwrap().to_string();
    assert_says(&sentence, &["made with regions of 256 KiB, not 1 MiB", "give a region size of 256 KiB"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let odd = TierConfig { region_bytes: 5000, ..config(&[(&path, 20 * MIB)]) };
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
