//! Requests that come while a flush is under way.
//!
//! Guards against a flush that takes effect key by key: what it has not come to yet would be read, brought up into RAM, where
//! nothing takes it any more, or changed and written back.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{DeviceConfig, Flash, FlashConfig};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Arithmetic, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Clock, Deleted, ItemRef, Key, Lookup, Number, Step, Store, Written};

use super::drive::{HEAD, START, config, delete, device_bytes, finish, get, key, numbers, open, set};

/// The shards of a small tier.
const SHARDS: u64 = 16;
const VALUE_MAX: usize = 48 << 10;

/// A name whose hash belongs to a shard.
fn name_in(flash: &Flash, shard: u64, what: &str) -> Vec<u8> {
    let names = (0..).map(|number| format!("{what} {number}").into_bytes());
    let in_shard = |name: &Vec<u8>| key(flash, name).hash >> (64 - SHARDS.trailing_zeros()) == shard;
    names.into_iter().find(in_shard).expect("every shard has keys")
}

fn tiered(flash: Flash, clock: &Arc<Clock>) -> Tiered<Memory, Flash> {
    let memory = MemoryConfig {
        limit: 8 << 20,
        item_max: VALUE_MAX,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: flash.seed(),
        versioning: Default::default(),
    };
    let upper = Memory::new(&memory, Arc::clone(clock)).expect("a possible limit");
    let config = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: VALUE_MAX, cluster: false };
    Tiered::new(upper, flash, config, Arc::clone(clock))
}

fn shows(store: &impl Store, key: &Key<'_>, request: &Retrieve) -> bool {
    match finish(store.get(key, request, &mut |_: &ItemRef<'_>| ())).expect("a get") {
        Lookup::Visited | Lookup::Found(_) => true,
        Lookup::Miss { .. } => false,
    }
}

/// Runs `meanwhile` while a flush has passed the first shard and cannot go on to the last.
fn half_way_through_a_flush<T>(flash: &Flash, clock: &Clock, meanwhile: impl FnOnce() -> T) -> T {
    let held = name_in(flash, SHARDS / 2, "held");
    let first = name_in(flash, 0, "first");
    set(flash, &held, b"1", 0).expect("a set");
    set(flash, &first, b"1", 0).expect("a set");
    finish(flash.flush(Exptime(1))).expect("a flush later");
    let (told, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Here, so that a failed assertion lets go of the lock.
        let release = release;
        scope.spawn(|| {
            let (told, released) = (told, released);
            // Who is shown an item holds its shard's lock.
            let _ = flash.get(&key(flash, &held), &Retrieve::default(), &mut |_: &ItemRef<'_>| {
                told.send(()).expect("the test waits");
                let _ = released.recv();
            });
        });
        is_held.recv_timeout(Duration::from_secs(60)).expect("the item is shown");
        clock.advance(1);
        scope.spawn(|| get(flash, &first));
        let started = Instant::now();
        while flash.holds(&key(flash, &first)) {
            assert!(started.elapsed() < Duration::from_secs(60), "the flush does not begin");
            std::thread::yield_now();
        }
        let outcome = meanwhile();
        drop(release);
        outcome
    })
}

