//! The pump between a source and a sink that fail at any time. The failures to guard against are silent: a cursor that was kept
//! passes over a change that the sink had not taken, and a sink that forgot what it took is not told again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use fastrand::Rng;
use moneta_feed::{
    Begin, Change, FeedPlace, Gap, GapCause, Line, Mark, Next, Owner, Pump, PumpError, Rate, Settings, Sink, SinkError,
    Source, SourceError,
};
use moneta_store::{ErrorKind, StoreError, Version};

/// Changes of the log.
const COUNT: u64 = 200;
const KEYS: u64 = 30;

fn seed() -> u64 {
    let seed = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}

fn key(number: u64) -> Bytes {
    format!("k{}", number % KEYS).into()
}

/// The change at a position, told at that millisecond.
fn change(number: u64) -> Change {
    Change::Delete { key: key(number), version: Version(number + 1) }
}

/// A log of [`COUNT`] changes that breaks off now and then.
struct Log {
    rng: Rng,
    at: u64,
    /// It tells a mark next.
    marks: bool,
    fails: bool,
    rates: Rc<RefCell<Vec<u64>>>,
}

impl Log {
    fn fail(&mut self) -> Result<(), SourceError> {
        if self.fails && self.rng.u8(0..20) == 0 { Err(SourceError::Away("it broke off".to_owned())) } else { Ok(()) }
    }
}

impl Source for Log {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.rates.borrow_mut().push(rate);
        self.fail()?;
        self.at = match from {
            Begin::Now => COUNT,
            Begin::Since(millis) => millis,
            Begin::Cursor(place) => place.position,
        };
        self.marks = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        self.fail()?;
        if self.marks && self.rng.bool() {
            self.marks = false;
            let place = FeedPlace { incarnation: 1, position: self.at, told: 0 };
            let mark = Mark { cursor: place.to_string(), watermark: self.at, horizon: 0, behind: None, more: true };
            return Ok(Next::Line(Line::Mark(mark)));
        }
        if self.rng.u8(0..4) == 0 {
            return Ok(Next::Lacking(1));
        }
        if self.at == COUNT && !self.marks {
            return Ok(Next::Line(Line::End));
        }
        self.marks = true;
        if self.at == COUNT {
            return self.next();
        }
        self.at += 1;
        Ok(Next::Line(Line::Change(change(self.at - 1))))
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        self.fail()
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.rates.borrow_mut().push(rate);
        Ok(true)
    }
}

/// The newest version of each key.
type Held = HashMap<Bytes, u64>;

fn newest(changes: impl IntoIterator<Item = Change>, held: &mut Held) {
    for change in changes {
        let Change::Delete { key, version } = change else { continue };
        let newest = held.entry(key).or_default();
        *newest = version.0.max(*newest);
    }
}

/// A store that takes what is under way when it settles, fails now and then, and forgets the newest that it was ever told.
struct Store {
    rng: Rng,
    under_way: Vec<Change>,
    held: Held,
    /// The greatest version that it was told.
    newest: u64,
    lacks: bool,
    fails: bool,
    forgets: bool,
}

impl Sink for Store {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.settle()?;
        self.under_way = changes;
        Ok(())
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        if self.fails && self.rng.u8(0..10) == 0 {
            self.under_way.clear();
            return Err(SinkError::Failed(StoreError::new(ErrorKind::Unavailable, "it is gone")));
        }
        newest(std::mem::take(&mut self.under_way), &mut self.held);
        if self.forgets && self.rng.u8(0..20) == 0 {
            self.newest = self.held.values().copied().max().unwrap_or(0).max(self.newest);
            self.held.retain(|_, version| *version + MARGIN < self.newest);
            self.lacks = true;
        }
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        std::mem::take(&mut self.lacks)
    }
}

/// More than a store forgets, in milliseconds.
const MARGIN: u64 = 50;

#[derive(Default)]
struct Watcher {
    reached: u64,
    furthest: u64,
    gaps: Vec<Gap>,
    failures: u32,
    ends_at: Option<u64>,
}

impl Owner<Store> for Watcher {
    fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|at| self.reached >= at)
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, sink: &mut Store) -> Result<(), PumpError> {
        self.reached = mark.cursor.parse::<FeedPlace>().expect("a cursor").position;
        self.furthest = self.furthest.max(self.reached);
        // A store that has forgotten something says so, and the pump goes back: until it is here again, the store may have
        // neither what it forgot of a key nor what came before that.
        if !sink.lacks && self.reached == self.furthest {
            let mut told = Held::new();
            newest((0..self.reached).map(change), &mut told);
            for (key, version) in told {
                assert!(sink.held.get(&key).is_some_and(|held| *held >= version), "passes over {key:?} {version}");
            }
        }
        Ok(())
    }

    fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Ok(None)
    }

    fn goes_on(&mut self, _: &PumpError) -> bool {
        self.failures += 1;
        true
    }
}

