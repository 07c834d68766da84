//! What the engine promises where its library fails, panics or is short of room, and where requests come at once. Guards
//! against old values that are served, new ones that are lost, and maintenance that ends without a word.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Rig, Shelf};
use moneta_embedded::Embedded;
use moneta_embedded::testing::{end, get, set, until};
use moneta_store::request::{Arithmetic, Delete, Exptime, Write, WriteMode};
use moneta_store::{Calls, Clock, ItemRef, Key, Lookup, Number, Store, Written};
use moneta_testkit::suite::{Restarting, SuiteConfig};

const NOW: u32 = 1_700_000_000;
const VALUE_MAX: usize = 1000;

fn rig() -> Rig {
    Rig::new(SuiteConfig { memory: 0, value_max: VALUE_MAX }, Arc::new(Clock::manual(NOW)), usize::MAX)
}

/// One whose maintenance runs only when the test asks for it.
fn unkept() -> Rig {
    let mut rig = rig();
    rig.config.interval = Duration::from_secs(3600);
    rig
}

fn key<'k>(store: &Embedded<Shelf>, name: &'k str) -> Key<'k> {
    Key::new(name.as_bytes(), store.seed())
}

fn has_doubts(store: &Embedded<Shelf>) -> bool {
    store.health().notes.iter().any(|note| note.contains("not served"))
}

/// A store with an old value under a key, which was to be replaced while the library was broken.
fn in_doubt(rig: &mut Rig, name: &str) -> Embedded<Shelf> {
    let store = rig.start();
    set(&store, name, b"old", 0).expect("a set");
    rig.config.strings.broken.store(true, Ordering::Relaxed);
    set(&store, name, b"new", 0).expect_err("the library is broken");
    rig.config.strings.broken.store(false, Ordering::Relaxed);
    store
}

#[test]
fn what_a_failed_write_was_to_replace_is_not_served() {
    let mut rig = rig();
    let (store, strings) = (rig.start(), Arc::clone(&rig.config.strings));
    for key in ["replaced", "other", "left alone", "written again"] {
        set(&store, key, b"old", 0).expect("a set");
    }
    strings.broken.store(true, Ordering::Relaxed);
    for key in ["replaced", "written again"] {
        assert!(set(&store, key, b"new", 0).is_err());
        assert_eq!(get(&store, key), None, "the old value of {key}");
    }
    assert_eq!(get(&store, "left alone").as_deref(), Some(&b"old"[..]));
    assert!(!store.health().notes.is_empty());
    strings.broken.store(false, Ordering::Relaxed);
    set(&store, "written again", b"newest", 0).expect("a set");
    // Maintenance removes what is left, and not what was written since.
    until("no key is in doubt", || !has_doubts(&store));
    assert_eq!((get(&store, "replaced"), get(&store, "written again")), (None, Some(b"newest".to_vec())));
    assert_eq!(store.stats().items, 3);
}

#[test]
fn a_key_written_again_is_not_in_doubt_for_what_follows_in_the_batch() {
    let mut rig = unkept();
    let store = in_doubt(&mut rig, "key");
    let begun = &rig.config.strings.begun;
    let (before, held) = (begun.came(), begun.hold());
    // It finds nothing to delete, and holds up what comes next, which is one batch then.
    let first = store.delete(&key(&store, "key"), &Delete::default());
    until("the writer is at work", || begun.came() > before);
    let second = store.set(&key(&store, "key"), b"newest", &Write::default());
    store.maintain().expect("maintenance removes the old value, behind the set");
    let append = Write { mode: WriteMode::Append, ..Write::default() };
    let last = store.set(&key(&store, "key"), b" of all", &append);
    drop(held);
    end(first).expect("a delete");
    assert!(matches!(end(second), Ok(Written::Stored { .. })));
    assert!(matches!(end(last), Ok(Written::Stored { .. })), "the set is seen by what follows it");
    assert_eq!(get(&store, "key").as_deref(), Some(&b"newest of all"[..]), "it was stored, and is gone");
    assert!(!has_doubts(&store));
}