#[test]
fn a_delayed_flush_takes_every_item_at_one_moment() {
    let clock = Arc::new(Clock::manual(START));
    let flash = open(MemoryMedia::new(device_bytes(16)), &config(), &clock);
    let store = tiered(flash.clone(), &clock);
    let names =
        ["read", "touched", "appended", "counted", "deleted", "held"].map(|what| name_in(&flash, SHARDS - 1, what));
    for name in &names {
        // On the SSD alone.
        set(&flash, name, b"5", 0).expect("a set");
    }
    let [read, touched, appended, counted, deleted, held] = names.each_ref().map(|name| key(&flash, name));
    let touch = Retrieve { touch: Some(Exptime(100)), ..Retrieve::default() };
    let append = Write { mode: WriteMode::Append, ..Write::default() };
    let incr = Arithmetic { delta: 1, ..Arithmetic::default() };
    let (was_read, was_held, ends) = half_way_through_a_flush(&flash, &clock, || {
        let ends: (Step<Lookup>, Step<Written>, Step<Number>) = (
            store.get(&touched, &touch, &mut |_: &ItemRef<'_>| ()),
            store.set(&appended, b"+", &append),
            store.arithmetic(&counted, &incr),
        );
        (shows(&store, &read, &Retrieve::default()), flash.holds(&held), ends)
    });
    assert!(!was_read, "an item is read after the flush");
    assert!(!was_held);
    let (touch, append, incr) = ends;
    assert!(matches!(finish(touch), Ok(Lookup::Miss { .. })), "an item is touched after the flush");
    assert_eq!(finish(append).expect("an append"), Written::NotStored);
    assert_eq!(finish(incr).expect("an incr"), Number::NotFound);
    assert_eq!(delete(&flash, deleted.bytes).expect("a delete"), Deleted::NotFound);
    for key in [read, touched, appended, counted] {
        assert!(!shows(store.upper(), &key, &Retrieve::default()), "an item outlives the flush in RAM");
        assert!(!shows(&flash, &key, &Retrieve::default()), "an item outlives the flush on the SSD");
    }
}

#[test]
fn what_is_stored_while_a_flush_is_under_way_stays() {
    let clock = Arc::new(Clock::manual(START));
    let media = MemoryMedia::new(device_bytes(16));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    let [over, new] = ["over an old one", "new"].map(|what| name_in(&flash, SHARDS - 1, what));
    set(&flash, &over, b"old", 0).expect("a set");
    half_way_through_a_flush(&flash, &clock, || {
        for (name, value) in [(&over, b"1"), (&new, b"2")] {
            let stored = flash.set(&key(&flash, name), value, &Write::default());
            assert!(matches!(stored, Step::Done(Ok(Written::Stored { .. }))), "a set waits for the flush");
        }
        // Before the flush ends: what is durable now must not be flushed again by a restart.
        super::drive::wait(flash.sync()).expect("a sync");
        let image = MemoryMedia::of(media.image());
        let again = open(image, &config(), &clock);
        assert_eq!(get(&again, &over).expect("a get").as_deref(), Some(&b"1"[..]), "after a restart");
        assert_eq!(get(&again, &new).expect("a get").as_deref(), Some(&b"2"[..]), "after a restart");
    });
    assert_eq!(get(&flash, &over).expect("a get").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&flash, &new).expect("a get").as_deref(), Some(&b"2"[..]));
}

/// Waits until `is_so`, for a minute at most.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_flush_is_answered_before_the_index_is_swept_and_shows_nothing_from_then_on() {
    let clock = Arc::new(Clock::manual(START));
    let flash = open(MemoryMedia::new(device_bytes(16)), &config(), &clock);
    let [held, swept, unswept] =
        [(0, "held"), (0, "swept"), (SHARDS - 1, "unswept")].map(|(shard, what)| name_in(&flash, shard, what));
    for name in [&held, &swept, &unswept] {
        set(&flash, name, b"1", 0).expect("a set");
    }
    let (told, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let release = release;
        scope.spawn(|| {
            let (told, released) = (told, released);
            // Who is shown an item holds its shard's lock: the sweep cannot begin.
            let _ = flash.get(&key(&flash, &held), &Retrieve::default(), &mut |_: &ItemRef<'_>| {
                told.send(()).expect("the test waits");
                let _ = released.recv();
            });
        });
        is_held.recv_timeout(Duration::from_secs(60)).expect("the item is shown");
        let (answer, answered) = mpsc::channel();
        scope.spawn(|| {
            let answer = answer;
            let _ = answer.send(finish(flash.flush(Exptime(0))));
        });
        answered.recv_timeout(Duration::from_secs(60)).expect("the flush is answered").expect("and well");
        assert_eq!(get(&flash, &unswept).expect("a get"), None);
        set(&flash, &unswept, b"2", 0).expect("a set meanwhile");
        drop(release);
    });
    until("the regions are not freed", || numbers(&flash).regions_free == 15);
    assert_eq!(get(&flash, &swept).expect("a get"), None);
    assert_eq!(get(&flash, &unswept).expect("a get").as_deref(), Some(&b"2"[..]));
    assert_eq!(numbers(&flash).items, 1);
}

