//! A run from its beginning to its end.

use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Instant;

use moneta_client::wire::blocking::DialogueError;
use moneta_client::wire::{Answer, Dialect, Protocol, Request, Verb};
use parking_lot::Mutex;

use crate::comparison::Rules;
use crate::config::{Direction, Keys, VerifyConfig};
use crate::error::{Side, VerifyError};
use crate::line::Line;
use crate::observer::{Observer, Phase};
use crate::pace::Pace;
use crate::repair::unix_now;
use crate::report::{Endpoint, Report};
use crate::source::Source;
use crate::spool::Spool;
use crate::tally::Tally;
use crate::walk::{self, walk};
use crate::worker::{RunShared, Task, work};

/// A comparison of two servers.
#[derive(Clone, Debug)]
pub struct Verify {
    config: VerifyConfig,
}

/// A server as it was found at the beginning.
struct Met {
    endpoint: Endpoint,
    protocol: Protocol,
    /// It knows versions.
    versions: bool,
    /// By how much its clock is ahead of Unix time here, in seconds.
    ahead: i64,
    /// How many items it says it has; `None` if it does not.
    items: Option<u64>,
}

impl Verify {
    /// A comparison that has not begun.
    pub fn new(config: VerifyConfig) -> Self {
        Self { config }
    }

    /// Compares, and repairs if that is configured. Waits for the end; `observer` may ask for an earlier one.
    ///
    /// A server that dies meanwhile, and an observer that stops the run, leave a [`Report`] with what was found
    /// ([`Report::incomplete`]).
    ///
    /// # Errors
    /// When nothing was compared: the configuration makes no sense, a server is not there, the file of keys is not.
    pub fn run(&self, observer: &dyn Observer) -> Result<Report, VerifyError> {
        self.config.check()?;
        let (a, b) = (self.meet(Side::A)?, self.meet(Side::B)?);
        let by_version = self.config.repair.is_some_and(|repair| repair.direction == Direction::Newer);
        if by_version && !(a.versions && b.versions) {
            let what = "the newer version cannot be taken from servers that do not both know versions";
            return Err(VerifyError::Config(what.to_owned()));
        }
        let listed = Source::listed(&self.config)?;
        self.check_source([&a, &b], observer)?;
        let tally = Tally::new(self.config.examples);
        let pace = Pace::new(self.config.rate, self.config.batch);
        let target = self.config.repair.and_then(|repair| repair.direction.target());
        let shared = RunShared {
            config: &self.config,
            observer,
            tally: &tally,
            pace: &pace,
            rules: Rules::new(&self.config),
            start: Instant::now(),
            target_ahead: if target == Some(Side::A) { a.ahead } else { b.ahead },
            repaired: Mutex::new(None),
            looked_after: AtomicU64::new(0),
            failure: Mutex::new(None),
        };
        let result = match listed {
            Some(source) => {
                observer.phase(Phase::Comparing(None));
                self.spread(&shared, Task::Compare, source)
            }
            None => self.walk_both(&shared),
        };
        if let Err(error) = result.and_then(|()| self.look_after_repairs(&shared)) {
            shared.fail(error);
        }
        let incomplete = shared.failure.into_inner().map(|error| error.to_string());
        let seconds = shared.start.elapsed().as_secs_f64();
        let (counts, examples) = tally.finish();
        Ok(Report {
            conclusion: counts.conclusion(incomplete.is_some(), self.config.repair.is_some()),
            expiry_compared: self.config.compare_expiry
                && [a.protocol, b.protocol].iter().all(|protocol| *protocol == Protocol::Meta),
            a: a.endpoint,
            b: b.endpoint,
            incomplete,
            counts,
            examples,
            seconds,
        })
    }

    /// Refuses to delete what only the target has, if the source has nothing.
    fn check_source(&self, [a, b]: [&Met; 2], observer: &dyn Observer) -> Result<(), VerifyError> {
        let deletes = self.config.repair.filter(|repair| repair.delete_extra && !self.config.allow_empty_source);
        let Some(repair) = deletes else { return Ok(()) };
        let Some(side) = repair.direction.source() else { return Ok(()) };
        let items = if side == Side::A { a.items } else { b.items };
        let is_empty = match walk::is_empty(side, &self.config, observer) {
            // With a file of keys, a server need not list its own. Its statistics count expired items, too.
            Err(VerifyError::Unlisted { .. }) if self.config.keys != Keys::Walked => {
                items.is_none_or(|items| items == 0)
            }
            listed => listed?,
        };
        if is_empty {
            return Err(VerifyError::EmptySource { side, address: self.config.place(side).to_string() });
        }
        Ok(())
    }

