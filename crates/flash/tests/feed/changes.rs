//! Random changes, restarts and kills, and readers beside them.

use crate::follower::{Done, Follower, Heard, whole};
use crate::tier::{KEYS, Tier, done, feed, name, number};
use fastrand::Rng;
use moneta_flash::Flash;
use moneta_store::feed::{Change, Wanted};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, Deleted, ErrorKind, Key, Step, Store, Unseen, Version, Written};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One change of a key, and what is known of it. `last`: the version of the key's last change.
fn change(flash: &Flash, clock: &Clock, rng: &mut Rng, key: u32, last: &mut Version) -> Done {
    let bytes = name(key);
    let key_of = Key::new(&bytes, flash.seed());
    let above = Version(last.0 + 1);
    let mut done_as = |version: Version, expiry: u32| {
        *last = version;
        Done { millis: clock.millis(), key, version, expiry }
    };
    match rng.u8(0..20) {
        0..3 => {
            let deleted = done(flash.delete(&key_of, &Delete::default()));
            assert!(matches!(deleted, Deleted::Deleted | Deleted::NotFound));
            done_as(above, 0)
        }
        3 => {
            let version = Version(flash.next_cas(&key_of));
            match flash.bury(&key_of, version) {
                // Versions run ahead of the clock for a second after a restart.
                Step::Done(Err(error)) if error.kind() == ErrorKind::ClockAhead => {
                    Done { millis: 0, key, version: Version::ZERO, expiry: 0 }
                }
                buried => {
                    assert!(!matches!(done(buried), Deleted::Superseded { .. }));
                    done_as(version, 0)
                }
            }
        }
        4 => {
            let seconds = rng.i64(1..20);
            let write = Write { exptime: Exptime(seconds), ..Write::default() };
            let Written::Stored { cas } = done(flash.set(&key_of, &value(rng), &write)) else { panic!("not stored") };
            done_as(Version(cas), clock.now() + seconds as u32)
        }
        5 => {
            let expiry = Exptime(1000);
            let touch = Retrieve { touch: Some(expiry), ..Retrieve::default() };
            let _ = done(flash.get(&key_of, &touch, &mut Unseen));
            // Longer: the version stays. It may be that nothing is there.
            Done { millis: 0, key, version: Version::ZERO, expiry: 0 }
        }
        _ => {
            let written = done(flash.set(&key_of, &value(rng), &Write::default()));
            let Written::Stored { cas } = written else { panic!("not stored") };
            done_as(Version(cas), 0)
        }
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let length = if rng.u8(0..10) == 0 { rng.usize(0..20_000) } else { rng.usize(0..2000) };
    vec![rng.u8(..); length]
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let clock = Arc::clone(&tier.clock);
    let mut flash = tier.open();
    let mut last = vec![Version::ZERO; KEYS as usize];
    let mut journal: Vec<Done> = Vec::new();
    // What was on the device for sure, and which places of the journal may have been lost.
    let (mut synced, mut lost) = (0, Vec::new());
    let mut followers: Vec<Follower> = (0..3).map(|_| Follower::begin(&flash, &clock, &mut rng)).collect();
    let mut gaps = 0;
    for _ in 0..60 {
        for _ in 0..rng.usize(1..400) {
            let key = rng.u32(0..KEYS);
            let done = change(&flash, &clock, &mut rng, key, &mut last[key as usize]);
            if done.version > Version::ZERO {
                journal.push(done);
            }
            if rng.u8(0..20) == 0 {
                clock.advance_millis(rng.u64(1..30));
            }
        }
        match rng.u8(0..20) {
            0 => {
                drop(flash);
                clock.advance_millis(1000);
                flash = tier.open();
                synced = journal.len();
            }
            1 => {
                flash.crash();
                lost.push(synced..journal.len());
                clock.advance_millis(rng.u64(1000..3000));
                flash = tier.open();
            }
            2 => {
                pollster::block_on(flash.sync()).expect("a sync");
                synced = journal.len();
            }
            3 => {
                done(flash.flush(Exptime(0)));
                // What was before is gone, and the floor says so.
                journal.clear();
                (synced, lost) = (0, Vec::new());
                followers = (0..3).map(|_| Follower::begin(&flash, &clock, &mut rng)).collect();
                for follower in &mut followers {
                    follower.from = follower.from.max(clock.millis());
                }
            }
            _ => {}
        }
        let may_be_lost = |place: usize| lost.iter().any(|lost: &std::ops::Range<usize>| lost.contains(&place));
        for follower in &mut followers {
            match rng.u8(0..4) {
                0 => continue,
                1 => {
                    let mut reader = follower.reader(&flash);
                    for _ in 0..rng.u8(1..5) {
                        follower.read(&mut *reader, rng.clone().usize(1..100));
                    }
                }
                _ => {
                    follower.read_all(&flash);
                    clock.advance_millis(1);
                    // Once more: the watermark covers what is there now.
                    follower.read_all(&flash);
                    assert!(!feed(&flash).has_more(follower.cursor.parse().expect("a cursor")));
                }
            }
            follower.heard.check(&journal, follower.from, may_be_lost);
        }
        if rng.u8(0..6) == 0 {
            let at = rng.usize(0..followers.len());
            gaps += followers[at].heard.gaps;
            followers[at] = Follower::begin(&flash, &clock, &mut rng);
        }
    }
    println!("seed {seed}: {} changes, {} crashes, {gaps} gaps", journal.len(), lost.len());
}

#[test]
fn a_reader_misses_nothing_through_restarts_and_kills() {
    let first = moneta_testkit::suite::seed();
    for seed in (0..6).map(|number| first.wrapping_add(number)) {
        println!("MONETA_SEED={seed}");
        run(seed);
    }
}

#[test]
fn a_reader_beside_writers_misses_nothing() {
    let tier = Tier::new(Clock::system());
    let flash = tier.open();
    let clock = Arc::clone(&tier.clock);
    let mut follower = Follower { from: 0, cursor: feed(&flash).since(0).to_string(), heard: Heard::default() };
    let place = feed(&flash).end();
    follower.cursor = place.to_string();
    clock.refresh();
    follower.from = clock.millis() + 1;
    let stop = AtomicBool::new(false);
    let seed = moneta_testkit::suite::seed();
    println!("MONETA_SEED={seed}");
    let (mut journal, mut follower): (Vec<Done>, Follower) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u32)
            .map(|writer| {
                let (flash, clock) = (&flash, &clock);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed + u64::from(writer));
                    let mut last = vec![Version::ZERO; KEYS as usize];
                    let mut journal = Vec::new();
                    for _ in 0..8000 {
                        clock.refresh();
                        let key = rng.u32(0..KEYS / 3) * 3 + writer;
                        journal.push(change(flash, clock, &mut rng, key, &mut last[key as usize]));
                    }
                    journal
                })
            })
            .collect();
        let (flash, stop) = (&flash, &stop);
        let reader = scope.spawn(move || {
            let mut reader = follower.reader(flash);
            while !stop.load(Ordering::Acquire) {
                follower.read(&mut *reader, 200);
            }
            follower
        });
        let journal = writers.into_iter().flat_map(|writer| writer.join().expect("it ends")).collect();
        stop.store(true, Ordering::Release);
        (journal, reader.join().expect("it ends"))
    });
    journal.retain(|done| done.version > Version::ZERO);
    std::thread::sleep(Duration::from_millis(3));
    clock.refresh();
    follower.read_all(&flash);
    println!("{} gaps, {} keys", follower.heard.gaps, follower.heard.newest.len());
    assert!(follower.heard.newest.len() > KEYS as usize / 2);
    follower.heard.check(&journal, follower.from, |_| false);
}

