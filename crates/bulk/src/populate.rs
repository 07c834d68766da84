//! From files into a node, or into the nodes of a copy: a base, and the changes after it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use moneta_feed::{Begin, Change, CursorFile, Kept, Mark, Sink, SinkError};
use moneta_segments::{Archive, Chain, ChainSource, Counts as Segments, Done};
use serde::Serialize;

use crate::dump::{BASE, CHANGES};
use crate::error::BulkError;
use crate::metered::{Metered, Moment};
use crate::passage::{Checkpoint, Ended, Gaps, Passage};
use crate::server::Server;
use crate::target::{Place, TargetSink, Written};
use crate::watch::{Counters, Counts, Watch};
use crate::which::Which;

/// How often a base that is not done is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long another process that is about to end may keep the cursor file.
const ENDING: Duration = Duration::from_secs(5);
/// Failures in a row after which an archive is given up that is not followed.
const FAILURES: u32 = 30;
/// Bytes of a block beside its values.
const BLOCK_REST: usize = 2 << 20;
/// How much earlier than a list's items were asked for they count, in milliseconds: clocks may differ.
pub(crate) const CLOCKS: u64 = 500;
/// The same of a feed's items: these were on their way when they were written down.
pub(crate) const ON_THE_WAY: u64 = 5000;

/// What is populated, and how.
#[derive(Clone, Debug)]
pub struct PopulateConfig {
    /// Where items go.
    pub place: Place,
    /// Which items.
    pub which: Which,
    /// After the base its changes, until it is stopped.
    pub follow: bool,
    /// Items are of when they were read: a node that may have forgotten a delete since then does not create them.
    pub strict: bool,
    /// Bytes a second; 0: as fast as it goes.
    pub rate: u64,
    /// The largest value of the archive, in bytes.
    pub value_max: usize,
    /// Keeps how far it is.
    pub cursor_file: Option<PathBuf>,
}

/// What was populated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Populated {
    /// All of the base was read.
    pub done: bool,
    /// What this run read of the base.
    pub base: Counts,
    /// What this run read of changes.
    pub changes: Counts,
    /// What became of both.
    pub written: Written,
}

/// Writes an archive into a place, to its end, or with changes until it is stopped.
///
/// # Errors
/// If the place does not answer or take it, or the archive cannot be read, is damaged, or has a hole.
pub fn populate(
    config: &PopulateConfig,
    archive: &Arc<dyn Archive>,
    watch: &dyn Watch,
) -> Result<Populated, BulkError> {
    let servers = config.place.nodes.iter().map(Server::look).collect::<Result<Vec<_>, _>>()?;
    let mut base = Chain::open(Arc::clone(archive), BASE)?;
    let Some(done) = wait_until_done(&mut base, config.follow, watch)? else { return Ok(Populated::default()) };
    let is_listed = base.segments().last().is_some_and(|last| last.footer.to != done.to);
    check(&servers, config.follow, is_listed)?;
    let mut changes = Chain::open(Arc::clone(archive), CHANGES)?;
    changes.start_at(&done.to)?;
    if config.follow && done.to.is_empty() {
        return Err(BulkError::Archive("the base is of a server without a feed: no changes follow".to_owned()));
    }
    let file = config.cursor_file.clone().map(|path| CursorFile::open(path, ENDING)).transpose()?;
    let start = start(file.as_ref().map(CursorFile::read).transpose()?.flatten(), &base, &changes)?;
    if !config.follow && !config.strict && matches!(start, Start::Base(_)) {
        warn(&done, &changes, watch);
    }
    let mut sink = Populating { target: TargetSink::new(&config.place, &servers)?, file };
    let mut populated = Populated::default();
    let (which, nothing) = (&config.which, AtomicBool::new(false));
    let block_max = config.value_max.saturating_add(BLOCK_REST);
    let source = |chain: Chain, follows| {
        let source = ChainSource::new(chain, follows, block_max);
        if config.strict { source } else { source.as_recorded() }
    };
    let pass = |chain, follows: bool, from, moment, counters: &Counters, sink| {
        let passage = Passage {
            watch,
            counters,
            from: "the archive",
            gaps: Gaps::Pass,
            failures: (!follows).then_some(FAILURES),
            ends: &nothing,
            rate: config.rate,
        };
        let source = Metered::new(source(chain, follows), which.clone(), moment, counters.clone());
        passage.run(source, sink, from, follows)
    };
    let from = match start {
        Start::Base(from) => {
            watch.phase("base", Some(left(&base, from)));
            let moment = match (config.strict, is_listed) {
                (true, true) => Moment::Before(CLOCKS),
                (true, false) => Moment::Before(ON_THE_WAY),
                (false, true) => Moment::Current,
                (false, false) => Moment::Told,
            };
            let counters = Counters::default();
            let (returned, ended) = pass(base, false, from, moment, &counters, sink);
            sink = returned;
            populated.base = counters.counts();
            populated.written = sink.target.written();
            if ended? != Ended::Over {
                return Ok(populated);
            }
            Begin::Since(0)
        }
        Start::Changes(from) => from,
    };
    populated.done = true;
    if config.follow {
        watch.phase("changes", None);
        let moment = if config.strict { Moment::Before(ON_THE_WAY) } else { Moment::Told };
        let counters = Counters::default();
        let (returned, ended) = pass(changes, true, from, moment, &counters, sink);
        populated.changes = counters.counts();
        populated.written = returned.target.written();
        ended?;
    }
    Ok(populated)
}