#[test]
fn nothing_is_carried_over_a_flush() {
    let mut rig = rig();
    let store = rig.start();
    let increment = || end(store.arithmetic(&key(&store, "key"), &Arithmetic { delta: 1, ..Arithmetic::default() }));
    for round in 0..50 {
        set(&store, "key", b"1", 0).expect("a set");
        std::thread::scope(|scope| {
            let (working, works) = std::sync::mpsc::channel();
            let (over, is_over) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while let Ok(Number::Value { .. }) = increment() {
                    working.send(()).expect("the test goes on");
                    if is_over.try_recv().is_ok() {
                        break;
                    }
                }
            });
            works.recv().expect("an increment");
            end(store.flush(Exptime(0))).expect("a flush");
            let survivor = get(&store, "key");
            // If the other has seen the flush, it listens no longer.
            let _ = over.send(());
            assert_eq!(survivor, None, "round {round}");
            while works.recv().is_ok() {}
        });
    }
}

/// Stores so many bytes.
fn stored(store: &Embedded<Shelf>, name: &str, bytes: usize) -> Written {
    set(store, name, &vec![0; bytes], 0).expect("the library works")
}

#[test]
fn a_refused_set_deletes_what_is_there_and_nothing_else() {
    let mut rig = unkept();
    rig.config.items_max = 1;
    let (store, deletes) = (rig.start(), &rig.config.strings.deletes);
    set(&store, "key", b"old", 0).expect("a set");
    let mut refused = 0;
    for number in 0..30 {
        let name = format!("other {number}");
        refused += u32::from(stored(&store, &name, 5) == Written::OutOfMemory);
        assert_eq!(stored(&store, &format!("large {number}"), VALUE_MAX + 1), Written::TooLarge);
    }
    assert!(refused >= 28, "one item a shard: {refused}");
    assert_eq!(deletes.load(Ordering::SeqCst), 0);
    assert_eq!(stored(&store, "key", 5), Written::OutOfMemory);
    assert_eq!((get(&store, "key"), deletes.load(Ordering::SeqCst)), (None, 1));
}

#[test]
fn a_flush_to_come_comes_even_if_all_has_to_be_flushed_before() {
    // One more than are remembered one by one.
    const DOUBTS: usize = (1 << 18) + 1;
    let mut rig = unkept();
    let (store, broken) = (rig.start(), &rig.config.strings.broken);
    set(&store, "left alone", b"old", 0).expect("a set");
    end(store.flush(Exptime(100))).expect("a flush to come");
    broken.store(true, Ordering::Relaxed);
    let mut number = 0;
    while number < DOUBTS {
        let some = number..DOUBTS.min(number + 1000);
        number = some.end;
        let name = |number: usize| number.to_string();
        let steps: Vec<_> =
            some.map(|number| store.set(&key(&store, &name(number)), b"new", &Write::default())).collect();
        steps.into_iter().for_each(|step| _ = end(step).expect_err("the library is broken"));
    }
    broken.store(false, Ordering::Relaxed);
    store.maintain().expect("all is flushed");
    assert_eq!((has_doubts(&store), get(&store, "left alone")), (false, None));
    assert_eq!(store.pending_flush(), Some(NOW + 100));
    set(&store, "key", b"value", 0).expect("a set");
    assert_eq!(get(&store, "key").as_deref(), Some(&b"value"[..]));
    rig.clock.advance(100);
    assert_eq!(get(&store, "key"), None);
}

