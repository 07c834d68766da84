//! One of several processes that populate a place from one archive, each some of its segments.
//!
//! ```text
//!  base      a segment is a task (see `moneta_segments::claims`): taken from the first one on, while the base is still being written
//!  changes   one task, once all of the base is done: who has it keeps in claims/NAME/changes.place how far it is
//! ```
//!
//! A segment is done once its items are at their target, and that has not begun anew, empty, since the share began: claims/NAME/lives
//! says which lives its nodes had then. Who dies leaves its segment to another, which writes all of it again: that
//! changes nothing, since items go by version, or are created where nothing is.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Durable, Kept, Word};
use moneta_segments::{Archive, Chain, Claim, Claims, Created, Done, SegmentError, Taken};
use serde::Serialize;

use crate::dump::{BASE, CHANGES};
use crate::error::BulkError;
use crate::lives::KnownLives;
use crate::nodes::Nodes;
use crate::passage::Ended;
use crate::populating::{FAILURES, Job, Populated, Share, check};
use crate::target::Written;
use crate::watch::Counters;

/// How often it is looked whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is written down how far the changes are.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// The task that is all changes.
const ALL_CHANGES: &str = "changes";
/// The file, among the claims, that says how far the changes are.
const PLACE: &str = "changes.place";
/// The most bytes of it.
const PLACE_MAX: u64 = 4096;
/// The file, among the claims, that says what is written where.
const WHAT: &str = "what";
/// The file, among the claims, that says which lives the target's nodes had when the share began.
const LIVES: &str = "lives";
/// The most bytes of either.
const WHAT_MAX: u64 = 4 << 20;

/// What is said of a segment that is done.
#[derive(Serialize)]
struct Said<'a> {
    holder: &'a str,
    written: Written,
}

/// Populates together with all others of the same name.
pub(crate) fn populate(job: &Job<'_>, share: &Share) -> Result<Populated, BulkError> {
    let folder = format!("claims/{}", share.name);
    let join = || Claims::join(Arc::clone(job.archive), &folder, &machine(), share.pulse);
    if share.one_target {
        check_what(job, &folder, &share.name)?;
    }
    let claims = join().map_err(|error| SegmentError::Archive { name: folder.clone(), source: error })?;
    check_lives(job, &folder)?;
    let mut sink = Nodes::new(&job.config.place, job.servers)?;
    sink.ends_at_once = true;
    let mut sharing = Sharing {
        job,
        folder,
        claims,
        sink: Some(sink),
        durable: Durable::of(job.config.place.nodes.iter().cloned()),
        again: Vec::new(),
        counters: Counters::default(),
        listed: None,
        segments: 0,
    };
    job.watch.phase(&format!("base, shared as {}", share.name), None);
    let done = sharing.base();
    let mut populated = Populated { base: sharing.counters.counts(), ..Populated::default() };
    populated.stages.base = sharing.counters.stages().rates();
    if let Some(done) = done? {
        populated.done = true;
        if job.config.follow {
            let counters = Counters::default();
            let followed = sharing.changes(&done, &counters);
            populated.changes = counters.counts();
            populated.stages.changes = counters.stages().rates();
            followed?;
        }
    }
    populated.segments = sharing.segments;
    populated.written = sharing.sink.map(|sink| sink.target.written()).unwrap_or_default();
    Ok(populated)
}

