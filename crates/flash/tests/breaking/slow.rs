//! Devices that are slow, or do not answer at all for a while.
//!
//! Guards against requests and stops that wait for a device for ever, and against something old that shows because a change
//! was given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_flash::testing::{Faults, FaultyMedia, MemoryMedia};
use moneta_flash::{Durability, Flash, FlashConfig};
use moneta_store::{Calls, Clock, ErrorKind};

use super::drive::{START, config, device_bytes, get, numbers, open, set, wait};

/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long requests wait, and stops.
const LIMIT: Duration = Duration::from_millis(300);

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "waited for nothing: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Rig {
    memory: Arc<MemoryMedia>,
    faulty: Arc<FaultyMedia<MemoryMedia>>,
    flash: Flash,
    clock: Arc<Clock>,
    config: FlashConfig,
}

impl Rig {
    fn new(change: impl FnOnce(&mut FlashConfig)) -> Self {
        let memory = MemoryMedia::new(device_bytes(16));
        let faulty = FaultyMedia::new(Arc::clone(&memory));
        let clock = Arc::new(Clock::manual(START));
        let interval = Duration::from_millis(20);
        let mut config = FlashConfig { flush_interval: interval, wait_limit: LIMIT, stop_limit: LIMIT, ..config() };
        change(&mut config);
        let flash = open(Arc::clone(&faulty) as _, &config, &clock);
        Self { memory, faulty, flash, clock, config }
    }

    fn stall_writes(&self) {
        self.faulty.set(Faults { stall_writes: true, ..Faults::default() });
    }

    fn heal(&self) {
        self.faulty.set(Faults::default());
        until("the tier takes writes", || set(&self.flash, b"after", b"x", 0).is_ok());
        wait(self.flash.sync()).expect("a sync");
    }

    fn get(&self, name: &str) -> Option<String> {
        let found = get(&self.flash, name.as_bytes()).expect("a get");
        found.map(|value| String::from_utf8(value).expect("text"))
    }

    /// Sets until one fails; tells how.
    fn fill(&self) -> ErrorKind {
        let started = Instant::now();
        for number in 0.. {
            assert!(started.elapsed() < PATIENCE, "every set finds room");
            if let Err(error) = set(&self.flash, format!("filler {number}").as_bytes(), &[7; 40_000], 0) {
                return error.kind();
            }
        }
        unreachable!("numbers do not end")
    }

    /// The same tier after a kill.
    fn killed(self) -> Flash {
        self.flash.crash();
        open(MemoryMedia::of(self.memory.image()), &self.config, &self.clock)
    }
}

#[test]
fn a_device_that_does_not_answer_turns_the_tier_off_and_is_taken_back_when_it_does() {
    let rig = Rig::new(|_| {});
    set(&rig.flash, b"overwritten", b"old", 0).expect("a set");
    set(&rig.flash, b"short", b"old", 1800).expect("a set");
    wait(rig.flash.sync()).expect("a sync");
    rig.stall_writes();
    // The first that waits may have come before the call of the device that does not return.
    until("the tier is off", || matches!(rig.fill(), ErrorKind::Unavailable));
    assert!(numbers(&rig.flash).off && !rig.flash.health().notes.is_empty());
    let refused = set(&rig.flash, b"overwritten", b"new", 0).expect_err("nothing waits any more");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(rig.get("overwritten"), None);
    // For an hour.
    rig.clock.advance(3600);
    rig.heal();
    assert!(!numbers(&rig.flash).off);
    for name in ["overwritten", "short"] {
        assert_eq!(rig.get(name), None, "{name}");
    }
    let flash = rig.killed();
    for name in ["overwritten", "short"] {
        assert_eq!(get(&flash, name.as_bytes()).expect("a get"), None, "{name} after a crash");
    }
    assert!(get(&flash, b"after").expect("a get").is_some());
}

#[test]
fn a_device_that_answers_after_an_hour_takes_what_was_written_meanwhile() {
    let rig = Rig::new(|config| config.wait_limit = PATIENCE);
    set(&rig.flash, b"before", b"1", 0).expect("a set");
    set(&rig.flash, b"short", b"1", 1800).expect("a set");
    wait(rig.flash.sync()).expect("a sync");
    rig.stall_writes();
    set(&rig.flash, b"meanwhile", b"2", 0).expect("a set");
    until("a write waits", || rig.faulty.stalled() > 0);
    rig.clock.advance(3600);
    set(&rig.flash, b"later", b"3", 0).expect("a set");
    rig.heal();
    let flash = rig.killed();
    for (name, value) in [("before", Some("1")), ("short", None), ("meanwhile", Some("2")), ("later", Some("3"))] {
        let shown = get(&flash, name.as_bytes()).expect("a get");
        assert_eq!(shown.as_deref(), value.map(str::as_bytes), "{name}");
    }
}

#[test]
fn a_write_that_waits_for_the_device_too_long_fails() {
    let rig = Rig::new(|config| config.durability = Durability::EveryWrite);
    rig.stall_writes();
    set(&rig.flash, b"key", b"value", 0).expect_err("the device does not answer");
    rig.heal();
}

