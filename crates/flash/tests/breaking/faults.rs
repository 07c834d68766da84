//! Devices that fail, fill up and stall while requests go on.
//!
//! Guards against an error that stops the tier for good, or that leaves something out of date to be served afterwards.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use moneta_flash::testing::{Faults, FaultyMedia, MemoryMedia};
use moneta_flash::{Flash, FlashConfig, Media};
use moneta_store::feed::{Feed, GapCause, Wanted};
use moneta_store::request::Exptime;
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, ErrorKind};

use super::drive::{HEAD, START, config, delete, device_bytes, finish, get, numbers, open, set, wait};

/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "waited too long until {what}");
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
    fn new() -> Self {
        Self::with(|faulty, _| faulty)
    }

    fn with<M: Media + 'static>(wrap: impl FnOnce(Arc<FaultyMedia<MemoryMedia>>, Arc<MemoryMedia>) -> Arc<M>) -> Self {
        let memory = MemoryMedia::new(device_bytes(16));
        let faulty = FaultyMedia::new(Arc::clone(&memory));
        let clock = Arc::new(Clock::manual(START));
        let config = FlashConfig { flush_interval: Duration::from_millis(20), ..config() };
        let flash = open(wrap(Arc::clone(&faulty), Arc::clone(&memory)), &config, &clock);
        Self { memory, faulty, flash, clock, config }
    }

    fn set(&self, name: &str, value: &str) {
        set(&self.flash, name.as_bytes(), value.as_bytes(), 0).expect("a set");
    }

    fn get(&self, name: &str) -> Option<String> {
        let found = get(&self.flash, name.as_bytes()).expect("a get");
        found.map(|value| String::from_utf8(value).expect("text"))
    }

    fn sync(&self) {
        wait(self.flash.sync()).expect("a sync");
    }

    /// Writes so much that what was stored before lies on the device alone.
    fn push_out(&self) {
        for number in 0..40 {
            set(&self.flash, format!("filler {number}").as_bytes(), &[7; 30_000], 0).expect("a set");
        }
        self.sync();
        until("full regions are written", || numbers(&self.flash).regions_sealed == 0);
    }

    /// Makes devices fail and waits until the tier has seen it.
    fn fail(&self, faults: Faults) {
        self.faulty.set(faults);
        self.set("trigger", "x");
        until("the tier is off", || numbers(&self.flash).off);
    }

    fn heal(&self) {
        self.faulty.set(Faults::default());
        until("the tier is back", || !numbers(&self.flash).off);
        // What has to be done about what was changed meanwhile is done by the next round.
        until("the tier takes writes", || set(&self.flash, b"after", b"x", 0).is_ok());
        self.sync();
    }

    /// The same tier after a kill.
    fn killed(self) -> Self {
        let Self { memory, flash, clock, config, .. } = self;
        flash.crash();
        let faulty = FaultyMedia::new(Arc::clone(&memory));
        let flash = open(Arc::clone(&faulty) as _, &config, &clock);
        Self { memory, faulty, flash, clock, config }
    }

    fn is_refused(&self, name: &str) {
        let error = set(&self.flash, name.as_bytes(), b"while off", 0).expect_err("the tier is off");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

/// What came while the tier was off is in no log. Once RAM has gone too, nothing else says so.
#[test]
fn what_came_while_the_tier_was_off_is_a_gap_of_its_feed_behind_a_restart() {
    for faults in ways_to_fail() {
        let mut rig = Rig::new();
        rig.config.feed = true;
        rig.config.versioning = Versioning { cluster: true, ..Versioning::default() };
        // The same device, as one of several copies.
        let rig = rig.killed();
        rig.clock.advance(1);
        rig.sync();
        let place = Feed::end(&rig.flash);
        let gap = |rig: &Rig| {
            let mut reader = Feed::reader(&rig.flash, place, Wanted::default());
            reader.read(100, 1 << 20).expect("the device answers").gap
        };
        assert_eq!(gap(&rig), None);
        rig.faulty.set(faults);
        let _ = set(&rig.flash, b"trigger", b"x", 0);
        until("the tier is off", || numbers(&rig.flash).off);
        // Nothing of it was on the device, so that nothing there is out of date.
        rig.is_refused("new");
        delete(&rig.flash, b"never there").expect_err("the tier is off");
        rig.clock.advance(1);
        rig.heal();
        assert_eq!(gap(&rig).and_then(|gap| gap.cause), Some(GapCause::Off));
        let killed = rig.killed();
        assert!(gap(&killed).is_some(), "the reader is not told");
        let clean = {
            let Rig { memory, flash, clock, config, .. } = killed;
            drop(flash);
            let faulty = FaultyMedia::new(Arc::clone(&memory));
            let flash = open(Arc::clone(&faulty) as _, &config, &clock);
            Rig { memory, faulty, flash, clock, config }
        };
        assert!(gap(&clean).is_some(), "the reader is not told");
    }
}

fn ways_to_fail() -> [Faults; 3] {
    let none = Faults::default();
    [Faults { writes: true, ..none.clone() }, Faults { full: true, ..none.clone() }, Faults { syncs: true, ..none }]
}

#[test]
fn a_tier_that_cannot_write_is_off_but_reads_on_and_comes_back_with_everything() {
    for faults in ways_to_fail() {
        let rig = Rig::new();
        rig.set("on the device", "1");
        rig.push_out();
        assert!(rig.flash.health().notes.is_empty());
        rig.fail(faults);
        assert!(!rig.flash.health().notes.is_empty() && numbers(&rig.flash).io_errors > 0);
        assert_eq!(rig.get("on the device").as_deref(), Some("1"));
        assert_eq!(rig.get("trigger").as_deref(), Some("x"), "it is still in the buffer");
        rig.heal();
        assert!(rig.flash.health().notes.is_empty());
        rig.set("later", "2");
        rig.sync();
        let rig = rig.killed();
        for (name, value) in [("on the device", "1"), ("trigger", "x"), ("later", "2")] {
            assert_eq!(rig.get(name).as_deref(), Some(value), "{name}");
        }
    }
}

#[test]
fn what_was_changed_while_the_tier_was_off_is_not_served_as_it_was() {
    for faults in ways_to_fail() {
        let rig = Rig::new();
        ["overwritten", "deleted", "touched by none"].iter().for_each(|name| rig.set(name, "old"));
        rig.push_out();
        rig.fail(faults);
        rig.is_refused("overwritten");
        assert!(delete(&rig.flash, b"deleted").is_err());
        for name in ["overwritten", "deleted"] {
            assert_eq!(rig.get(name), None, "{name} while off");
        }
        rig.heal();
        rig.set("later", "new");
        rig.sync();
        for name in ["overwritten", "deleted"] {
            assert_eq!(rig.get(name), None, "{name} when back");
        }
        let rig = rig.killed();
        for name in ["overwritten", "deleted"] {
            assert_eq!(rig.get(name), None, "{name} after a restart");
        }
        assert_eq!(rig.get("later").as_deref(), Some("new"));
    }
}

/// A device whose superblocks can always be written.
struct HeadsGoThrough {
    faulty: Arc<FaultyMedia<MemoryMedia>>,
    memory: Arc<MemoryMedia>,
}

impl Media for HeadsGoThrough {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.faulty.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset < HEAD { self.memory.write_at(bytes, offset) } else { self.faulty.write_at(bytes, offset) }
    }

    fn sync(&self) -> io::Result<()> {
        self.faulty.sync()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn what_was_changed_while_the_tier_was_off_is_not_served_after_a_kill_either() {
    let rig = Rig::with(|faulty, memory| Arc::new(HeadsGoThrough { faulty, memory }));
    rig.set("overwritten", "old");
    rig.push_out();
    rig.fail(Faults { full: true, ..Faults::default() });
    let before = rig.memory.image();
    rig.is_refused("overwritten");
    until("the superblock says so", || rig.memory.image()[..HEAD as usize] != before[..HEAD as usize]);
    let rig = rig.killed();
    assert_eq!(rig.get("overwritten"), None);
    rig.set("overwritten", "new");
    rig.sync();
    assert_eq!(rig.killed().get("overwritten").as_deref(), Some("new"));
}

#[test]
fn a_flush_that_could_not_be_written_is_written_later() {
    let rig = Rig::new();
    rig.set("flushed", "old");
    rig.push_out();
    rig.faulty.set(Faults { writes: true, ..Faults::default() });
    assert!(finish(rig.flash.flush(Exptime(0))).is_err());
    assert_eq!(rig.get("flushed"), None);
    rig.is_refused("flushed");
    assert!(wait(rig.flash.sync()).is_err(), "a restart would bring back what is flushed");
    rig.heal();
    rig.set("later", "new");
    rig.sync();
    assert_eq!(rig.get("flushed"), None);
    let rig = rig.killed();
    assert_eq!(rig.get("flushed"), None, "after a restart");
    assert_eq!(rig.get("later").as_deref(), Some("new"));
}

#[test]
fn a_read_that_fails_is_an_error_and_counted_and_the_item_is_not_lost() {
    let rig = Rig::new();
    rig.set("key", "1");
    rig.push_out();
    rig.faulty.set(Faults { reads: true, ..Faults::default() });
    let error = get(&rig.flash, b"key").expect_err("the device cannot be read");
    assert_eq!(error.kind(), ErrorKind::Device);
    assert_eq!(numbers(&rig.flash).io_errors, 1);
    rig.set("other", "2");
    assert_eq!(rig.get("other").as_deref(), Some("2"));
    rig.faulty.set(Faults::default());
    assert_eq!(rig.get("key").as_deref(), Some("1"));
}

#[test]
fn writers_wait_for_a_device_that_stalls_and_go_on_with_it() {
    const WRITES: usize = 200;
    let rig = Rig::new();
    rig.set("on the device", "1");
    rig.push_out();
    rig.faulty.set(Faults { stall_writes: true, ..Faults::default() });
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Twice what all buffers hold.
        scope.spawn(|| {
            for number in 0..WRITES {
                set(&rig.flash, format!("{number}").as_bytes(), &[number as u8; 25_000], 0).expect("a set");
                written.fetch_add(1, Ordering::Release);
            }
        });
        until("the device stalls", || rig.faulty.stalled() > 0);
        assert_eq!(rig.get("on the device").as_deref(), Some("1"));
        until("something is written into RAM", || written.load(Ordering::Acquire) > 0);
        assert!(written.load(Ordering::Acquire) < WRITES, "more than fits into buffers");
        rig.faulty.set(Faults::default());
    });
    rig.sync();
    // The device has room for all of it but some: what is there must be right, the last at any rate.
    for number in 0..WRITES {
        let found = get(&rig.flash, format!("{number}").as_bytes()).expect("a get");
        assert!(found.is_none_or(|value| value == [number as u8; 25_000]));
    }
    assert!(get(&rig.flash, format!("{}", WRITES - 1).as_bytes()).expect("a get").is_some());
}

#[test]
fn writes_go_on_while_reads_stall_and_the_reads_end_with_what_is_right() {
    let rig = Rig::new();
    rig.set("key", "1");
    rig.set("other", "1");
    rig.push_out();
    rig.faulty.set(Faults { stall_reads: true, ..Faults::default() });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (rig.get("key"), rig.get("other")));
        until("a read stalls", || rig.faulty.stalled() > 0);
        rig.set("other", "2");
        rig.sync();
        rig.faulty.set(Faults::default());
        assert_eq!(reader.join().expect("the reader ends"), (Some("1".into()), Some("2".into())));
    });
}
