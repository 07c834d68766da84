//! From a node into the archive: a base, if there is none that changes lead on from, and then the changes.
//!
//! ```text
//!  the last part's end ── a cursor of this node's feed? ──no──▶ another line: a base, and a part from its cursor on
//!          │ yes                                                       ▲
//!          ▼                                                           │ a gap
//!  changes from there, a segment every so often; a part of a day ──────┘
//! ```
//!
//! A node with an SSD tier tells its base by its feed from the begin, and its changes go on where that ended. Of any other the
//! keys are listed, and its changes are followed from before the list was begun.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use moneta_bulk::law::Room;
use moneta_bulk::metered::{Metered, Moment};
use moneta_bulk::{Counters, Counts, RateConfig, Server, Throttle, WalkSource, Watch, Which};
use moneta_feed::{Begin, FeedPlace, NodeSource, Request, Wanted};
use moneta_net::Endpoint;
use moneta_segments::Form;
use serde::Serialize;

use crate::ends::{BaseSink, Cadence, PartSink};
use crate::error::BackupError;
use crate::follow::{Ended, Run};
use crate::layout::{BaseRecord, Made, PartRecord, Slot};
use crate::moment::millis;

/// Failures in a row after which a base is given up, or changes that are not followed for ever.
const FAILURES: u32 = 30;
/// The name under which nodes list the reader of their changes.
const READER: &str = "moneta-backup";
/// How long the node that had a slot before may take to answer.
const FORMER_PATIENCE: Duration = Duration::from_secs(3);
/// By how much the clock of this machine may be behind a node's, in milliseconds.
const CLOCKS: u64 = 1000;

/// How a node is backed up.
#[derive(Clone, Debug)]
pub struct TakeConfig {
    /// The node.
    pub node: Endpoint,
    /// The slot may have been another node's that still runs.
    pub moved: bool,
    /// Go on with changes, until it is stopped; else up to when it was begun.
    pub follow: bool,
    /// How often changes are committed: no restore point is older than that while changes are followed.
    pub every: Duration,
    /// Age at which a part of the changes ends and another begins.
    pub part_age: Duration,
    /// How fast the node is read: its base, and once more its changes.
    pub rate: RateConfig,
    /// The largest value that is taken, in bytes.
    pub value_max: usize,
    /// Bytes after which a segment ends.
    pub segment_bytes: u64,
}

/// What was taken of a node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Taken {
    /// The slot in the archive.
    pub slot: String,
    /// How a base was made, if one was.
    pub base: Option<Made>,
    /// What was read for it.
    pub of_base: Counts,
    /// What was read of changes.
    pub of_changes: Counts,
    /// The watermark of the newest restore point, Unix milliseconds.
    pub restore_point: u64,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

/// Backs up a node into its slot.
///
/// # Errors
/// If the node does not answer, the archive does not take it, or changes are missing after a new base, too.
pub fn take(config: &TakeConfig, slot: &mut Slot, watch: &dyn Watch, ends: &AtomicBool) -> Result<Taken, BackupError> {
    let throttles = [config.rate.throttle(), config.rate.throttle()];
    let run = || take_within(config, slot, watch, ends, &throttles);
    let (ended, p99) = config.rate.governed([config.node.clone()], &throttles, watch, run)?;
    Ok(Taken { p99, ..ended? })
}

fn take_within(
    config: &TakeConfig,
    slot: &mut Slot,
    watch: &dyn Watch,
    ends: &AtomicBool,
    throttles: &[Throttle; 2],
) -> Result<Taken, BackupError> {
    let mut taken = Taken { slot: slot.name.clone(), ..Taken::default() };
    // The newest restore point when changes were missing last.
    let mut had_gap = None;
    loop {
        let server = Server::look(&config.node)?;
        let name = server.name();
        let counters = (Counters::default(), Counters::default());
        let wanted = AtomicU64::new(0);
        let is_anew = had_gap.is_some();
        let job = Job {
            is_anew,
            config,
            watch,
            ends,
            server: &server,
            name: &name,
            base: &counters.0,
            changes: &counters.1,
            wanted: &wanted,
            throttles,
        };
        let ended = job.run(slot, &mut taken);
        let mut of_base = counters.0.counts();
        if taken.base == Some(Made::List) {
            // All items of a list were current when they were read.
            of_base.replaced = 0;
        }
        taken.of_base = taken.of_base.and(of_base);
        taken.of_changes = taken.of_changes.and(counters.1.counts());
        match ended? {
            Ended::Gap(gap) if had_gap == Some(taken.restore_point) => {
                return Err(BackupError::Gap { server: name, gap });
            }
            Ended::Gap(gap) => {
                let why = gap.cause.map_or("", |cause| cause.word());
                watch.note(&format!("{name}: changes are missing ({why}): a new base is made"));
                had_gap = Some(taken.restore_point);
            }
            Ended::Over | Ended::Stopped => return Ok(taken),
        }
    }
}

