//! From servers to servers, without files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use moneta_feed::{Begin, FeedPlace, NodeSource};
use moneta_net::Endpoint;
use serde::Serialize;

use crate::beside::Beside;
use crate::dump::feed_request;
use crate::error::BulkError;
use crate::governor::RateConfig;
use crate::law::Room;
use crate::metered::{Metered, Moment};
use crate::nodes::Nodes;
use crate::passage::{Ended, Gaps, Passage};
use crate::populating::{CLOCKS, ON_THE_WAY};
use crate::server::Server;
use crate::stages::Phases;
use crate::target::{Place, Written};
use crate::throttle::Throttle;
use crate::walk::WalkSource;
use crate::watch::{Counters, Counts, Watch};
use crate::which::Which;

/// Failures in a row after which a source is given up.
const FAILURES: u32 = 30;
/// The name under which nodes list the reader of their changes.
const READER: &str = "moneta-copy";
/// Said of a source.
const COPIED: &str = "all that it held is copied; changes follow";

/// What is copied, and how.
#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// Whose items.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// Which.
    pub which: Which,
    /// After what is there what changes, until it is stopped.
    pub follow: bool,
    /// Failures in a row, a second apart each, after which changes are given up; `None`: never.
    pub failures: Option<u32>,
    /// Items are of when they were read: a node that may have forgotten a delete since then does not create them.
    pub strict: bool,
    /// By lists of keys, also where feeds would do.
    pub walk: bool,
    /// How fast it may go, all its sources together.
    pub rate: RateConfig,
    /// Largest value that is taken, in bytes.
    pub value_max: usize,
}

/// What was copied.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Copied {
    /// All that the sources held was read.
    pub done: bool,
    /// What was read of that.
    pub base: Counts,
    /// What was read of changes.
    pub changes: Counts,
    /// What became of both.
    pub written: Written,
    /// How fast that was, by stage.
    pub stages: Phases,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

/// Copies what all sources hold, or with changes until it is stopped. Each source is read once, on a thread of its own.
///
/// # Errors
/// If a server does not answer, a target does not take it, or changes are missing. The first of them ends all.
pub fn copy(config: &CopyConfig, watch: &dyn Watch) -> Result<Copied, BulkError> {
    let look = |nodes: &[Endpoint]| nodes.iter().map(Server::look).collect::<Result<Vec<_>, _>>();
    let (sources, targets) = (look(&config.from.nodes)?, look(&config.to.nodes)?);
    check(config, &sources, &targets)?;
    if !config.follow && !config.strict {
        watch.note(
            "what is deleted or changed at the source while it is read will live as it was then; --follow goes on with changes",
        );
    }
    let expected = sources.iter().map(|source| source.items).sum::<Option<u64>>();
    watch.phase(if config.follow { "copying, then changes" } else { "copying" }, expected);
    let job = Job {
        config,
        watch,
        targets: &targets,
        base: Counters::default(),
        changes: Counters::default(),
        ends: AtomicBool::new(false),
        throttle: config.rate.throttle(),
        throttle_of_changes: config.rate.throttle(),
    };
    let servers = config.from.nodes.iter().chain(&config.to.nodes).cloned();
    let throttles = [job.throttle.clone(), job.throttle_of_changes.clone()];
    let run = |source| {
        let ended = job.run(source);
        // A copy that lacks the part of one source is none.
        if ended.is_err() {
            job.ends.store(true, Ordering::Relaxed);
        }
        ended
    };
    let run_all = || -> Vec<_> {
        thread::scope(|scope| {
            let threads: Vec<_> = sources.iter().map(|source| scope.spawn(|| run(source))).collect();
            let panicked = || BulkError::Archive("a thread that copied has panicked".to_owned());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
        })
    };
    let (ended, p99) = config.rate.governed(servers, &throttles, watch, run_all)?;
    let mut copied = Copied {
        done: true,
        base: job.base.counts(),
        changes: job.changes.counts(),
        written: Written::default(),
        stages: Phases { base: job.base.stages().rates(), changes: job.changes.stages().rates() },
        p99,
    };
    for ended in ended {
        let (done, written) = ended?;
        copied.done &= done;
        copied.written = copied.written.and(written);
    }
    targets.iter().try_for_each(Server::check_life)?;
    Ok(copied)
}

