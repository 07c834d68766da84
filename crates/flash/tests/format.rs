//! Tiers that each version of the format wrote, kept in the repository: every later build must read them.
//!
//! Without this, a change of the layout would go unnoticed as long as the same build writes and reads, and would cost its
//! users everything they have on disk. `MONETA_WRITE_FIXTURES=1` writes the newest fixture anew; the others no build can write
//! any more.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::component::Component;
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::versions::{Floor, Versioning};
use moneta_store::{Calls, Clock, Item, ItemMeta, ItemRef, Key, Lookup, Origin, Step, Store, Value, Version, Written};

const BLOCK: usize = 4096;
/// The version that this build writes.
const NEWEST: u32 = 3;
/// Numbers of the functions that keys are hashed by.
const XXH3: u32 = 1;
const AES_CMAC: u32 = 2;
/// The second in which fixtures of versions 1 and 2 were written.
const THEN: u32 = 1_000_000_000;
/// The same of version 3, in which times count from 2020.
const THEN_3: u32 = 1_790_000_000;
const TIER_BYTES: u64 = 6 << 20;

fn open(folder: &Path, now: u32, cluster: bool) -> Flash {
    open_by(folder, Arc::new(Clock::manual(now)), cluster)
}

/// `cluster`: it is one of several copies.
fn open_by(folder: &Path, clock: Arc<Clock>, cluster: bool) -> Flash {
    open_as(folder, clock, Versioning { cluster, ..Versioning::default() })
}

/// As a lone node does, which counts CAS values in a tier that has no versions.
fn open_lone(folder: &Path, now: u32) -> Flash {
    let lone = Versioning { counts_from: Some(0), ..Versioning::default() };
    open_as(folder, Arc::new(Clock::manual(now)), lone)
}

fn open_as(folder: &Path, clock: Arc<Clock>, versioning: Versioning) -> Flash {
    let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.into(), bytes: TIER_BYTES }]);
    config.region_bytes = 256 << 10;
    config.item_max = 32 << 10;
    config.io = Io::Threads;
    config.versioning = versioning;
    Flash::open(&config, clock).unwrap()
}

fn set(flash: &Flash, key: &str, value: &[u8], request: &Write) {
    let _ = flash.set(&Key::new(key.as_bytes(), flash.seed()), value, request).now().unwrap();
}

fn get(flash: &Flash, key: &str) -> Option<Item> {
    let mut seen = None;
    let mut visitor = |item: &ItemRef<'_>| seen = Some(Item::copy(item));
    let lookup = match flash.peek(&Key::new(key.as_bytes(), flash.seed()), &mut visitor) {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => pollster::block_on(pending).unwrap(),
    };
    match lookup {
        Lookup::Found(item) => Some(item),
        _ => seen,
    }
}

/// Every kind of record, a full region and one being filled, overwrites, a delete and a flush.
fn fill(flash: &Flash) {
    set(flash, "flushed", b"gone", &Write::default());
    match flash.flush(Exptime(0)) {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => pollster::block_on(pending).unwrap(),
    }
    for number in 0..300 {
        set(flash, &format!("plain {number}"), &[b'a' + (number % 26) as u8; 1000], &Write::default());
    }
    set(flash, "flags", b"flagged", &Write { flags: 7, ..Write::default() });
    set(flash, "expires", b"soon", &Write { exptime: Exptime(100), ..Write::default() });
    set(flash, "cas", b"chosen", &Write { new_cas: Some(12345), ..Write::default() });
    set(flash, "twice", b"first", &Write::default());
    set(flash, "twice", b"second", &Write::default());
    set(flash, "empty", b"", &Write::default());
    set(flash, "deleted", b"gone", &Write::default());
    let _ = flash.delete(&Key::new(b"deleted", flash.seed()), &Delete::default()).now().unwrap();
}

/// A version that another node made so many seconds after the begin of the fixture.
fn version(seconds: u32) -> Version {
    Version::new(Version::at(u64::from(THEN_3 + seconds) * 1000).local() + 5, Origin::new(3, 2))
}

/// Stores in mode newer what another node wrote, known to be current in that second.
fn put(flash: &Flash, key: &str, version: Version, as_of: u32) -> Written {
    let meta = ItemMeta { cas: version.0, ..ItemMeta::default() };
    let item = ItemRef { meta, value: Value::whole(b"from elsewhere") };
    let put = flash.put_newer(&Key::new(key.as_bytes(), flash.seed()), &item, u64::from(as_of) * 1000);
    match put {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => pollster::block_on(pending).unwrap(),
    }
}