/// Waits for the end of a base that is being written; `None`: its user does not.
fn wait_until_done(base: &mut Chain, waits: bool, watch: &dyn Watch) -> Result<Option<Done>, BulkError> {
    let mut told = false;
    loop {
        if let Some(done) = base.done() {
            return Ok(Some(done.clone()));
        }
        if !waits {
            return Err(BulkError::Archive("there is no base that is done: end its dump first".to_owned()));
        }
        if !std::mem::replace(&mut told, true) {
            watch.note("the base is not done: waiting for it");
        }
        if watch.should_stop() {
            return Ok(None);
        }
        sleep(LOOK_EVERY);
        // One that is begun anew has other segments.
        *base = base.reopened()?;
    }
}

/// Refuses nodes that cannot hold what is there.
fn check(servers: &[Server], follow: bool, is_listed: bool) -> Result<(), BulkError> {
    let Some(server) = servers.iter().find(|server| !server.has_versions) else { return Ok(()) };
    let unfit = |reason: &str| Err(BulkError::Unfit { server: server.name(), reason: reason.to_owned() });
    if follow {
        return unfit("knows no versions, and so not which of its items a change is newer than: leave --follow away");
    }
    if !is_listed {
        return unfit(
            "knows no versions, and this base was read from a feed, which tells some keys more than once: dump with --walk",
        );
    }
    Ok(())
}

/// Says what may happen to what was deleted since the base.
fn warn(done: &Done, changes: &Chain, watch: &dyn Watch) {
    let more = match (changes.segments().is_empty(), done.to.is_empty()) {
        (false, _) => "there are changes: --follow applies them",
        (true, false) => "follow its changes with `moneta dump --follow`, and apply them by --follow",
        (true, true) => "its server tells no changes",
    };
    watch.note(&format!(
        "what was deleted or changed at the source after the base was read will live as it was then; {more}; or --strict, to create \
         only what cannot have been deleted"
    ));
}

/// Where to begin.
enum Start {
    Base(Begin),
    Changes(Begin),
}

fn start(kept: Option<Kept>, base: &Chain, changes: &Chain) -> Result<Start, BulkError> {
    let Some(Kept { cursor, .. }) = kept else { return Ok(Start::Base(Begin::Since(0))) };
    let has = |chain: &Chain| chain.segments().iter().any(|segment| segment.footer.to == cursor);
    let place = || match cursor.parse() {
        Ok(place) => Ok(Begin::Cursor(place)),
        Err(wrong) => Err(BulkError::Archive(format!("the cursor file says {cursor}: {wrong}"))),
    };
    if has(base) {
        return Ok(Start::Base(place()?));
    }
    if has(changes) {
        return Ok(Start::Changes(place()?));
    }
    Err(BulkError::Archive(format!(
        "the cursor file says {cursor}, and no segment here ends there: it is of another archive"
    )))
}

/// How many items are left of a base.
fn left(base: &Chain, from: Begin) -> u64 {
    let done = match from {
        Begin::Cursor(place) => {
            let place = place.to_string();
            base.segments().iter().position(|segment| segment.footer.to == place).map_or(0, |at| at + 1)
        }
        _ => 0,
    };
    base.segments()[done..].iter().fold(Segments::default(), |sum, segment| sum.and(segment.footer.counts)).sets
}

/// Nodes as the end of a run.
struct Populating {
    target: TargetSink,
    file: Option<CursorFile>,
}

impl Sink for Populating {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.target.take(changes)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.target.settle()
    }

    fn take_lacks(&mut self) -> bool {
        self.target.take_lacks()
    }
}

impl Checkpoint for Populating {
    fn reached(&mut self, mark: &Mark) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let kept = Kept { cursor: mark.cursor.clone(), watermark: mark.watermark };
        file.keep(kept).map_err(|error| error.to_string())
    }
}