    /// Compares the keys of A on both sides, then looks for those of B in A.
    fn walk_both(&self, shared: &RunShared<'_>) -> Result<(), VerifyError> {
        let of_a = walk(Side::A, &self.config, shared.observer)?;
        shared.tally.count(|counts| (counts.walked_a, counts.strays) = (of_a.listed, of_a.strays));
        shared.observer.phase(Phase::Comparing(Some(of_a.spool.keys())));
        self.spread(shared, Task::Compare, spooled(of_a.spool)?)?;
        let of_b = walk(Side::B, &self.config, shared.observer)?;
        shared.tally.count(|counts| {
            counts.walked_b = of_b.listed;
            counts.strays += of_b.strays;
        });
        shared.observer.phase(Phase::LookingForExtra(of_b.spool.keys()));
        self.spread(shared, Task::LookFor, spooled(of_b.spool)?)
    }

    /// Looks once more at all that was repaired: the target may have lost it again, also to later repairs.
    fn look_after_repairs(&self, shared: &RunShared<'_>) -> Result<(), VerifyError> {
        let Some(repaired) = shared.repaired.lock().take() else { return Ok(()) };
        shared.observer.phase(Phase::LookingAfterRepairs(repaired.keys()));
        self.spread(shared, Task::LookAfterRepairs, spooled(repaired)?)
    }

    /// Has all threads work on the keys of `source`.
    fn spread(&self, shared: &RunShared<'_>, task: Task, source: Source) -> Result<(), VerifyError> {
        let source = Mutex::new(source);
        thread::scope(|scope| {
            for _ in 0..self.config.connections {
                scope.spawn(|| work(shared, task, &source));
            }
        });
        shared.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Connects to all servers of a side, to see that they are there and what they are.
    fn meet(&self, side: Side) -> Result<Met, VerifyError> {
        let mut line = Line::new(side, &self.config);
        let mut all = Vec::new();
        for node in 0..line.place().nodes().len() {
            all.push(Self::meet_node(&mut line, node).map_err(|error| line.failure(error))?);
        }
        Ok(all.into_iter().reduce(Met::and).expect("a side has a node"))
    }

    fn meet_node(line: &mut Line, node: usize) -> Result<Met, DialogueError> {
        let question = Request { verb: Verb::Statistics, key: &[], value: &[] };
        let name = line.place().to_string();
        let dialogue = line.dialogue(node)?;
        let Dialect { protocol, versions, .. } = dialogue.dialect();
        // A server that keeps its statistics to itself can be compared all the same.
        let statistics = if let Answer::Statistics(list) = dialogue.call(&question)? { list } else { Vec::new() };
        let find = |wanted| statistics.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let time: Option<i64> = find("time").and_then(|time| time.parse().ok());
        let version = find("version").unwrap_or_default().to_owned();
        Ok(Met {
            endpoint: Endpoint { address: name, nodes: 1, version, protocol: protocol.name() },
            protocol,
            versions,
            ahead: time.map_or(0, |time| time - unix_now()),
            items: find("curr_items").and_then(|items| items.parse().ok()),
        })
    }
}

impl Met {
    /// Both as one side: what only one of them can, the side cannot.
    fn and(self, other: Self) -> Self {
        let Endpoint { address, nodes, mut version, mut protocol } = self.endpoint;
        if !version.split(", ").any(|known| known == other.endpoint.version) {
            version = format!("{version}, {}", other.endpoint.version);
        }
        let one = if self.protocol == Protocol::Meta { other.protocol } else { self.protocol };
        if one != self.protocol {
            protocol = one.name();
        }
        Self {
            endpoint: Endpoint { address, nodes: nodes + other.endpoint.nodes, version, protocol },
            protocol: one,
            versions: self.versions && other.versions,
            ahead: self.ahead,
            items: self.items.zip(other.items).map(|(some, more)| some + more),
        }
    }
}

fn spooled(spool: Spool) -> Result<Source, VerifyError> {
    spool.read().map(Source::spooled).map_err(VerifyError::Spool)
}
