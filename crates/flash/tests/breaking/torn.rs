//! Power cuts: a sequence of writes is recorded, cut at every block and inside blocks, and opened again each time.
//!
//! Guards against a restart that takes half a write for a whole one, that finds an old version because the newer one's
//! region is not there, or that brings back what was deleted or flushed. A device writes sectors of 512 bytes whole.

use std::sync::Arc;

use fastrand::Rng;
use moneta_flash::testing::{Cut, MemoryMedia, RecordingMedia};
use moneta_flash::{Flash, FlashConfig};
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::{Calls, Clock};

use super::drive::{START, config, delete, device_bytes, finish, get, get_with, numbers, open, set, wait};
use super::history::{History, name, value};

/// A block of the device, and a sector of it.
const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// How a sequence goes.
struct Plan {
    regions: u64,
    operations: usize,
    keys: usize,
    /// Regions are emptied, so that any key may be gone.
    may_miss: bool,
    /// Flushes among ten thousand operations.
    flushes: u32,
    /// Cuts that are tried, of all there are, evenly spread.
    cuts: usize,
}

/// What is known when so many events are on the device.
struct Milestone {
    events: usize,
    durable: usize,
}

struct Recording {
    media: Arc<RecordingMedia<MemoryMedia>>,
    history: History,
    milestones: Vec<Milestone>,
    clock: Arc<Clock>,
    highest_cas: u64,
    config: FlashConfig,
}

struct Recorder {
    flash: Flash,
    rng: Rng,
    /// The operation that asked for a flush which is still to come, and its moment.
    waiting: Option<(usize, u32)>,
    flushes: u32,
    made: Recording,
}

fn record(seed: u64, plan: &Plan) -> Recording {
    let media = RecordingMedia::new(MemoryMedia::new(device_bytes(plan.regions)));
    let clock = Arc::new(Clock::manual(START));
    let config = config();
    let flash = open(Arc::clone(&media) as _, &config, &clock);
    let history = History::new(plan.keys);
    let milestones = vec![Milestone { events: media.events(), durable: 0 }];
    let made = Recording { media, history, milestones, clock, highest_cas: 0, config };
    let mut recorder = Recorder { flash, rng: Rng::with_seed(seed), waiting: None, flushes: plan.flushes, made };
    (0..plan.operations).for_each(|_| recorder.operation());
    recorder.sync();
    if plan.may_miss {
        let stats = numbers(&recorder.flash);
        assert!(stats.evictions > 0 && stats.carried_items > 0, "regions are emptied, and some items carried");
    }
    recorder.flash.crash();
    recorder.made
}

impl Recorder {
    fn operation(&mut self) {
        if self.rng.u32(0..10_000) < self.flushes {
            return self.flush();
        }
        let number = self.rng.usize(self.made.history.keys());
        let name = name(number);
        match self.rng.u16(0..1000) {
            0..550 => {
                let version = self.made.history.next_version(number);
                let (exptime, expiry) = self.exptime();
                let cas = set(&self.flash, &name, &value(number, version), exptime).expect("a set");
                self.made.highest_cas = self.made.highest_cas.max(cas);
                self.made.history.note(number, Some(version), expiry);
            }
            550..700 => {
                get(&self.flash, &name).expect("a get");
            }
            700..780 => {
                let (exptime, expiry) = self.exptime();
                let request = Retrieve { touch: Some(Exptime(exptime)), ..Retrieve::default() };
                if get_with(&self.flash, &name, &request).expect("a touch").is_some() {
                    self.made.history.note_touch(number, expiry);
                }
            }
            780..930 => {
                delete(&self.flash, &name).expect("a delete");
                self.made.history.note(number, None, u32::MAX);
            }
            930..990 => self.sync(),
            _ => self.advance(),
        }
    }