/// What came from other nodes until second 60: items, a delete, and a flush that took one item and left another.
fn fill_from_elsewhere(flash: &Flash) {
    for (key, seconds) in [("taken", 10), ("left", 30), ("buried", 30)] {
        assert!(matches!(put(flash, key, version(seconds), THEN_3 + 60), Written::Stored { .. }), "{key}");
    }
    let _ = flash.bury(&Key::new(b"buried", flash.seed()), version(40)).now().unwrap();
    match flash.floor(Floor { version: version(20), second: THEN_3 + 15 }) {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => pollster::block_on(pending).unwrap(),
    }
    set(flash, "last", b"by this node", &Write::default());
}

fn check_from_elsewhere(flash: &Flash) {
    assert_eq!(get(flash, "left").unwrap().meta.version(), version(30));
    let last = get(flash, "last").unwrap().meta;
    assert_eq!((last.version().millis() / 1000, last.version().origin()), (u64::from(THEN_3) + 60, Origin::default()));
    for gone in ["taken", "plain 7", "cas", "buried"] {
        assert!(get(flash, gone).is_none(), "{gone}");
    }
    assert_eq!(flash.parts().flush.unwrap().floors().newest, version(20));
    let by = |by| Written::Superseded { by };
    let left = put(flash, "left", version(25), THEN_3 + 60);
    assert!(matches!(left, Written::Superseded { by } if by > version(25)), "{left:?}");
    assert_eq!(put(flash, "taken", version(15), THEN_3 + 60), by(version(20)), "the floor is above it");
    let buried = put(flash, "buried", version(35), THEN_3 + 60);
    assert!(matches!(buried, Written::Superseded { by } if by > version(35)), "the log has the delete: {buried:?}");
}

fn check_values(flash: &Flash) {
    for number in 0..300 {
        let item = get(flash, &format!("plain {number}")).unwrap();
        assert_eq!(item.value, [b'a' + (number % 26) as u8; 1000]);
    }
}

fn check(flash: &Flash, then: u32, now: u32) {
    check_values(flash);
    for number in 0..300 {
        assert_eq!(get(flash, &format!("plain {number}")).unwrap().meta.last_access, then);
    }
    let flags = get(flash, "flags").unwrap();
    assert_eq!((flags.value.as_slice(), flags.meta.flags), (&b"flagged"[..], 7));
    let expires = get(flash, "expires");
    assert_eq!(expires.map(|item| item.meta.expiry.0), (now < then + 100).then_some(then + 100));
    assert_eq!(get(flash, "twice").unwrap().value, b"second");
    assert_eq!(get(flash, "empty").unwrap().value, b"");
    assert!(get(flash, "deleted").is_none() && get(flash, "flushed").is_none());
}

/// A client chose the CAS value of an item, so it counts as older than every other.
fn check_chosen(flash: &Flash) {
    let meta = get(flash, "cas").unwrap().meta;
    assert_eq!((meta.cas, meta.unversioned), (12345, true));
}

/// Writes down the blocks of a file that are not zero, each after its offset.
fn pack(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).unwrap();
    let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    blocks.flat_map(|(number, block)| [&((number * BLOCK) as u64).to_le_bytes()[..], block].concat()).collect()
}

fn unpack(packed: &[u8], file: &Path) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(file).unwrap();
    file.set_len(TIER_BYTES).unwrap();
    for block in packed.chunks(8 + BLOCK) {
        let offset = u64::from_le_bytes(block[..8].try_into().unwrap());
        file.write_all_at(&block[8..], offset).unwrap();
    }
}

fn fixture(name: &str) -> String {
    format!("tests/fixtures/version-{name}.blocks")
}

/// Version and number of the hash in the newest copy of a file's superblock.
fn version_of(file: &Path) -> (u32, u32) {
    let bytes = std::fs::read(file).unwrap();
    let number = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
    let newest = if number(24) > number(BLOCK + 24) { 0 } else { BLOCK };
    (number(newest + 8) as u32, number(newest + 112) as u32)
}