/// Refuses a share that was begun for another target, or for other items.
fn check_what(job: &Job<'_>, folder: &str, share: &str) -> Result<(), BulkError> {
    let what = job.config.what();
    match before(job, format!("{folder}/{WHAT}"), &what)? {
        Some(before) if before != what => Err(BulkError::Archive(format!(
            "the share {share} writes to {before}, and this would write to {what}: another target, or other items, take a share \
             of another name"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a target that has begun anew, empty, since the share began: what is done is not there any more.
fn check_lives(job: &Job<'_>, folder: &str) -> Result<(), BulkError> {
    let name = format!("{folder}/{LIVES}");
    let now = KnownLives::of(job.servers);
    let wrong = |error: serde_json::Error| SegmentError::Archive { name: name.clone(), source: error.into() };
    let text = serde_json::to_string(&now).map_err(wrong)?;
    let Some(before) = before(job, name.clone(), &text)? else { return Ok(()) };
    let before: KnownLives = serde_json::from_str(&before).map_err(wrong)?;
    // Another node in the place of one has nothing of it, either.
    match job.servers.iter().find(|server| before.lack(server)) {
        Some(server) => Err(BulkError::BegunAnew { server: server.name() }),
        None => Ok(()),
    }
}

/// What a file among the claims said before; `None`: it did not exist, and says this now.
fn before(job: &Job<'_>, name: String, text: &str) -> Result<Option<String>, BulkError> {
    let create = || match job.archive.create(&name, text.as_bytes())? {
        Created::Now => Ok(None),
        Created::Before => read(&**job.archive, &name, WHAT_MAX),
    };
    create().map_err(|source| SegmentError::Archive { name: name.clone(), source }.into())
}

/// This machine's name, for people.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", name.trim(), std::process::id())
}

/// A segment that is at its target.
#[derive(Debug)]
struct Segment {
    claim: Claim,
    written: Written,
}

struct Sharing<'a> {
    job: &'a Job<'a>,
    folder: String,
    claims: Claims,
    /// `None` while a passage has it, and after one that failed.
    sink: Option<Nodes>,
    /// Segments that are at their target, until they are on its devices, too.
    durable: Durable<Segment>,
    /// What a node may have lost.
    again: Vec<Claim>,
    counters: Counters,
    /// The base is one by a list of keys; `None`: it has no segment yet.
    listed: Option<bool>,
    /// How many were done here.
    segments: u64,
}

impl Sharing<'_> {
    fn failed(&self, source: std::io::Error) -> BulkError {
        SegmentError::Archive { name: self.folder.clone(), source }.into()
    }

    /// Segments of the base until all are done; `None`: its user ended it.
    fn base(&mut self) -> Result<Option<Done>, BulkError> {
        let mut base = Chain::open(Arc::clone(self.job.archive), BASE)?;
        let mut missing = 0;
        loop {
            if self.job.watch.should_stop() {
                return Ok(None);
            }
            match self.look_at(&base) {
                // A mount may show the record before what it names.
                Err(error) if missing < FAILURES && is_missing(&error) => {
                    missing += 1;
                    sleep(LOOK_EVERY);
                    continue;
                }
                looked => looked?,
            }
            let tasks: Vec<String> = base.segments().iter().map(|segment| segment.segment.clone()).collect();
            let taken = match self.again.pop() {
                Some(claim) => Taken::Claim(claim),
                None => self.claims.take(&tasks).map_err(|error| self.failed(error))?,
            };
            match taken {
                Taken::Claim(claim) => {
                    if !self.segment(&base, claim)? {
                        return Ok(None);
                    }
                    let word = self.durable.look();
                    self.hear(word)?;
                }
                Taken::AllDone | Taken::Nothing if self.durable.waits() => {
                    let watch = self.job.watch;
                    match self.durable.finish(|| watch.should_stop()) {
                        Some(word) => self.hear(word)?,
                        None if watch.should_stop() => return Ok(None),
                        None => return Err(BulkError::NotDurable),
                    }
                }
                Taken::AllDone if base.done().is_some() => break,
                Taken::AllDone | Taken::Nothing => {
                    sleep(LOOK_EVERY);
                    refresh(&mut base)?;
                }
            }
        }
        self.check_whole(&base)?;
        self.job.check_lives()?;
        Ok(base.done().cloned())
    }

    /// Once there is a segment: refuses nodes that cannot hold what it is of.
    fn look_at(&mut self, base: &Chain) -> Result<(), BulkError> {
        let (None, Some(first)) = (self.listed, base.segments().first()) else { return Ok(()) };
        let listed = base.read(first, self.job.block_max())?.header().listed
            || base.done().is_some_and(|done| base.end() != done.to);
        check(self.job.servers, self.job.config.follow, listed)?;
        self.listed = Some(listed);
        Ok(())
    }

    /// All of a segment, which is then at its target; false: its user ended it.
    fn segment(&mut self, base: &Chain, claim: Claim) -> Result<bool, BulkError> {
        let Some(segment) = base.segments().iter().find(|segment| segment.segment == claim.task) else {
            return Ok(true);
        };
        let Some(sink) = self.sink.take() else { return Ok(false) };
        let before = sink.target.written();
        let moment = self.job.moment(self.listed.unwrap_or(false));
        let (sink, ended) = self.job.pass(base.only(segment), false, Begin::Since(0), moment, &self.counters, sink);
        let written = sink.target.written().since(before);
        self.sink = Some(sink);
        if ended? != Ended::Over {
            return Ok(false);
        }
        self.job.check_lives()?;
        self.durable.note(Segment { claim, written });
        Ok(true)
    }

    /// Segments are done that are durable; what a node may have lost is done again.
    fn hear(&mut self, word: Word<Segment>) -> Result<(), BulkError> {
        match word {
            Word::Durable(segments) => {
                for Segment { claim, written } in segments {
                    let said = Said { holder: self.claims.holder(), written };
                    let said = serde_json::to_vec(&said).map_err(|error| self.failed(error.into()))?;
                    self.claims.done(claim, &said).map_err(|error| self.failed(error))?;
                    self.segments += 1;
                }
                self.claims.tell(format!("{} segments", self.segments));
            }
            Word::Lost(node, segments) => {
                self.job.check_lives()?;
                let count = segments.len();
                self.job.watch.note(&format!("{node} was started anew: {count} segments are written again"));
                self.again.extend(segments.into_iter().map(|segment| segment.claim));
            }
        }
        Ok(())
    }

    /// Refuses a base that was begun anew after some of it was written: what was deleted between, nothing tells.
    fn check_whole(&mut self, base: &Chain) -> Result<(), BulkError> {
        let there: BTreeSet<&str> = base.segments().iter().map(|segment| &*segment.segment).collect();
        let done = self.claims.all_done().map_err(|error| self.failed(error))?;
        let lost = done.iter().filter(|(task, _)| task != ALL_CHANGES && !there.contains(&**task)).count();
        match lost {
            0 => Ok(()),
            lost => Err(BulkError::Archive(format!(
                "the base was begun anew after {lost} of its segments were written to the target: what was deleted meanwhile may live \
                 there. Flush the target, and populate it under another name"
            ))),
        }
    }

    /// The changes, if no other has them, until its user ends it.
    fn changes(&mut self, done: &Done, counters: &Counters) -> Result<(), BulkError> {
        if done.to.is_empty() {
            return Err(BulkError::Archive("the base is of a server without a feed: no changes follow".to_owned()));
        }
        let tasks = [ALL_CHANGES.to_owned()];
        let mut told = false;
        while !self.job.watch.should_stop() {
            match self.claims.take(&tasks).map_err(|error| self.failed(error))? {
                Taken::Claim(_) => return self.follow(done, counters),
                Taken::AllDone => return Ok(()),
                Taken::Nothing => {
                    if !std::mem::replace(&mut told, true) {
                        self.job.watch.note("another applies the changes: waiting, in case it ends");
                    }
                    sleep(LOOK_EVERY);
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, done: &Done, counters: &Counters) -> Result<(), BulkError> {
        let mut changes = Chain::open(Arc::clone(self.job.archive), CHANGES)?;
        changes.start_at(&done.to)?;
        let place = format!("{}/{PLACE}", self.folder);
        let from = match read(&**self.job.archive, &place, PLACE_MAX).map_err(|error| self.failed(error))? {
            Some(cursor) => {
                let wrong = |wrong| BulkError::Archive(format!("{place} says {cursor}: {wrong}"));
                Begin::Cursor(cursor.parse().map_err(wrong)?)
            }
            None => Begin::Since(0),
        };
        let Some(mut sink) = self.sink.take() else { return Ok(()) };
        sink.ends_at_once = false;
        let (archive, mut kept, mut before) = (Arc::clone(self.job.archive), Instant::now(), String::new());
        sink.keep = Some(Box::new(move |mark: &Kept| {
            if kept.elapsed() < KEEP_EVERY || mark.cursor == before {
                return Ok(());
            }
            kept = Instant::now();
            before.clone_from(&mark.cursor);
            let write = || {
                let mut file = archive.begin(&place)?;
                file.write_all(mark.cursor.as_bytes())?;
                file.finish()
            };
            let failed = |source| SegmentError::Archive { name: place.clone(), source };
            Ok(write().map_err(failed)?)
        }));
        self.job.watch.phase("changes", None);
        let moment = self.job.moment(false);
        let (sink, ended) = self.job.pass(changes, true, from, moment, counters, sink);
        self.sink = Some(sink);
        ended?;
        self.job.check_lives()
    }
}

fn is_missing(error: &BulkError) -> bool {
    matches!(error, BulkError::Segments(SegmentError::Archive { source, .. }) if source.kind() == ErrorKind::NotFound)
}

/// Looks for segments that came since; a base that was begun anew has others.
fn refresh(base: &mut Chain) -> Result<(), BulkError> {
    if base.done().is_none() && base.refresh().is_err() {
        *base = base.reopened()?;
    }
    Ok(())
}

fn read(archive: &dyn Archive, place: &str, most: u64) -> std::io::Result<Option<String>> {
    let mut text = String::new();
    match archive.open(place).and_then(|file| file.take(most).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