    /// A time to live, and the second in which it ends.
    fn exptime(&mut self) -> (i64, u32) {
        let seconds = match self.rng.u8(0..10) {
            0..6 => return (0, u32::MAX),
            6 => self.rng.u32(1..20),
            7 => self.rng.u32(20..600),
            8 => self.rng.u32(600..8000),
            _ => self.rng.u32(8000..90_000),
        };
        (i64::from(seconds), self.made.clock.now() + seconds)
    }

    fn sync(&mut self) {
        let durable = self.made.history.operations();
        wait(self.flash.sync()).expect("a sync");
        self.reached(durable);
    }

    /// Everything up to an operation is on the device now.
    fn reached(&mut self, durable: usize) {
        self.made.milestones.push(Milestone { events: self.made.media.events(), durable });
    }

    fn flush(&mut self) {
        if self.waiting.is_some() {
            return;
        }
        if self.rng.bool() {
            finish(self.flash.flush(Exptime(0))).expect("a flush");
            self.made.history.note_flush();
            // What came before it need not be on the device: it is gone either way.
            self.reached(self.made.history.operations());
        } else {
            let delay = self.rng.u32(1..15);
            finish(self.flash.flush(Exptime(i64::from(delay)))).expect("a flush");
            self.waiting = Some((self.made.history.note_other(), self.made.clock.now() + delay));
            self.sync();
        }
    }

    fn advance(&mut self) {
        self.made.clock.advance(self.rng.u32(1..10));
        if let Some((asked, moment)) = self.waiting
            && moment <= self.made.clock.now()
        {
            self.made.history.note_delayed_flush(asked);
            self.waiting = None;
        }
    }
}

impl Recording {
    /// Cuts at every block of every write, and at every sector of its last block; every so many of them.
    fn sweep(&self, plan: &Plan) {
        let is_cut = |cut: Cut| {
            let left = if cut.torn == 0 { usize::MAX } else { self.media.length(cut.events) - cut.torn };
            cut.torn.is_multiple_of(BLOCK) || left < BLOCK
        };
        let mut all = 0;
        self.media.each_cut(SECTOR, |cut, _| all += usize::from(is_cut(cut)));
        let every = all.div_ceil(plan.cuts).max(1);
        let (mut number, mut tried) = (0, 0);
        self.media.each_cut(SECTOR, |cut, image| {
            if !is_cut(cut) {
                return;
            }
            number += 1;
            // Before the first milestone there is no tier yet.
            if number % every == 0 && cut.events >= self.milestones[0].events {
                self.reopen(cut, image, plan);
                tried += 1;
            }
        });
        assert!(tried > plan.cuts / 4, "{tried} of {all} cuts tried");
    }

    fn reopen(&self, cut: Cut, image: &[u8], plan: &Plan) {
        let reached = self.milestones.iter().rfind(|milestone| milestone.events <= cut.events);
        let durable = reached.map_or(0, |milestone| milestone.durable);
        let flash = open(MemoryMedia::of(image.to_vec()), &self.config, &self.clock);
        for number in self.history.keys() {
            let shown = get(&flash, &name(number)).expect("a get after the cut");
            if let Err(wrong) = self.history.check(number, shown.as_deref(), durable, self.clock.now(), plan.may_miss) {
                panic!("after {cut:?}: {wrong}");
            }
        }
        let cas = set(&flash, b"later", b"value", 0).expect("a set after the cut");
        assert!(cas > self.highest_cas, "after {cut:?}: CAS value {cas} again, after {}", self.highest_cas);
        assert_eq!(get(&flash, b"later").expect("a get").as_deref(), Some(&b"value"[..]));
        flash.crash();
    }
}

fn sweep(plan: &Plan) {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    record(seed, plan).sweep(plan);
}

#[test]
fn a_cut_anywhere_loses_nothing_that_was_durable() {
    sweep(&Plan { regions: 48, operations: 1200, keys: 60, may_miss: false, flushes: 20, cuts: 1500 });
}

#[test]
fn a_cut_while_regions_are_emptied_brings_nothing_old_back() {
    sweep(&Plan { regions: 16, operations: 8000, keys: 300, may_miss: true, flushes: 2, cuts: 800 });
}
