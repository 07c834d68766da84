//! From a server into files: a base, and the changes after it.
//!
//! ```text
//!  DIR/base      all that the server held; DONE says from which cursor of its feed its changes follow
//!  DIR/changes   the feed from that cursor on, a segment a second at most
//! ```
//!
//! A base by the feed goes on after a kill where it was. One by a list of keys cannot, and is begun anew. Its changes are followed
//! from before it is begun, beside it: a node in RAM does not remember them for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Change, FeedPlace, Mark, NodeSource, Request, Sink, SinkError, Wanted};
use moneta_net::Endpoint;
use moneta_segments::{Archive, Chain, ChainSink, Form, SegmentError};
use serde::Serialize;

use crate::beside::Beside;
use crate::error::BulkError;
use crate::governor::RateConfig;
use crate::law::Room;
use crate::metered::{Metered, Moment};
use crate::moment::millis;
use crate::passage::{Checkpoint, Ended, Gaps, Passage};
use crate::server::Server;
use crate::stages::{Phases, Timed};
use crate::throttle::Throttle;
use crate::walk::WalkSource;
use crate::watch::{Counters, Counts, Watch};
use crate::which::Which;

/// The chain of what a server held.
pub const BASE: &str = "base";
/// The chain of what changed since.
pub const CHANGES: &str = "changes";

/// How often changes are committed.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How often it is written down how far a feed is of which nothing is wanted, unless said otherwise.
pub const ADVANCE_EVERY: Duration = Duration::from_secs(60);
/// Failures in a row after which a base is given up.
const FAILURES: u32 = 30;
/// The name under which nodes list the reader of their changes.
const READER: &str = "moneta-dump";
/// Bytes of a block beside its values, when it is read.
const BLOCK_REST: usize = 2 << 20;

/// What is dumped, and how.
#[derive(Clone, Debug)]
pub struct DumpConfig {
    /// The server.
    pub node: Endpoint,
    /// What segments say that they are of; `None`: the server's address. A name that stays lets a dump go on where the server comes
    /// back at another address.
    pub name: Option<String>,
    /// Which items.
    pub which: Which,
    /// Go on with changes.
    pub follow: bool,
    /// Failures in a row, a second apart each, after which changes are given up; `None`: never.
    pub failures: Option<u32>,
    /// By the list of keys, also where the feed would do.
    pub walk: bool,
    /// How fast it may go, all its sources together.
    pub rate: RateConfig,
    /// Largest value that is taken, in bytes.
    pub value_max: usize,
    /// Bytes after which a segment ends.
    pub segment_bytes: u64,
    /// Segments are compressed.
    pub compresses: bool,
    /// How often it is written down how far changes are of which nothing is wanted.
    pub advance_every: Duration,
    /// That, also where nothing changed at all: for a reader of the files who waits for a moment of the source.
    pub tells_quiet: bool,
}

/// What was dumped.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Dumped {
    /// How the base was read by this run: `feed`, `list`; `before`: it was there.
    pub by: &'static str,
    /// All of the base is there.
    pub done: bool,
    /// What this run read of the base.
    pub base: Counts,
    /// What this run read of changes.
    pub changes: Counts,
    /// How fast that was, by stage.
    pub stages: Phases,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

/// Dumps a server until all is there, or with changes until it is stopped. Only one process may dump into an archive.
///
/// # Errors
/// If the server does not answer, the archive does not take it or has a dump of something else, or changes are missing.
pub fn dump(config: &DumpConfig, archive: &Arc<dyn Archive>, watch: &dyn Watch) -> Result<Dumped, BulkError> {
    let (server, archive) = (Server::look(&config.node)?, &Timed::archive(archive));
    let name = format!("{}{}", config.name.clone().unwrap_or_else(|| server.name()), config.which);
    // The changes beside a base have a bound to themselves, or they would wait for it, and the log would not.
    let throttles = [config.rate.throttle(), config.rate.throttle()];
    let job = Job { config, archive, watch, server: &server, name, throttles: throttles.clone() };
    let (ended, p99) = config.rate.governed([config.node.clone()], &throttles, watch, || job.run())?;
    Ok(Dumped { p99, ..ended? })
}