#[test]
fn a_machine_that_went_down_is_known_until_the_library_has_opened() {
    let mut rig = unkept();
    let store = rig.start();
    set(&store, "key", b"not synced", 0).expect("a set");
    store.crash();
    let manifest = rig.config.folder.join("moneta.ledger");
    let written = std::fs::read_to_string(&manifest).expect("a ledger");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a start of the machine");
    assert!(written.contains(boot.trim()));
    std::fs::write(&manifest, written.replace(boot.trim(), "an earlier start")).expect("a write");
    rig.config.strings.broken.store(true, Ordering::Relaxed);
    Embedded::<Shelf>::open(&rig.config, Arc::clone(&rig.clock)).expect_err("the library is broken");
    rig.config.strings.broken.store(false, Ordering::Relaxed);
    let store = rig.start();
    assert_eq!(get(&store, "key"), None, "the library was not told");
    set(&store, "key", b"new", 0).expect("a set");
    store.crash();
    assert_eq!(get(&rig.start(), "key").as_deref(), Some(&b"new"[..]), "the machine is the same");
}

/// While it stands, the manifest cannot be written.
fn block_ledger(rig: &Rig) -> std::path::PathBuf {
    let draft = rig.config.folder.join("moneta.ledger.new");
    std::fs::create_dir(&draft).expect("a folder in the draft's place");
    draft
}

#[test]
fn maintenance_does_what_it_can() {
    let mut rig = unkept();
    let store = rig.start();
    end(store.flush(Exptime(10))).expect("a flush to come");
    let tends = || rig.config.strings.tends.load(Ordering::SeqCst);
    let (before, draft) = (tends(), block_ledger(&rig));
    rig.clock.advance(10);
    store.maintain().expect_err("the flush cannot be written down");
    assert_eq!(tends(), before + 1);
    std::fs::remove_dir(draft).expect("it is there");
    store.maintain().expect("all works");
}

#[test]
fn a_read_that_began_in_doubt_shows_nothing_old() {
    let mut rig = unkept();
    let store = in_doubt(&mut rig, "key");
    let read = &rig.config.strings.read;
    let (before, held) = (read.came(), read.hold());
    let reading = store.peek(&key(&store, "key"), &mut |_: &ItemRef<'_>| ());
    until("the old value is read", || read.came() > before);
    set(&store, "key", b"newest", 0).expect("a set");
    drop(held);
    assert!(matches!(end(reading), Ok(Lookup::Miss { .. })));
    assert_eq!(get(&store, "key").as_deref(), Some(&b"newest"[..]));
}

#[test]
fn what_is_stored_after_a_flush_is_not_flushed_even_if_numbers_could_not_be_written_down() {
    let mut rig = unkept();
    let store = rig.start();
    set(&store, "key", b"old", 0).expect("a set");
    let draft = block_ledger(&rig);
    rig.clock.advance(3600);
    set(&store, "key", b"new", 0).expect_err("no number can be made sure of");
    std::fs::remove_dir(draft).expect("it is there");
    end(store.flush(Exptime(0))).expect("a flush");
    store.crash();
    rig.clock = Arc::new(Clock::manual(NOW));
    let store = rig.start();
    set(&store, "key", b"newest", 0).expect("a set");
    assert_eq!(get(&store, "key").as_deref(), Some(&b"newest"[..]));
}

#[test]
fn what_a_panic_kept_from_being_replaced_is_not_served() {
    let mut rig = unkept();
    let (store, panics) = (rig.start(), &rig.config.strings.panics);
    set(&store, "key", b"old", 0).expect("a set");
    panics.store(true, Ordering::Relaxed);
    set(&store, "key", b"new", 0).expect_err("the library panics");
    assert_eq!(get(&store, "key"), None);
    panics.store(false, Ordering::Relaxed);
    set(&store, "key", b"newest", 0).expect("the writer goes on");
    assert_eq!(get(&store, "key").as_deref(), Some(&b"newest"[..]));
}

#[test]
fn maintenance_that_panics_says_so_and_goes_on() {
    let mut rig = rig();
    let (store, panics) = (rig.start(), &rig.config.strings.panics);
    let fails = || store.health().notes.iter().any(|note| note.contains("shelf fails"));
    panics.store(true, Ordering::Relaxed);
    until("health tells of the panic", fails);
    panics.store(false, Ordering::Relaxed);
    until("maintenance works again", || !fails());
}