struct Job<'a> {
    /// What is there does not lead on to what the node tells.
    is_anew: bool,
    config: &'a TakeConfig,
    watch: &'a dyn Watch,
    ends: &'a AtomicBool,
    server: &'a Server,
    name: &'a str,
    base: &'a Counters,
    changes: &'a Counters,
    /// A watermark that makes a base whole.
    wanted: &'a AtomicU64,
    /// Of a base, and of changes.
    throttles: &'a [Throttle; 2],
}

impl Job<'_> {
    fn run(&self, slot: &mut Slot, taken: &mut Taken) -> Result<Ended, BackupError> {
        let Ok(place) = self.server.cursor() else {
            if self.config.follow {
                self.server.cursor()?;
            }
            self.watch.note(&format!("{}: it tells no changes: each backup is a base", self.name));
            return self.list(slot, None, taken);
        };
        let part = self.current(slot, place)?;
        match part {
            Some(part) if slot.has_base(part.number) => self.follow(slot, part, &self.until(), taken),
            Some(part) => self.list_and_follow(slot, part, taken),
            None if self.server.has_log => match self.by_feed(slot, place, taken)? {
                (Ended::Over, Some(part)) => self.follow(slot, part, &self.until(), taken),
                // Its feed does not reach back to its begin.
                (Ended::Gap(_), _) => self.begin_list(slot, place, taken),
                (ended, _) => Ok(ended),
            },
            None => self.begin_list(slot, place, taken),
        }
    }

    /// Up to when changes are read: without end, or all that the node had been told by now.
    fn until(&self) -> AtomicU64 {
        let told = self.server.feed.as_ref().map_or(0, |mark| mark.watermark);
        AtomicU64::new(if self.config.follow {
            0
        } else if told > 0 {
            told
        } else {
            millis()
        })
    }

    /// The part that goes on, if its end is a cursor of this node's feed.
    fn current(&self, slot: &Slot, place: FeedPlace) -> Result<Option<PartRecord>, BackupError> {
        let Some(last) = slot.parts.last().filter(|_| !self.is_anew) else { return Ok(None) };
        let chain = slot.part_chain(last)?;
        let end: Option<FeedPlace> = chain.end().parse().ok();
        if end.is_none_or(|end| end.incarnation != place.incarnation) {
            if !self.config.moved
                && last.source != self.name
                && end.is_some_and(|end| self.still_runs(&last.source, end))
            {
                return Err(BackupError::Refused(format!(
                    "{} is backed up here from {}, which runs, and {} is another node: of another app it needs another archive; \
                     --moved says that it has taken the place of the first",
                    slot.name, last.source, self.name
                )));
            }
            self.watch
                .note(&format!("{}: it is another one than before, or was begun anew: a new base is made", self.name));
            return Ok(None);
        }
        Ok(Some(last.clone()))
    }

    /// Whether the node at an address is the one that told this place.
    fn still_runs(&self, source: &str, told: FeedPlace) -> bool {
        let Ok(address) = source.parse() else { return false };
        let endpoint = Endpoint { address, ..self.config.node.clone() }.patient(FORMER_PATIENCE);
        let place = Server::look(&endpoint).ok().and_then(|server| server.cursor().ok());
        place.is_some_and(|place| place.incarnation == told.incarnation)
    }

    fn cadence(&self) -> Cadence {
        Cadence { every: self.config.every, part_age: self.config.part_age }
    }

    fn form(&self, listed: bool) -> Form {
        Form { source: self.name.to_owned(), segment_bytes: self.config.segment_bytes, compresses: true, listed }
    }

    fn feed(&self, follow: bool, counters: &Counters) -> Metered<NodeSource> {
        let request = Request {
            wanted: Wanted { values: true, current: !follow, ..Wanted::default() },
            follow,
            name: follow.then(|| READER.to_owned()),
            ..Request::default()
        };
        let source = NodeSource::new(self.config.node.clone(), request, self.config.value_max);
        let source = Metered::new(source, Which::default(), Moment::Told, counters.clone())
            .throttled(&self.throttles[usize::from(follow)]);
        if follow { source.keeping_up() } else { source }
    }

    /// A base by the feed from its begin, and the part that begins where it ended.
    fn by_feed(
        &self,
        slot: &mut Slot,
        place: FeedPlace,
        taken: &mut Taken,
    ) -> Result<(Ended, Option<PartRecord>), BackupError> {
        let mut number = slot.free_base();
        // One that was begun by a process that was killed goes on, or is only to be noted down.
        if let Some(before) =
            number.checked_sub(1).filter(|before| slot.bases.iter().all(|base| base.number != *before))
        {
            let end: Option<FeedPlace> = slot.base_chain(before)?.end().parse().ok();
            if end.is_some_and(|end| end.incarnation == place.incarnation) {
                number = before;
            }
        }
        let chain = slot.base_chain(number)?;
        let (to, watermark) = match chain.done() {
            Some(done) => (done.to.clone(), done.watermark),
            None => {
                self.watch.phase(&format!("{}: base, by the feed", slot.name), self.server.items);
                let from = chain.end().parse().map_or(Begin::Since(0), Begin::Cursor);
                let sink = BaseSink::new(chain, self.form(false));
                let never = AtomicU64::new(0);
                let (sink, ended) = self.base_run(&never).run(self.feed(false, self.base), sink, from);
                match ended? {
                    Ended::Over => {}
                    ended => return Ok((ended, None)),
                }
                sink.finish(None)?
            }
        };
        // Of a node that holds nothing no cursor is told.
        let (to, watermark) = match (to.is_empty(), &self.server.feed) {
            (true, Ok(mark)) => (place.to_string(), mark.watermark),
            _ => (to, watermark),
        };
        let part = match slot.parts.last() {
            Some(part) if part.from == to => part.clone(),
            _ => slot.add_part(self.name, &to, None, millis())?,
        };
        let counts = slot.base_chain(number)?.done().map(|done| done.counts).unwrap_or_default();
        let (part_number, is_point) = (Some(part.number), watermark > 0);
        slot.add_base(BaseRecord {
            number,
            made: Made::Feed,
            part: part_number,
            after: 0,
            complete: watermark,
            is_point,
            counts,
        })?;
        taken.base = Some(Made::Feed);
        taken.restore_point = watermark;
        Ok((Ended::Over, Some(part)))
    }

    /// A base by a list of keys, with a part from before it on.
    fn begin_list(&self, slot: &mut Slot, place: FeedPlace, taken: &mut Taken) -> Result<Ended, BackupError> {
        let part = slot.add_part(self.name, &place.to_string(), None, millis())?;
        self.list_and_follow(slot, part, taken)
    }

    /// The same, with a part that is there.
    fn list_and_follow(&self, slot: &mut Slot, part: PartRecord, taken: &mut Taken) -> Result<Ended, BackupError> {
        let until = AtomicU64::new(0);
        let has_failed = AtomicBool::new(false);
        let mut following = slot.clone();
        let mut followed = Taken::default();
        let number = part.number;
        let after = slot.part_chain(&part)?.segments().len() as u64;
        let (listed, ended) = thread::scope(|scope| {
            let beside = Job { ends: &has_failed, ..*self };
            let (until, followed, following) = (&until, &mut followed, &mut following);
            let follower = scope.spawn(move || {
                let ended = beside.follow(following, part, until, followed);
                // Without its changes the base is of no use.
                if !matches!(ended, Ok(Ended::Over)) {
                    beside.ends.store(true, Ordering::Relaxed);
                }
                ended
            });
            let beside = Job { ends: &has_failed, ..*self };
            let listed = beside.list(slot, Some((number, after)), taken);
            match &listed {
                Ok(Ended::Over) => {
                    let complete = slot.bases.last().map_or(0, |base| base.complete);
                    self.wanted.store(complete, Ordering::Relaxed);
                    if !self.config.follow {
                        until.store(complete.max(1), Ordering::Relaxed);
                    }
                }
                _ => has_failed.store(true, Ordering::Relaxed),
            }
            let panicked = || BackupError::Refused("the thread that followed changes has panicked".to_owned());
            (listed, follower.join().unwrap_or_else(|_| Err(panicked())))
        });
        taken.restore_point = taken.restore_point.max(followed.restore_point);
        // What the follower says is why the list broke off.
        match ended? {
            Ended::Over => listed,
            ended => listed.map(|_| ended),
        }
    }

    /// A run over a base, which ends with it and not at `never`.
    fn base_run<'r>(&'r self, never: &'r AtomicU64) -> Run<'r> {
        Run {
            watch: self.watch,
            counters: self.base,
            from: self.name,
            follows: false,
            from_begin: true,
            until: never,
            failures: Some(FAILURES),
            ends: self.ends,
        }
    }

    /// A base by a list of keys. `part`: the part of the changes that goes on with it, and how many segments it has by now.
    fn list(&self, slot: &mut Slot, part: Option<(u64, u64)>, taken: &mut Taken) -> Result<Ended, BackupError> {
        let number = slot.free_base();
        self.watch.phase(&format!("{}: base, by the list of keys", slot.name), self.server.items);
        let chain = slot.base_chain(number)?;
        let source =
            WalkSource::new(self.config.node.clone(), Which::default(), self.config.value_max, self.base.clone());
        let source =
            Metered::new(source, Which::default(), Moment::Told, self.base.clone()).throttled(&self.throttles[0]);
        let sink = BaseSink::new(chain, self.form(true));
        let never = AtomicU64::new(0);
        let (sink, ended) = self.base_run(&never).run(source, sink, Begin::Since(0));
        match ended? {
            Ended::Over => {}
            ended => return Ok(ended),
        }
        sink.finish(Some(""))?;
        let now = Server::look(&self.config.node)?.feed.map_or(0, |mark| mark.watermark);
        let complete = if part.is_some() { now.max(millis() + CLOCKS) } else { millis() };
        let counts = slot.base_chain(number)?.done().map(|done| done.counts).unwrap_or_default();
        slot.add_base(BaseRecord {
            number,
            made: Made::List,
            part: part.map(|(number, _)| number),
            after: part.map_or(0, |(_, after)| after),
            complete,
            is_point: part.is_none(),
            counts,
        })?;
        taken.base = Some(Made::List);
        if part.is_none() {
            taken.restore_point = complete;
        }
        Ok(Ended::Over)
    }

    /// Changes from the end of a part on.
    fn follow(
        &self,
        slot: &mut Slot,
        part: PartRecord,
        until: &AtomicU64,
        taken: &mut Taken,
    ) -> Result<Ended, BackupError> {
        self.watch.phase(&format!("{}: changes", slot.name), None);
        let mut part = part;
        let mut chain = slot.part_chain(&part)?;
        if chain.done().is_none() && !chain.segments().is_empty() && self.cadence().is_old(&part) {
            chain.finish(None)?;
        }
        // That, or the process before was killed between two parts.
        if let Some(done) = chain.done() {
            let to = done.to.clone();
            part = slot.add_part(self.name, &to, Some(part.number), millis())?;
            chain = slot.part_chain(&part)?;
        }
        let place: FeedPlace = chain.end().parse().map_err(|_| {
            BackupError::Refused(format!("{}: part {} ends at no cursor of a feed", slot.name, part.number))
        })?;
        let sink = PartSink::new(slot, self.form(false), part, self.cadence(), chain, self.wanted);
        let run = Run {
            watch: self.watch,
            counters: self.changes,
            from: self.name,
            follows: true,
            from_begin: false,
            until,
            failures: (!self.config.follow).then_some(FAILURES),
            ends: self.ends,
        };
        let (mut sink, ended) = run.run(self.feed(true, self.changes), sink, Begin::Cursor(place));
        if ended.as_ref().is_ok_and(|ended| !matches!(ended, Ended::Gap(_))) {
            sink.end()?;
        }
        taken.restore_point = taken.restore_point.max(sink.restore_point);
        ended
    }
}