/// Reads stall, so that no region can be emptied, while writes go on: there is no room, and the device is not stuck.
#[test]
fn what_a_change_given_up_for_want_of_room_was_to_replace_does_not_come_back() {
    let rig = Rig::new(|_| {});
    for number in 0..8 * 6 {
        set(&rig.flash, format!("before {number}").as_bytes(), &[7; 40_000], 0).expect("a set");
    }
    set(&rig.flash, b"overwritten", b"old", 0).expect("a set");
    wait(rig.flash.sync()).expect("a sync");
    rig.faulty.set(Faults { stall_reads: true, ..Faults::default() });
    assert_eq!(rig.fill(), ErrorKind::Timeout);
    assert!(!numbers(&rig.flash).off, "the device answers");
    let late = set(&rig.flash, b"overwritten", &[8; 40_000], 0).expect_err("there is no room");
    assert_eq!(late.kind(), ErrorKind::Timeout);
    assert_eq!(rig.get("overwritten"), None);
    rig.faulty.set(Faults::default());
    wait(rig.flash.sync()).expect("a sync");
    assert_eq!(rig.get("overwritten"), None);
    assert!(!numbers(&rig.flash).off && rig.flash.stats().items > 0, "all else is there");
    let flash = rig.killed();
    assert_eq!(get(&flash, b"overwritten").expect("a get"), None, "after a crash");
    assert!(flash.stats().items > 0);
}

impl Rig {
    /// One with items that are on the device alone.
    fn with_items_below() -> Self {
        let rig = Self::new(|_| {});
        for name in ["below", "other"] {
            set(&rig.flash, name.as_bytes(), b"1", 0).expect("a set");
        }
        for number in 0..40 {
            set(&rig.flash, format!("filler {number}").as_bytes(), &[7; 30_000], 0).expect("a set");
        }
        wait(rig.flash.sync()).expect("a sync");
        until("full regions are written", || numbers(&rig.flash).regions_sealed == 0);
        rig
    }

    fn stall_reads(&self) {
        self.faulty.set(Faults { stall_reads: true, ..Faults::default() });
    }
}

#[test]
fn a_read_that_the_device_does_not_end_fails_and_no_other_waits_for_it_until_the_device_is_back() {
    let rig = Rig::with_items_below();
    assert_eq!(rig.get("below").as_deref(), Some("1"));
    rig.stall_reads();
    for name in ["below", "other"] {
        let late = get(&rig.flash, name.as_bytes()).expect_err("the device does not end it");
        assert_eq!(late.kind(), ErrorKind::Timeout);
    }
    assert!(numbers(&rig.flash).io_errors >= 2);
    assert!(rig.flash.health().notes.iter().any(|note| note.contains("does not answer reads")));
    // It takes writes, and what is in RAM is read.
    set(&rig.flash, b"in RAM", b"2", 0).expect("a set");
    wait(rig.flash.sync()).expect("a sync");
    assert_eq!(rig.get("in RAM").as_deref(), Some("2"));
    assert!(!numbers(&rig.flash).off);
    rig.faulty.set(Faults::default());
    until("the device is read again", || get(&rig.flash, b"below").is_ok());
    assert_eq!(rig.get("other").as_deref(), Some("1"), "nothing is lost");
    assert!(rig.flash.health().notes.is_empty());
}

#[test]
fn a_device_that_ends_neither_reads_nor_writes_turns_the_tier_off() {
    let rig = Rig::with_items_below();
    rig.faulty.set(Faults { stall_reads: true, stall_writes: true, ..Faults::default() });
    // No request waits for this one.
    set(&rig.flash, b"in RAM", b"2", 0).expect("a set");
    until("the tier is off", || {
        assert!(get(&rig.flash, b"below").is_err());
        numbers(&rig.flash).off
    });
    rig.heal();
    until("the device is read again", || get(&rig.flash, b"below").is_ok());
    assert_eq!(rig.get("below").as_deref(), Some("1"));
}

#[test]
fn a_stop_ends_although_a_read_does_not() {
    let rig = Rig::with_items_below();
    rig.stall_reads();
    get(&rig.flash, b"below").expect_err("the device does not end it");
    let Rig { faulty, flash, memory, clock, config } = rig;
    flash.close_all();
    drop(flash);
    assert!(faulty.stalled() > 0, "the device does not answer yet");
    let image = memory.image();
    faulty.set(Faults::default());
    let flash = open(MemoryMedia::of(image), &config, &clock);
    assert_eq!(get(&flash, b"below").expect("a get").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_stop_ends_although_the_device_does_not_answer() {
    let rig = Rig::new(|_| {});
    set(&rig.flash, b"kept", b"1", 0).expect("a set");
    wait(rig.flash.sync()).expect("a sync");
    rig.stall_writes();
    set(&rig.flash, b"in RAM", b"2", 0).expect("a set");
    until("a write waits", || rig.faulty.stalled() > 0);
    rig.flash.close_all();
    assert!(rig.faulty.stalled() > 0, "the device does not answer yet");
    let image = rig.memory.image();
    rig.faulty.set(Faults::default());
    let flash = open(MemoryMedia::of(image), &rig.config, &rig.clock);
    assert_eq!(get(&flash, b"kept").expect("a get").as_deref(), Some(&b"1"[..]));
}
