//! From files into a node, or into the nodes of a copy: a base, and the changes after it.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use moneta_feed::{Begin, CursorFile, Kept};
use moneta_segments::{Archive, Chain, Counts as Segments, Done, SegmentError};
use serde_json::json;

use crate::cachemover::{self, CachemoverSource};
use crate::dump::{BASE, CHANGES};
use crate::error::BulkError;
use crate::lives::KnownLives;
use crate::metered::Moment;
use crate::nodes::{Keep, Nodes};
use crate::passage::Ended;
use crate::populating::{Job, PopulateConfig, Populated, check};
use crate::server::Server;
use crate::share;
use crate::stages::{Phases, Timed};
use crate::watch::{Counters, Watch};

/// How often a base that is not done is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long another process that is about to end may keep the cursor file.
const ENDING: Duration = Duration::from_secs(5);

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
    let archive = &Timed::archive(archive);
    let throttle = config.rate.throttle();
    let throttles = [throttle.clone()];
    let job = Job { config, archive, watch, servers: &servers, throttle };
    let failed = |source| SegmentError::Archive { name: BASE.to_owned(), source };
    let files = match archive.list(BASE).map_err(failed)?.is_empty() {
        true => cachemover::files(&**archive).map_err(failed)?,
        false => Vec::new(),
    };
    let nodes = config.place.nodes.iter().cloned();
    let (ended, p99) = config.rate.governed(nodes, &throttles, watch, || match &config.share {
        _ if !files.is_empty() => of_cachemover(&job, files),
        Some(share) => share::populate(&job, share),
        None => alone(&job),
    })?;
    Ok(Populated { p99, ..ended? })
}

/// The files of a Cachemover.
fn of_cachemover(job: &Job<'_>, files: Vec<String>) -> Result<Populated, BulkError> {
    let config = job.config;
    if config.follow || config.strict || config.cursor_file.is_some() || config.share.is_some() {
        let reason = "these are files of Cachemover, which tell neither changes nor when they were read: only all of them can be \
                      written, by one process";
        return Err(BulkError::Archive(reason.to_owned()));
    }
    job.watch.phase(&format!("{} files of Cachemover", files.len()), None);
    let counters = Counters::default();
    let archive = Arc::clone(job.archive);
    let source = CachemoverSource::new(archive, files, config.value_max, config.any_sum, counters.clone())?;
    let sink = Nodes::new(&config.place, job.servers)?;
    let (sink, ended) = job.pass_on(source, false, Begin::Since(0), Moment::Current, &counters, sink);
    let (base, written) = (counters.counts(), sink.target.written());
    let done = ended? == Ended::Over;
    job.check_lives()?;
    let stages = Phases { base: counters.stages().rates(), ..Phases::default() };
    Ok(Populated { done, base, written, stages, ..Populated::default() })
}

/// All of it by this process.
fn alone(job: &Job<'_>) -> Result<Populated, BulkError> {
    let (config, watch, servers) = (job.config, job.watch, job.servers);
    let mut base = Chain::open(Arc::clone(job.archive), BASE)?;
    let Some(done) = wait_until_done(&mut base, config.follow, watch)? else { return Ok(Populated::default()) };
    let is_listed = base.segments().last().is_some_and(|last| last.footer.to != done.to);
    check(servers, config.follow, is_listed)?;
    let mut changes = Chain::open(Arc::clone(job.archive), CHANGES)?;
    changes.start_at(&done.to)?;
    if config.follow && done.to.is_empty() {
        return Err(BulkError::Archive("the base is of a server without a feed: no changes follow".to_owned()));
    }
    let file = config.cursor_file.clone().map(|path| CursorFile::open(path, ENDING)).transpose()?;
    let file = file.map(|file| file.of(config.what()).noting(word_of_lives(servers)));
    let kept = file.as_ref().map(|file| kept(file, servers, watch)).transpose()?.flatten();
    let start = start(kept, &base, &changes)?;
    if !config.follow && !config.strict && matches!(start, Start::Base(_)) {
        warn(&done, &changes, watch);
    }
    let keep = file.map(|mut file| Box::new(move |kept: &Kept| Ok(file.keep(kept.clone())?)) as Keep);
    let mut sink = Nodes::new(&config.place, servers)?;
    sink.keep = keep;
    let mut populated = Populated::default();
    let from = match start {
        Start::Base(from) => {
            watch.phase("base", Some(left(&base, from)));
            let counters = Counters::default();
            let (returned, ended) = job.pass(base, false, from, job.moment(is_listed), &counters, sink);
            sink = returned;
            populated.base = counters.counts();
            populated.stages.base = counters.stages().rates();
            populated.written = sink.target.written();
            if ended? != Ended::Over {
                return Ok(populated);
            }
            job.check_lives()?;
            Begin::Since(0)
        }
        Start::Changes(from) => from,
    };
    populated.done = true;
    if config.follow {
        watch.phase("changes", None);
        let counters = Counters::default();
        let (returned, ended) = job.pass(changes, true, from, job.moment(false), &counters, sink);
        populated.changes = counters.counts();
        populated.stages.changes = counters.stages().rates();
        populated.written = returned.target.written();
        ended?;
        job.check_lives()?;
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

/// The lives of the target's nodes, as a word of the cursor file.
fn word_of_lives(servers: &[Server]) -> String {
    let mut word = String::new();
    for letter in json!(KnownLives::of(servers)).to_string().chars() {
        match letter.is_whitespace() {
            true => word += &format!("\\u{:04x}", u32::from(letter)),
            false => word.push(letter),
        }
    }
    word
}

/// What a cursor file says, if the target still has what was written to it.
fn kept(file: &CursorFile, servers: &[Server], watch: &dyn Watch) -> Result<Option<Kept>, BulkError> {
    let (kept, noted) = (file.read()?, file.noted()?);
    // Earlier builds noted nothing.
    let (Some(kept), Some(noted)) = (&kept, noted) else { return Ok(kept) };
    let wrong = |error| BulkError::Archive(format!("the cursor file names no lives of the target's nodes: {error}"));
    let known: KnownLives = serde_json::from_str(&noted).map_err(wrong)?;
    let Some(anew) = servers.iter().find(|server| known.lack(server)) else { return Ok(Some(kept.clone())) };
    watch.note(&format!(
        "{} has begun anew, empty, since it was written: all is written again, from the begin",
        anew.name()
    ));
    Ok(None)
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
