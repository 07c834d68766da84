//! A relay on its way, out of the shipped parts: the pump and its marks, what is kept of the progress, and from where another copy is
//! read. What a supervisor of threads does, the world does here, when it likes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use moneta_feed::{
    Begin, Change, Gap, Line, Mark, Next, Owner, Pump, PumpError, Rate, Settings, Sink, SinkError, Source, SourceError,
    Wanted,
};
use moneta_relay::RelayConfig;
use moneta_relay::progress::{Kept, Resume};
use moneta_store::Version;
use moneta_testkit::feed::StoreSource;

use crate::region::{Applied, Region};
use crate::{Guard, MARKS};

const SLOT: &str = "n0";

pub fn margin() -> u64 {
    u64::try_from(RelayConfig::MARGIN.as_millis()).expect("it fits")
}

fn copy_name(copy: usize) -> String {
    format!("copy{copy}")
}

/// A relay from one region to another.
pub struct Carrier {
    pub from: usize,
    pub to: usize,
    /// The copy that is read.
    pub copy: usize,
    /// What is on its disk.
    kept: Kept,
    /// As the process has it.
    progress: Kept,
    place: Begin,
    watermark: u64,
    needed: u64,
    /// Since when what was written there is to be compared with what is here.
    pub due: Option<u64>,
}

impl Carrier {
    pub fn new(from: usize, to: usize, whole: u64) -> Self {
        let kept = Kept::until(whole);
        let mut carrier = Self {
            from,
            to,
            copy: 0,
            progress: kept.clone(),
            kept,
            place: Begin::Now,
            watermark: 0,
            needed: 0,
            due: None,
        };
        carrier.begin_at(0, Guard::None);
        carrier.keep();
        carrier
    }

    /// Begins to read a copy.
    fn begin_at(&mut self, copy: usize, guard: Guard) {
        let Resume { since, whole } = self.progress.resume(&copy_name(copy), SLOT);
        let since = if guard == Guard::Margin { whole } else { since };
        (self.copy, self.place) = (copy, Begin::Since(since));
        (self.watermark, self.needed) = (whole, whole);
    }

    /// Takes note of how far it is, as every turn of the supervisor.
    fn note(&mut self) {
        if let Some(since) = self.progress.advance(&copy_name(self.copy), [(SLOT.to_owned(), self.watermark)]) {
            let since = since.saturating_sub(margin());
            self.due = Some(self.due.map_or(since, |due| due.min(since)));
        }
    }

    /// Writes down how far it is.
    pub fn keep(&mut self) {
        self.note();
        self.kept = self.progress.clone();
    }

    /// It is killed, and started again.
    pub fn restart(&mut self, guard: Guard) {
        self.progress = self.kept.clone();
        self.begin_at(self.copy, guard);
    }

    /// Reads another copy.
    pub fn switch(&mut self, copy: usize, guard: Guard) {
        self.note();
        self.begin_at(copy, guard);
        self.keep();
    }

    /// Up to when all is there, as far as it knows.
    pub fn whole(&self) -> u64 {
        self.progress.whole
    }

    /// Reads on, up to so many lines.
    pub fn read(&mut self, regions: &mut [Region], lines: usize, guard: Guard, random: &mut Rng) -> Read {
        let store = Arc::clone(&regions[self.from].copies[self.copy].store);
        let since = regions[self.to].clock.millis().min(regions[self.from].clock.millis()) - MARKS;
        let wanted = Wanted { values: true, region: Some(self.from as u8), ..Wanted::default() };
        let told = Rc::<RefCell<Option<Mark>>>::default();
        let source = StoreSource::new(store, wanted);
        let source = Told { source, guard, from: self.from, since, told: Rc::clone(&told) };
        let sink = Taking { to: &mut regions[self.to], guard, lacks: false, read: Read::default() };
        let settings = Settings {
            batch: random.usize(1..4),
            batch_bytes: usize::MAX,
            follows: false,
            filter: None,
            needed: self.needed,
            margin: Some(margin()),
            large: None,
            large_bytes: usize::MAX,
        };
        let mut pump = Pump::new(source, sink, settings, Rate::default(), self.place, self.watermark);
        let mut reading = Reading { left: Cell::new(lines), watermark: self.watermark, has_gap: false };
        // It ends where it is not to go on: what is ahead of a clock is read again from the last mark.
        let _ = pump.run(&mut reading);
        (self.place, self.watermark) = (pump.place(), reading.watermark);
        if let (Guard::Settled, Some(mark)) = (guard, &*told.borrow()) {
            // As if what was told had ended.
            self.place = Begin::Cursor(mark.cursor.parse().expect("a cursor"));
            self.watermark = self.watermark.max(mark.watermark);
        }
        if reading.has_gap {
            let since = self.progress.whole.saturating_sub(margin());
            self.due = Some(self.due.map_or(since, |due| due.min(since)));
        }
        pump.into_sink().read
    }
}

/// What came of reading.
#[derive(Default)]
pub struct Read {
    /// What was applied.
    pub applied: Vec<Change>,
}

/// What a copy tells, with the age that the relay knows of it.
struct Told {
    source: StoreSource,
    guard: Guard,
    from: usize,
    since: u64,
    /// How far it has told.
    told: Rc<RefCell<Option<Mark>>>,
}

impl Told {
    fn is_left_out(&self, change: &Change) -> bool {
        match (change, self.guard) {
            (Change::Delete { .. }, Guard::Deletes) => true,
            (Change::Set(set), Guard::Touches) => set.meta.version().origin().region() as usize != self.from,
            _ => false,
        }
    }
}

impl Source for Told {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.source.begin(from, rate)
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        loop {
            let mut next = self.source.next()?;
            match &mut next {
                Next::Line(Line::Change(change)) if self.is_left_out(change) => continue,
                Next::Line(Line::Change(Change::Set(set))) => {
                    set.as_of = Some(set.as_of.map_or(self.since, |told| told.min(self.since)));
                }
                Next::Line(Line::Mark(mark)) => drop(self.told.replace(Some(mark.clone()))),
                _ => {}
            }
            return Ok(next);
        }
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        self.source.wait(bytes)
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.source.set_rate(rate)
    }
}

/// The cluster of the region that receives.
struct Taking<'w> {
    to: &'w mut Region,
    guard: Guard,
    lacks: bool,
    read: Read,
}

impl Sink for Taking<'_> {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        for mut change in changes {
            if let (Change::Set(set), Guard::Versions) = (&mut change, self.guard) {
                // A version of now, whatever it was.
                let local = Version::at(self.to.clock.millis()).local() + 1;
                set.meta.cas = Version::new(local, set.meta.version().origin()).0;
            }
            match self.to.apply(&change) {
                Applied::Done => self.read.applied.push(change),
                Applied::Lacks => self.lacks = true,
                Applied::Later => return Err(SinkError::Closed),
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        std::mem::take(&mut self.lacks)
    }
}

struct Reading {
    /// How often it is asked until it is over.
    left: Cell<usize>,
    watermark: u64,
    has_gap: bool,
}

impl<K: Sink> Owner<K> for Reading {
    fn is_over(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }

    fn gap(&mut self, _: Gap) {
        self.has_gap = true;
    }

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, _: &mut K) -> Result<(), PumpError> {
        self.watermark = self.watermark.max(mark.watermark);
        Ok(())
    }

    fn oversized(&mut self, _: bytes::Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Ok(None)
    }

    /// In a later step.
    fn goes_back(&mut self, _: &mut K) -> Option<Begin> {
        self.left.set(0);
        None
    }

    fn goes_on(&mut self, _: &PumpError) -> bool {
        false
    }
}