/// How often each key was told to a reader of all that a tier holds, which wants what keys hold alone, or all.
fn told(flash: &Flash, current: bool) -> Vec<u32> {
    let wanted = Wanted { values: true, current, ..Wanted::default() };
    let mut reader = feed(flash).reader(feed(flash).since(0), wanted);
    let mut told = vec![0; KEYS as usize];
    loop {
        let batch = reader.read(20, 1 << 20).expect("the device answers");
        for change in whole(&batch) {
            if let Change::Set(set) = change {
                told[number(&set.key) as usize] += 1;
            }
        }
        if batch.is_end {
            return told;
        }
    }
}

/// Whichever of a key's items is left out, a later one is told before the end, also if a writer has replaced it since the begin.
#[test]
fn a_reader_that_wants_what_keys_hold_is_told_of_every_key_and_of_few_items_that_were_replaced() {
    let seed = moneta_testkit::suite::seed();
    println!("MONETA_SEED={seed}");
    for round in 0..10 {
        let tier = Tier::new(Clock::system());
        let flash = tier.open();
        // Less than the tier has room for, so that no key is evicted.
        let write = |key: u32| {
            let bytes = name(key);
            let written = done(flash.set(&Key::new(&bytes, flash.seed()), &[7; 1000], &Write::default()));
            assert!(matches!(written, Written::Stored { .. }));
        };
        (0..6).for_each(|_| (0..KEYS).for_each(write));
        let (all, current) = (told(&flash, false), told(&flash, true));
        let sum = |told: &[u32]| told.iter().sum::<u32>();
        assert!(current.iter().all(|times| *times > 0), "each key is told");
        assert!(sum(&current) * 2 < sum(&all), "{} of {} items", sum(&current), sum(&all));
        let stop = AtomicBool::new(false);
        let current = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng::with_seed(seed + round);
                for _ in 0..2000 {
                    write(rng.u32(0..KEYS));
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                }
            });
            let told = told(&flash, true);
            stop.store(true, Ordering::Release);
            told
        });
        let missing: Vec<usize> = (0..current.len()).filter(|key| current[*key] == 0).collect();
        assert!(missing.is_empty(), "round {round}: not told: {missing:?}");
    }
}