fn settings(rng: &mut Rng) -> Settings {
    Settings {
        batch: rng.usize(1..20),
        batch_bytes: rng.usize(1..200),
        follows: false,
        filter: None,
        needed: 0,
        margin: Some(MARGIN + 10),
        large: None,
        large_bytes: usize::MAX,
    }
}

fn log(rng: &mut Rng, fails: bool) -> Log {
    Log { rng: rng.fork(), at: 0, marks: false, fails, rates: Rc::default() }
}

fn store(rng: &mut Rng, fails: bool, forgets: bool) -> Store {
    Store { rng: rng.fork(), under_way: Vec::new(), held: Held::new(), newest: 0, lacks: false, fails, forgets }
}

#[test]
fn nothing_is_passed_over_whatever_fails() {
    let mut rng = Rng::with_seed(seed());
    for (fails, forgets) in [(false, false), (true, false), (false, true), (true, true)] {
        for _ in 0..20 {
            let (settings, log, store) = (settings(&mut rng), log(&mut rng, fails), store(&mut rng, fails, forgets));
            let mut pump = Pump::new(log, store, settings, Rate::default(), Begin::Since(0), 0);
            let mut watcher = Watcher::default();
            pump.run(&mut watcher).expect("its owner goes on");
            assert_eq!(watcher.reached, COUNT);
            let mut told = Held::new();
            newest((0..COUNT).map(change), &mut told);
            assert_eq!(pump.into_sink().held, told);
            assert!(!fails || watcher.failures > 0, "something fails");
        }
    }
}

#[test]
fn a_pump_goes_on_where_another_one_ended() {
    let mut rng = Rng::with_seed(seed());
    for _ in 0..50 {
        let (mut place, mut watermark, mut held) = (Begin::Since(0), 0, Held::new());
        while watermark < COUNT {
            let mut store = store(&mut rng, true, false);
            store.held = std::mem::take(&mut held);
            let (settings, log) = (settings(&mut rng), log(&mut rng, true));
            let mut pump = Pump::new(log, store, settings, Rate::default(), place, watermark);
            let mut watcher = Watcher { ends_at: Some(watermark + 1), reached: watermark, ..Watcher::default() };
            pump.run(&mut watcher).expect("its owner goes on");
            (place, watermark) = (pump.place(), watcher.reached);
            held = std::mem::take(&mut pump.into_sink().held);
        }
        let mut told = Held::new();
        newest((0..COUNT).map(change), &mut told);
        assert_eq!(held, told);
    }
}

#[test]
fn only_keys_that_are_wanted_are_taken_and_gaps_from_before_are_none() {
    let mut rng = Rng::with_seed(seed());
    let lines = [
        Change::Gap(Gap { since: 10, cause: Some(GapCause::Ring) }),
        change(1),
        Change::Gap(Gap { since: 11, cause: Some(GapCause::Off) }),
        change(2),
    ];
    let source = Lines(lines.into_iter().collect());
    let settings = Settings {
        filter: Some(std::sync::Arc::new(|name: &[u8]| name == &key(2)[..])),
        needed: 10,
        ..settings(&mut rng)
    };
    let mut pump = Pump::new(source, store(&mut rng, false, false), settings, Rate::default(), Begin::Now, 0);
    let mut watcher = Watcher::default();
    pump.run(&mut watcher).expect("nothing fails");
    assert_eq!(watcher.gaps, [Gap { since: 11, cause: Some(GapCause::Off) }]);
    assert_eq!(pump.into_sink().held, Held::from([(key(2), 3)]));
}

/// Lines, and no more.
struct Lines(std::collections::VecDeque<Change>);

impl Source for Lines {
    fn begin(&mut self, _: Begin, _: u64) -> Result<(), SourceError> {
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        Ok(Next::Line(self.0.pop_front().map_or(Line::End, Line::Change)))
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        Ok(())
    }

    fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
        Ok(false)
    }
}

#[test]
fn a_rate_that_changes_is_told_to_the_source_once() {
    let mut rng = Rng::with_seed(seed());
    let log = log(&mut rng, false);
    let rates = Rc::clone(&log.rates);
    let rate = Rate::of(1000);
    struct Slower(Rate, Watcher);
    impl Owner<Store> for Slower {
        fn is_over(&self) -> bool {
            false
        }
        fn gap(&mut self, _: Gap) {}
        fn lost(&mut self, _: u64) {}
        fn reached(&mut self, mark: &Mark, sink: &mut Store) -> Result<(), PumpError> {
            self.0.set(500);
            self.1.reached(mark, sink)
        }
        fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
            Ok(None)
        }
        fn goes_on(&mut self, _: &PumpError) -> bool {
            false
        }
    }
    let mut pump = Pump::new(log, store(&mut rng, false, false), settings(&mut rng), rate.clone(), Begin::Since(0), 0);
    pump.run(&mut Slower(rate, Watcher::default())).expect("nothing fails");
    assert_eq!(*rates.borrow(), [1000, 500]);
}