struct Job<'a> {
    config: &'a DumpConfig,
    archive: &'a Arc<dyn Archive>,
    watch: &'a dyn Watch,
    server: &'a Server,
    /// As segments name the source: which items they hold is a part of it.
    name: String,
    /// Of the base, and of changes.
    throttles: [Throttle; 2],
}

impl Job<'_> {
    fn run(&self) -> Result<Dumped, BulkError> {
        let base = self.chain(BASE)?;
        if self.config.follow {
            self.server.cursor()?;
        }
        let mut dumped = Dumped { by: "before", done: true, ..Dumped::default() };
        match base.done().map(|done| done.to.clone()) {
            Some(to) if self.config.follow => {
                self.watch.phase("changes", None);
                self.follow_alone(&to, &mut dumped)?;
            }
            Some(_) => self.watch.note("the base is there: nothing to do"),
            None => self.base(base, &mut dumped)?,
        }
        Ok(dumped)
    }

    /// A chain of this server, or none yet.
    fn chain(&self, name: &str) -> Result<Chain, BulkError> {
        let chain = Chain::open(Arc::clone(self.archive), name)?;
        if let Some(first) = chain.segments().first() {
            let header = chain.read(first, self.config.value_max.saturating_add(BLOCK_REST))?.header().clone();
            if header.source != self.name {
                let (there, own) = (header.source, &self.name);
                return Err(BulkError::Archive(format!("{name} is a dump of {there}, and this would be one of {own}")));
            }
        }
        chain.sweep()?;
        Ok(chain)
    }

    /// A chain anew: what there is of it is of no use.
    fn anew(&self, chain: Chain) -> Result<Chain, BulkError> {
        let name = chain.name().to_owned();
        if !chain.segments().is_empty() {
            self.watch.note(&format!("{name} is not whole and cannot be gone on with: it is begun anew"));
        }
        chain.remove()?;
        self.chain(&name)
    }

    fn end(&self, chain: Chain, listed: bool, commit_every: Option<Duration>) -> ChainEnd {
        let form = Form {
            source: self.name.clone(),
            segment_bytes: self.config.segment_bytes,
            compresses: self.config.compresses,
            listed,
        };
        let sink = ChainSink::new(chain, form, Box::new(millis));
        ChainEnd {
            sink,
            commit_every,
            advance_every: self.config.advance_every,
            tells_quiet: self.config.tells_quiet,
            committed: Instant::now(),
            last: None,
        }
    }

    fn passage<'p>(&'p self, counters: &'p Counters, gaps: Gaps, ends: &'p AtomicBool) -> Passage<'p> {
        let failures = if gaps == Gaps::End { self.config.failures } else { Some(FAILURES) };
        Passage { watch: self.watch, counters, from: &self.name, gaps, failures, ends, is_list: false }
    }

    fn feed(&self, follow: bool, counters: &Counters) -> Metered<NodeSource> {
        let which = &self.config.which;
        let request = feed_request(which, follow, READER);
        let source = NodeSource::new(self.config.node.clone(), request, self.config.value_max);
        let throttle = &self.throttles[usize::from(follow)];
        let source = Metered::new(source, which.clone(), Moment::Told, counters.clone()).throttled(throttle);
        if follow { source.keeping_up() } else { source }
    }

    fn base(&self, base: Chain, dumped: &mut Dumped) -> Result<(), BulkError> {
        let by_feed = self.server.has_log && !self.config.walk;
        let incarnation = self.server.cursor().map(|place| place.incarnation).ok();
        let end: Option<FeedPlace> = base.end().parse().ok();
        let goes_on = by_feed && end.is_some_and(|end| Some(end.incarnation) == incarnation);
        let changes = self.chain(CHANGES)?;
        if !changes.segments().is_empty() {
            self.anew(changes)?;
        }
        let base = if goes_on { base } else { self.anew(base)? };
        let (counters, nothing) = (Counters::default(), AtomicBool::new(false));
        if by_feed {
            dumped.by = "feed";
            self.watch.phase("base, by the feed", self.server.items);
            let from = end.filter(|_| goes_on).map_or(Begin::Since(0), Begin::Cursor);
            let passage = self.passage(&counters, Gaps::EndUnlessBefore, &nothing);
            let (sink, ended) = passage.run(self.feed(false, &counters), self.end(base, false, None), from, false);
            dumped.base = counters.counts();
            dumped.stages.base = counters.stages().rates();
            match ended? {
                Ended::Over => {
                    let to = sink.finish(None, 0)?;
                    if self.config.follow {
                        self.watch.phase("changes", None);
                        self.follow_alone(&to, dumped)?;
                    }
                    return Ok(());
                }
                Ended::Stopped => {
                    dumped.done = false;
                    return Ok(());
                }
                Ended::Gap(gap) => {
                    let why = gap.cause.map_or("", |cause| cause.word());
                    self.watch.note(&format!("its feed does not reach back to its begin ({why}): its keys are listed"));
                }
            }
        }
        self.walk(dumped)
    }

    /// The base by a list of keys, and beside it the changes from before it.
    fn walk(&self, dumped: &mut Dumped) -> Result<(), BulkError> {
        let base = self.anew(self.chain(BASE)?)?;
        let counters = Counters::default();
        dumped.by = "list";
        let (to, watermark) = match &self.server.feed {
            Ok(mark) => (mark.cursor.clone(), mark.watermark),
            Err(_) => (String::new(), 0),
        };
        let (changed, has_failed) = (Counters::default(), AtomicBool::new(false));
        let beside = Beside::of(self.watch);
        let following = Job { watch: &beside, name: self.name.clone(), throttles: self.throttles.clone(), ..*self };
        let ended = thread::scope(|scope| {
            let follower = self.config.follow.then(|| {
                scope.spawn(|| {
                    let followed = following.follow(&to, &changed, &has_failed);
                    // Without its changes the base is of no use to who asked for both.
                    has_failed.store(true, Ordering::Relaxed);
                    followed
                })
            });
            self.watch.phase("base, by the list of keys", self.server.items);
            let source = WalkSource::new(
                self.config.node.clone(),
                self.config.which.clone(),
                self.config.value_max,
                counters.clone(),
            );
            let source = Metered::new(source, Which::default(), Moment::Told, counters.clone());
            let source = source.throttled(&self.throttles[0]);
            let passage = self.passage(&counters, Gaps::Pass, &has_failed);
            let (sink, ended) = passage.run(source, self.end(base, true, None), Begin::Since(0), false);
            let ended = ended.and_then(|ended| match ended {
                Ended::Over => sink.finish(Some(&to), watermark).map(|_| true).map_err(BulkError::from),
                _ => Ok(false),
            });
            match (&ended, self.config.follow) {
                (Ok(true), true) => {
                    self.watch.phase("changes", None);
                    beside.is_alone();
                }
                // Ended by this, or already.
                _ => has_failed.store(true, Ordering::Relaxed),
            }
            let followed = follower.map(|follower| follower.join());
            match followed {
                Some(Ok(Err(error))) => Err(error),
                Some(Err(_)) => Err(BulkError::Archive("the thread that followed changes has panicked".to_owned())),
                _ => ended,
            }
        });
        dumped.base = Counts { replaced: 0, ..counters.counts() };
        dumped.changes = changed.counts();
        dumped.stages.base = counters.stages().rates();
        dumped.stages.changes = changed.stages().rates();
        dumped.done = ended?;
        Ok(())
    }

    /// Changes after a base that is done.
    fn follow_alone(&self, from: &str, dumped: &mut Dumped) -> Result<(), BulkError> {
        let counters = Counters::default();
        dumped.changes = self.follow(from, &counters, &AtomicBool::new(false))?;
        dumped.stages.changes = counters.stages().rates();
        Ok(())
    }

    /// Changes from a cursor on, until it is stopped.
    fn follow(&self, from: &str, counters: &Counters, ends: &AtomicBool) -> Result<Counts, BulkError> {
        let mut chain = self.chain(CHANGES)?;
        chain.start_at(from)?;
        let place = chain.end().parse().map_err(|_| BulkError::Unfit {
            server: self.server.name(),
            reason: "told no feed when its base was read: there are no changes to follow".to_owned(),
        })?;
        let passage = self.passage(counters, Gaps::End, ends);
        let sink = self.end(chain, false, Some(COMMIT_EVERY));
        let (_, ended) = passage.run(self.feed(true, counters), sink, Begin::Cursor(place), true);
        match ended? {
            Ended::Gap(gap) => Err(BulkError::Gap { server: self.server.name(), gap }),
            Ended::Over | Ended::Stopped => Ok(counters.counts()),
        }
    }
}

