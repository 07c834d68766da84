//! Files of a tier that are removed, replaced and put back under a node that runs.
//!
//! Guards against a loss that nothing tells of before it happens, and against a second node that starts beside the first as the
//! file it would have found locked is gone.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io, TierError};
use moneta_store::{Calls, Clock};

const BYTES: u64 = 6 << 20;

fn open(path: &Path) -> Result<Flash, TierError> {
    let device = DeviceConfig { path: path.to_owned(), bytes: BYTES };
    let config = FlashConfig {
        region_bytes: 256 << 10,
        item_max: 64 << 10,
        io: Io::Threads,
        io_threads: 1,
        threads: 1,
        ..FlashConfig::new(vec![device])
    };
    Flash::open(&config, Arc::new(Clock::manual(1_700_000_000)))
}

fn gone(flash: &Flash) -> u64 {
    flash.numbers().devices_gone
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refusal(path: &Path) -> String {
    open(path).map(drop).expect_err("two nodes have one place").to_string()
}

#[test]
fn a_file_that_is_unlinked_under_a_node_is_told_of_until_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, kept) = (folder.path().join("moneta.flash"), folder.path().join("kept"));
    let flash = open(&path).expect("a tier");
    assert_eq!((gone(&flash), flash.health().notes.len()), (0, 0));
    std::fs::hard_link(&path, &kept).expect("a second link");
    std::fs::remove_file(&path).expect("it is unlinked");
    until("the loss is noticed", || gone(&flash) == 1);
    let notes = flash.health().notes;
    assert!(notes.iter().any(|note| note.contains("moneta.flash was removed or replaced")), "{notes:?}");
    assert!(!flash.health().unready, "it serves all the same");
    std::fs::hard_link(&kept, &path).expect("it is put back");
    until("it is back", || gone(&flash) == 0);
    assert_eq!(flash.health().notes.len(), 0);
}

#[test]
fn a_file_that_is_replaced_under_a_node_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("moneta.flash");
    let flash = open(&path).expect("a tier");
    let other = folder.path().join("other");
    std::fs::write(&other, b"").expect("a file");
    std::fs::rename(other, &path).expect("it takes the other's place");
    until("the loss is noticed", || gone(&flash) == 1);
}

#[test]
fn a_second_node_does_not_start_where_the_first_ones_file_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("moneta.flash");
    let flash = open(&path).expect("a tier");
    std::fs::remove_file(&path).expect("it is unlinked");
    let refused = refusal(&path);
    assert!(refused.contains("in use by another process"), "{refused}");
    assert!(!path.exists(), "the refused start made a file");
    // By another way to the same place.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).expect("a link");
    let refused = refusal(&link.join("moneta.flash"));
    assert!(refused.contains("in use by another process"), "{refused}");
    drop(flash);
    drop(open(&path).expect("the place is free again"));
}

#[test]
fn a_refused_start_leaves_no_lock_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("precious");
    std::fs::write(&path, b"data").expect("a file");
    let refused = refusal(&path);
    assert!(refused.contains("not Moneta's"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
}