#[test]
fn what_is_flushed_is_no_item_any_more_and_its_memory_comes_back() {
    let clock = Arc::new(Clock::manual(START));
    let flash = open(MemoryMedia::new(device_bytes(100)), &config(), &clock);
    for number in 0..200_000 {
        set(&flash, format!("{number}").as_bytes(), b"x", 0).expect("a set");
    }
    let before = numbers(&flash);
    // A key whose hash has the bits of another one's in the index takes that one's entry: among so many, once in a few hundred
    // runs.
    assert!((199_990..=200_000).contains(&before.items), "{} items", before.items);
    finish(flash.flush(Exptime(0))).expect("a flush");
    assert_eq!(numbers(&flash).items, 0, "right after the reply");
    for number in 0..1000 {
        set(&flash, format!("{}", number * 200).as_bytes(), b"y", 0).expect("a set");
        let items = numbers(&flash).items;
        assert!(items <= number + 1, "{items} items of {}", number + 1);
    }
    until("the regions are not freed", || numbers(&flash).regions_free >= 98);
    let after = numbers(&flash);
    assert_eq!(after.items, 1000);
    assert!(after.index_bytes < before.index_bytes, "{} bytes of index", after.index_bytes);
    let shown = (0..200_000).filter(|number| get(&flash, format!("{number}").as_bytes()).expect("a get").is_some());
    assert_eq!(shown.count(), 1000);
}

#[test]
fn a_clean_stop_right_after_a_flush_leaves_a_tier_without_what_was_flushed() {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), Arc::new(Clock::manual(START)));
    let devices = vec![DeviceConfig { path: folder.path().into(), bytes: device_bytes(100) }];
    let config = FlashConfig { devices, ..config() };
    let flash = Flash::open(&config, Arc::clone(&clock)).expect("a tier");
    for number in 0..100_000 {
        set(&flash, format!("{number}").as_bytes(), b"x", 0).expect("a set");
    }
    finish(flash.flush(Exptime(0))).expect("a flush");
    set(&flash, b"7", b"y", 0).expect("a set");
    drop(flash);
    let flash = Flash::open(&config, clock).expect("the tier");
    let found = numbers(&flash);
    assert!(found.from_snapshot);
    assert_eq!((found.items, found.regions_free), (1, 99));
    assert_eq!(get(&flash, b"7").expect("a get").as_deref(), Some(&b"y"[..]));
}

#[test]
fn a_bad_superblock_copy_does_not_undo_a_flush() {
    for copy in 0..2 {
        let (media, clock) = (MemoryMedia::new(device_bytes(16)), Arc::new(Clock::manual(START)));
        let flash = open(media.clone(), &config(), &clock);
        set(&flash, b"key", b"value", 0).expect("a set");
        super::drive::wait(flash.sync()).expect("a sync");
        finish(flash.flush(Exptime(0))).expect("a flush");
        flash.crash();
        media.tamper(|bytes| bytes[copy * 4096..][..4096].fill(0));
        let flash = open(media, &config(), &clock);
        assert_eq!(get(&flash, b"key").expect("a get"), None, "without copy {copy}");
    }
}

#[test]
fn a_damaged_header_does_not_bring_back_what_the_room_held_before_a_flush() {
    let room = HEAD as usize..HEAD as usize + 64;
    let (media, clock) = (MemoryMedia::new(device_bytes(16)), Arc::new(Clock::manual(START)));
    let flash = open(media.clone(), &config(), &clock);
    // The first region, to its end, so that it has a trailer.
    for number in 0..20 {
        set(&flash, format!("old {number}").as_bytes(), &[b'o'; 16 << 10], 0).expect("a set");
    }
    super::drive::wait(flash.sync()).expect("a sync");
    finish(flash.flush(Exptime(0))).expect("a flush");
    let before = media.image()[room.clone()].to_vec();
    let mut turns = 0;
    while media.image()[room.clone()] == before {
        // The next free region, until it is the first one's turn again.
        finish(flash.flush(Exptime(0))).expect("a flush");
        set(&flash, b"new", b"value", 0).expect("a set");
        super::drive::wait(flash.sync()).expect("a sync");
        turns += 1;
        assert!(turns < 1000, "the room is not used again");
    }
    flash.crash();
    for damage in [|byte: &mut u8| *byte ^= 0xa5, |byte: &mut u8| *byte = 0] {
        let image = MemoryMedia::of(media.image());
        image.tamper(|bytes| bytes[room.clone()].iter_mut().for_each(damage));
        let flash = open(image, &config(), &clock);
        assert_eq!(get(&flash, b"new").expect("a get").as_deref(), Some(&b"value"[..]), "what the room holds now");
        let back = (0..20).filter(|number| get(&flash, format!("old {number}").as_bytes()).expect("a get").is_some());
        assert_eq!(back.count(), 0, "what it held before");
    }
}
