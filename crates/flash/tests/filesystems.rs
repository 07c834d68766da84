//! Tiers on file systems of their usual kinds, nearly full ones at that.
//!
//! Guards against a restart that is refused for want of room although the tier has all it needs (XFS wants room again for what
//! is allocated already), and against holes that are left for a later write to find the file system full.
//!
//! Each test mounts an image, for which it must be root and have the tools. Where it cannot, it says so and ends.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::Clock;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// The least that XFS takes is 300 MiB.
const IMAGE: u64 = 600 * MIB;

/// A file system in an image file.
struct Mounted {
    folder: TempDir,
    /// Held to the end: a child process has the locks of all tiers from its fork until it runs its program.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Mounted {
    /// Makes and mounts one; `None`, and a line on stderr, where that cannot be done.
    fn new(kind: &str) -> Option<Self> {
        let alone = ALONE.lock();
        let folder = tempfile::tempdir().expect("a folder");
        let (image, place) = (folder.path().join("image"), folder.path().join("mounted"));
        std::fs::create_dir(&place).expect("a folder");
        std::fs::File::create(&image).and_then(|file| file.set_len(IMAGE)).expect("a sparse file");
        let made = run(&[&format!("mkfs.{kind}"), "-q", path(&image)])
            .and_then(|()| run(&["mount", "-o", "loop", path(&image), path(&place)]));
        match made {
            Ok(()) => Some(Self { folder, _alone: alone }),
            Err(reason) => {
                // The test harness keeps what is printed, but not this.
                let _ = writeln!(std::io::stderr(), "SKIPPED: a tier on {kind} is not tested here: {reason}");
                None
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mounted/moneta.flash")
    }

    fn start(&self, bytes: u64) -> Result<Flash, moneta_flash::TierError> {
        let device = DeviceConfig { path: self.file(), bytes };
        let config = FlashConfig { io: Io::Threads, threads: 1, io_threads: 1, ..FlashConfig::new(vec![device]) };
        Flash::open(&config, Arc::new(Clock::manual(1_700_000_000)))
    }

    fn assert_allocated(&self, bytes: u64) {
        let found = std::fs::metadata(self.file()).expect("the tier's file");
        assert!(found.len() >= bytes && found.blocks() * 512 >= bytes, "{} blocks of 512 bytes", found.blocks());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(reason) = run(&["umount", path(&self.folder.path().join("mounted"))]) {
            let _ = writeln!(std::io::stderr(), "cannot unmount: {reason}");
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}

fn run(command: &[&str]) -> Result<(), String> {
    let ended = Command::new(command[0])
        .args(&command[1..])
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|error| format!("{}: {error}", command[0]))?;
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_string();
    if ended.status.success() { Ok(()) } else { Err(format!("{}: {said}", command[0])) }
}

fn starts_again_and_grows(kind: &str) {
    let Some(mounted) = Mounted::new(kind) else { return };
    drop(mounted.start(400 * MIB).expect("a first start"));
    mounted.assert_allocated(400 * MIB);
    drop(mounted.start(400 * MIB).expect("a start with less free than the tier takes"));
    drop(mounted.start(480 * MIB).expect("a tier that grows by less than is free"));
    mounted.assert_allocated(480 * MIB);
    let refusal = mounted.start(700 * MIB).map(drop).expect_err("there is no room for that").to_string();
    assert!(refusal.contains("on its file system, where"), "{refusal}");
    drop(mounted.start(480 * MIB).expect("a start after a refusal"));
}

fn fills_holes(kind: &str) {
    let Some(mounted) = Mounted::new(kind) else { return };
    drop(mounted.start(400 * MIB).expect("a first start"));
    let file = std::fs::OpenOptions::new().write(true).open(mounted.file()).expect("the tier's file");
    for start in [100, 300] {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, start * MIB, 50 * MIB).expect("a hole");
    }
    drop(file);
    assert!(std::fs::metadata(mounted.file()).expect("the file").blocks() * 512 <= 301 * MIB, "the holes are there");
    drop(mounted.start(400 * MIB).expect("a start"));
    mounted.assert_allocated(400 * MIB);
}

#[test]
fn a_tier_on_xfs_starts_again_and_grows_with_less_free_than_it_takes() {
    starts_again_and_grows("xfs");
}

#[test]
fn a_tier_on_ext4_starts_again_and_grows_with_less_free_than_it_takes() {
    starts_again_and_grows("ext4");
}

#[test]
fn holes_in_a_file_on_xfs_are_filled_at_the_start() {
    fills_holes("xfs");
}

#[test]
fn holes_in_a_file_on_ext4_are_filled_at_the_start() {
    fills_holes("ext4");
}