/// Refuses to write a server to itself, and to follow to where changes cannot be applied.
fn check(config: &CopyConfig, sources: &[Server], targets: &[Server]) -> Result<(), BulkError> {
    for source in sources {
        if config.follow {
            source.cursor()?;
        }
        let number = source.cursor().map(|place| place.incarnation).ok();
        let is_same = |target: &&Server| {
            let own = target.cursor().map(|place| place.incarnation).ok();
            target.endpoint.address == source.endpoint.address || number.is_some() && own == number
        };
        if let Some(target) = targets.iter().find(is_same) {
            let reason = format!("is {}: it would be copied to itself", source.name());
            return Err(BulkError::Unfit { server: target.name(), reason });
        }
    }
    match targets.iter().find(|target| config.follow && !target.has_versions) {
        Some(target) => Err(BulkError::Unfit {
            server: target.name(),
            reason: "knows no versions, and so not which of its items a change is newer than: leave --follow away"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

struct Job<'a> {
    config: &'a CopyConfig,
    watch: &'a dyn Watch,
    targets: &'a [Server],
    base: Counters,
    changes: Counters,
    ends: AtomicBool,
    throttle: Throttle,
    /// Their own: beside a base they would wait for it, and their source would not.
    throttle_of_changes: Throttle,
}

impl Job<'_> {
    fn passage<'p>(&'p self, from: &'p str, counters: &'p Counters, gaps: Gaps) -> Passage<'p> {
        let failures = if gaps == Gaps::End { self.config.failures } else { Some(FAILURES) };
        Passage { watch: self.watch, counters, from, gaps, failures, ends: &self.ends, is_list: false }
    }

    fn feed(&self, source: &Server, follow: bool, counters: &Counters) -> Metered<NodeSource> {
        let which = &self.config.which;
        let request = feed_request(which, follow, READER);
        let moment = if self.config.strict { Moment::Before(ON_THE_WAY) } else { Moment::Told };
        let node = NodeSource::new(source.endpoint.clone(), request, self.config.value_max);
        let throttle = if follow { &self.throttle_of_changes } else { &self.throttle };
        let source = Metered::new(node, which.clone(), moment, counters.clone()).throttled(throttle);
        if follow { source.keeping_up() } else { source }
    }

    fn sink(&self) -> Result<Nodes, BulkError> {
        Nodes::new(&self.config.to, self.targets)
    }

    /// All of one source. True: all that it held was read.
    fn run(&self, source: &Server) -> Result<(bool, Written), BulkError> {
        let name = source.name();
        let mut sink = self.sink()?;
        let mut is_read = false;
        // Without versions a key that is told twice keeps what was told first.
        if source.has_log && !self.config.walk && self.targets.iter().all(|target| target.has_versions) {
            let passage = self.passage(&name, &self.base, Gaps::EndUnlessBefore);
            let (returned, ended) = passage.run(self.feed(source, false, &self.base), sink, Begin::Since(0), false);
            sink = returned;
            match ended? {
                Ended::Over => is_read = true,
                Ended::Stopped => return Ok((false, sink.target.written())),
                Ended::Gap(_) => {
                    self.watch.note(&format!("{name}: its feed does not reach back to its begin: its keys are listed"));
                }
            }
        }
        if !is_read {
            return self.list(source, sink);
        }
        let from = sink.end().and_then(|end| end.cursor.parse().ok());
        if self.config.follow {
            let place = from.map_or_else(|| source.cursor(), Ok)?;
            self.watch.note(&format!("{name}: {COPIED}"));
            sink = self.follow(source, place, sink, self.watch)?;
        }
        Ok((true, sink.target.written()))
    }

    /// All of one source by the list of its keys, and beside it what changes from before that on: a node in RAM does not remember that
    /// until the list is done.
    fn list(&self, source: &Server, sink: Nodes) -> Result<(bool, Written), BulkError> {
        let name = source.name();
        let (which, value_max) = (self.config.which.clone(), self.config.value_max);
        let walk = WalkSource::new(source.endpoint.clone(), which, value_max, self.base.clone());
        let moment = if self.config.strict { Moment::Before(CLOCKS) } else { Moment::Current };
        let walk = Metered::new(walk, Which::default(), moment, self.base.clone()).throttled(&self.throttle);
        let from = self.config.follow.then(|| source.cursor()).transpose()?;
        let beside = Beside::of(self.watch);
        thread::scope(|scope| {
            let follower = from.map(|place| {
                let (beside, ends) = (&beside, &self.ends);
                scope.spawn(move || {
                    let followed = self.sink().and_then(|sink| self.follow(source, place, sink, beside));
                    let followed = followed.map(|sink| sink.target.written());
                    // Without its changes the copy is of no use: then the list ends, too.
                    if followed.is_err() {
                        ends.store(true, Ordering::Relaxed);
                    }
                    followed
                })
            });
            let passage = Passage { is_list: true, ..self.passage(&name, &self.base, Gaps::Pass) };
            let (sink, ended) = passage.run(walk, sink, Begin::Since(0), false);
            match &ended {
                Ok(Ended::Over) if self.config.follow => {
                    self.watch.note(&format!("{name}: {COPIED}"));
                    beside.is_alone();
                }
                Err(_) => self.ends.store(true, Ordering::Relaxed),
                _ => {}
            }
            let panicked = || BulkError::Archive("a thread that followed changes has panicked".to_owned());
            let followed = follower.map(|follower| follower.join().unwrap_or_else(|_| Err(panicked())));
            // What the follower says is why the list broke off.
            let followed = followed.transpose()?.unwrap_or_default();
            Ok((ended? == Ended::Over, sink.target.written().and(followed)))
        })
    }

    /// What changes at one source from a place on, until it is stopped.
    fn follow(&self, source: &Server, place: FeedPlace, sink: Nodes, watch: &dyn Watch) -> Result<Nodes, BulkError> {
        let name = source.name();
        let passage = Passage { watch, ..self.passage(&name, &self.changes, Gaps::End) };
        let (sink, ended) = passage.run(self.feed(source, true, &self.changes), sink, Begin::Cursor(place), true);
        match ended? {
            Ended::Gap(gap) => Err(BulkError::Gap { server: name, gap }),
            Ended::Over | Ended::Stopped => Ok(sink),
        }
    }
}