/// `then`: the second in which it was written. `hash`: the number of its hash as its superblock has it, and of the one it is read
/// by.
fn is_read(name: &str, version: u32, then: u32, hash: (u32, u32)) {
    let packed = std::fs::read(fixture(name)).unwrap();
    for now in [then + 70, then + 200] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("moneta.flash");
        unpack(&packed, &file);
        assert_eq!(version_of(&file), (version, hash.0));
        let flash = open(folder.path(), now, false);
        check(&flash, then, now);
        check_chosen(&flash);
        let found = flash.numbers();
        assert_eq!(found.checksum_failures, 0);
        assert!(found.regions_closed >= 2, "a full region and one that was being filled");
        assert_eq!(
            version_of(&file),
            (NEWEST, hash.1),
            "a build that knows only version {version} must refuse what this one writes"
        );
        set(&flash, "written by this build", b"later", &Write::default());
        drop(flash);
        let flash = open(folder.path(), now, false);
        check(&flash, then, now);
        check_chosen(&flash);
        let later = get(&flash, "written by this build").unwrap();
        assert_eq!(later.value, b"later");
        drop(flash);
        // A lone node goes on above what the tier has.
        let flash = open_lone(folder.path(), now);
        check(&flash, then, now);
        assert!(!flash.counts() && get(&flash, "plain 7").unwrap().meta.cas < later.meta.cas);
        set(&flash, "plain 7", &[b'h'; 1000], &Write::default());
        assert!(get(&flash, "plain 7").unwrap().meta.cas > later.meta.cas);
        drop(flash);
        check_values(&open_lone(folder.path(), now));
    }
}

#[test]
fn what_version_1_wrote_is_read() {
    is_read("1", 1, THEN, (0, XXH3));
}

#[test]
fn what_version_2_wrote_is_read() {
    is_read("2", 2, THEN, (XXH3, XXH3));
}

#[test]
fn what_version_2_wrote_with_a_keyed_hash_is_read() {
    is_read("2-keyed", 2, THEN, (AES_CMAC, AES_CMAC));
}

#[test]
fn what_version_3_wrote_is_read() {
    if std::env::var_os("MONETA_WRITE_FIXTURES").is_some() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::manual(THEN_3));
        let flash = open_by(folder.path(), Arc::clone(&clock), true);
        fill(&flash);
        clock.advance(60);
        fill_from_elsewhere(&flash);
        drop(flash);
        std::fs::write(fixture("3"), pack(&folder.path().join("moneta.flash"))).unwrap();
    }
    is_read("3", 3, THEN_3, (AES_CMAC, AES_CMAC));
}

/// What came by version from other nodes, read by one of several copies, also after a second restart.
#[test]
fn versions_tombstones_and_floors_that_version_3_wrote_are_read() {
    let (packed, folder) = (std::fs::read(fixture("3")).unwrap(), tempfile::tempdir().unwrap());
    unpack(&packed, &folder.path().join("moneta.flash"));
    for now in [THEN_3 + 100, THEN_3 + 200] {
        let flash = open(folder.path(), now, true);
        check_from_elsewhere(&flash);
        drop(flash);
    }
}

/// What a lone node counted, read by one and by one of several copies.
#[test]
fn counted_cas_values_that_version_3_wrote_are_read() {
    let file = |folder: &tempfile::TempDir| folder.path().join("moneta.flash");
    if std::env::var_os("MONETA_WRITE_FIXTURES").is_some() {
        let folder = tempfile::tempdir().unwrap();
        let flash = open_lone(folder.path(), THEN_3);
        fill(&flash);
        drop(flash);
        std::fs::write(fixture("3-counted"), pack(&file(&folder))).unwrap();
    }
    let packed = std::fs::read(fixture("3-counted")).unwrap();
    for (now, is_lone) in [(THEN_3 + 70, true), (THEN_3 + 200, true), (THEN_3 + 200, false)] {
        let folder = tempfile::tempdir().unwrap();
        unpack(&packed, &file(&folder));
        let open = || if is_lone { open_lone(folder.path(), now) } else { open(folder.path(), now, true) };
        let flash = open();
        check(&flash, THEN_3, now);
        check_chosen(&flash);
        for (number, cas) in [(0, 2), (1, 3), (299, 302)] {
            let meta = get(&flash, &format!("plain {number}")).unwrap().meta;
            assert_eq!((meta.cas, meta.unversioned), (cas, true), "{number}");
        }
        set(&flash, "plain 7", &[b'h'; 1000], &Write::default());
        let grown = get(&flash, "plain 7").unwrap().meta;
        assert!(grown.cas > 302 && (grown.cas < 400) == is_lone && grown.unversioned == is_lone, "{grown:?}");
        if !is_lone {
            // What has no version is older than every version.
            assert!(matches!(put(&flash, "plain 8", version(1), now), Written::Stored { .. }));
        }
        drop(flash);
        assert_eq!(get(&open(), "plain 7").unwrap().meta.cas, grown.cas);
    }
}