/// What a node's feed is asked for.
pub(crate) fn feed_request(which: &Which, follow: bool, name: &str) -> Request {
    // A prefix that is no word of a line is looked for here.
    let is_word = which.prefix.iter().all(u8::is_ascii_graphic);
    let prefix = if is_word { which.prefix.clone() } else { Vec::new() };
    Request {
        wanted: Wanted { values: true, prefix, region: None, buckets: which.buckets, current: !follow },
        follow,
        name: follow.then(|| name.to_owned()),
        ..Request::default()
    }
}

/// A chain as the end of a run.
struct ChainEnd {
    sink: ChainSink,
    /// `None`: by size alone.
    commit_every: Option<Duration>,
    advance_every: Duration,
    tells_quiet: bool,
    committed: Instant,
    last: Option<Mark>,
}

impl ChainEnd {
    /// All is there. What came after it is followed from `to`, or where it ended; tells which. `watermark`: all that the source was
    /// told until then is in it, Unix milliseconds; 0: what its last mark says.
    fn finish(mut self, to: Option<&str>, watermark: u64) -> Result<String, SegmentError> {
        let mut to = to.map(str::to_owned);
        if let Some(mark) = self.last.take() {
            let watermark = if watermark == 0 { mark.watermark } else { watermark };
            self.sink.reached(&Mark { watermark, ..mark.clone() }, true)?;
            to = to.or(Some(mark.cursor));
        }
        let chain = self.sink.finish(to.as_deref())?;
        Ok(chain.done().map(|done| done.to.clone()).unwrap_or_default())
    }

    fn commit(&mut self, mark: &Mark) -> Result<(), SegmentError> {
        let passed = self.committed.elapsed();
        let before = self.sink.chain().segments().len();
        match self.commit_every {
            Some(_) if passed >= self.advance_every && self.tells_quiet => self.sink.tell(mark)?,
            Some(_) if passed >= self.advance_every => self.sink.advance(mark)?,
            every => self.sink.reached(mark, every.is_some_and(|every| passed >= every))?,
        }
        if self.sink.chain().segments().len() > before || passed >= self.advance_every {
            self.committed = Instant::now();
        }
        Ok(())
    }
}

impl Sink for ChainEnd {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.sink.take(changes)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.sink.settle()
    }

    fn take_lacks(&mut self) -> bool {
        false
    }
}

impl Checkpoint for ChainEnd {
    fn reached(&mut self, mark: &Mark) -> Result<Option<u64>, BulkError> {
        self.commit(mark)?;
        self.last = Some(mark.clone());
        Ok(Some(mark.watermark))
    }
}
