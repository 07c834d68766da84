//! Repairs the times of which a relay was not told: one at a time, from the earliest moment that is missing.
//!
//! A relay that goes on at another copy reads from where it was, less the margin. What the copy of before lacked for longer, as a
//! write that a proxy kept for it as a hint and that never got there, lies further back in the other copy's feed. So all that was
//! written since that copy was begun to be read is compared, too. As any repair it creates nothing: what is missing stays a miss.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use moneta_background::{Run, Task};
use moneta_cluster::Topology;
use moneta_cluster::sources::{GuardConfig, Guarded, TopologySource};
use moneta_net::Outward;
use moneta_options::values::Values;
use moneta_process::desk::Observed;
use moneta_relay::{Due, DueCause};
use moneta_repair::{Goal, RepairConfig, Watch};
use moneta_store::Clock;
use moneta_store::metric::{Sample, Value as MetricValue};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{source_here, source_there};
use crate::commands::repair::{Pair, in_words};
use crate::options::of_relay::{FLUSH, FROM, PREFIX, REGION, SHARE, STATE_DIR, TO};
use crate::options::sections::proxy::APP;
use crate::proxy;

/// How long after a gap or a switch it is repaired: what the relay reads meanwhile need not be.
const AFTER: Duration = Duration::from_secs(30);
/// Pause before a repair that failed is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// How often what switches call for is compared, at most: nodes that fail again and again are not to be walked without end.
const SWITCHES_EVERY: Duration = Duration::from_secs(600);
/// How far back a repair reaches that a switch calls for, in milliseconds: a day. A nightly one does the rest.
const SWITCHES_BACK: u64 = 24 * 3_600_000;
/// Keys that are repaired in a second.
const RATE: u64 = 5_000;
/// How long a repair may take to see that the process ends.
const LOOK: Duration = Duration::from_millis(200);

/// What waits to be repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    /// What was written then or later, in milliseconds since the Unix epoch.
    since: u64,
    /// The copy of the other region that is compared first.
    copy: String,
    /// Changes are known to be missing.
    has_gap: bool,
}

impl Waiting {
    /// Both at once, with the copy of the other one, which came later.
    fn and(self, later: Self) -> Self {
        Self { since: self.since.min(later.since), has_gap: self.has_gap || later.has_gap, ..later }
    }
}

/// What is to be repaired.
#[derive(Debug, Default)]
struct Work {
    waiting: Option<Waiting>,
    /// What is compared now. It is kept with what waits until that has been done.
    running: Option<Waiting>,
}

impl Work {
    /// All of it, for the next process.
    fn all(&self) -> Option<Waiting> {
        let (running, waiting) = (self.running.clone(), self.waiting.clone());
        running.into_iter().chain(waiting).reduce(Waiting::and)
    }
}

/// How a repair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    /// It is to be tried again.
    Failed,
    /// The process stops: the next one goes on with it.
    Stopped,
}

/// Repairs of gaps, and of what a copy lacked that was read before another one.
pub struct Repairs {
    work: Mutex<Work>,
    /// Where that is kept: the next process goes on with it.
    file: PathBuf,
    last: Mutex<Option<Result<moneta_repair::Report, String>>>,
    done: AtomicU64,
    failed: AtomicU64,
    clock: Arc<Clock>,
    task: Mutex<Option<Task>>,
}

impl Repairs {
    /// Starts the thread that repairs.
    ///
    /// # Errors
    /// If the system has none.
    pub fn start(options: &Values, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Arc<Self>> {
        let file = file_of(options).context("it has a folder")?;
        let waiting = read(&file);
        if let Some(Waiting { since, .. }) = &waiting {
            tracing::info!(since, "what the relay of before had to repair is repaired");
        }
        let repairs = Arc::new(Self {
            work: Mutex::new(Work { waiting, running: None }),
            file,
            last: Mutex::default(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            clock: Arc::clone(clock),
            task: Mutex::default(),
        });
        let (running, options, outward) = (Arc::clone(&repairs), options.clone(), outward.clone());
        let task = moneta_background::start("relay-repair", move |run| running.run(run, &options, &outward))?;
        *repairs.task.lock() = Some(task);
        Ok(repairs)
    }

    fn run(&self, run: &Run, options: &Values, outward: &Outward) {
        let (mut began, mut failures): (Option<Instant>, usize) = (None, 0);
        while !run.is_stopped() {
            let rests = began.is_some_and(|began| began.elapsed() < SWITCHES_EVERY);
            if !self.work.lock().waiting.as_ref().is_some_and(|waiting| waiting.has_gap || !rests) {
                run.sleep(LOOK);
                continue;
            }
            run.sleep(AFTER);
            if run.is_stopped() {
                return;
            }
            let Some(waiting) = self.begin() else { continue };
            began = Some(Instant::now());
            let ended = self.once(run, (options, outward), &waiting, failures);
            self.end(ended);
            match ended {
                Ended::Done => failures = 0,
                Ended::Stopped => return,
                Ended::Failed => {
                    failures += 1;
                    // A repair that failed need not wait for the time between two switches.
                    began = None;
                    run.sleep(AGAIN);
                }
            }
        }
    }

    /// What is compared from now on.
    fn begin(&self) -> Option<Waiting> {
        let mut work = self.work.lock();
        work.running = work.waiting.take();
        work.running.clone()
    }

    /// What became of that.
    fn end(&self, ended: Ended) {
        self.change(|work| match ended {
            Ended::Done => work.running = None,
            Ended::Stopped => {}
            Ended::Failed => {
                let running = work.running.take();
                work.waiting = running.into_iter().chain(work.waiting.take()).reduce(Waiting::and);
            }
        });
    }

    /// A time is to be compared.
    pub fn due(&self, due: &Due) {
        let has_gap = due.cause == DueCause::Gap;
        self.clock.refresh();
        let back = if has_gap { 0 } else { self.clock.millis().saturating_sub(SWITCHES_BACK) };
        let due = Waiting { since: due.since.max(back), copy: due.copy.clone(), has_gap };
        self.change(|work| work.waiting = work.waiting.take().into_iter().chain([due]).reduce(Waiting::and));
    }

    /// Changes what is to be done, and keeps it.
    fn change(&self, change: impl FnOnce(&mut Work)) {
        let mut work = self.work.lock();
        change(&mut work);
        if let Err(error) = keep(&self.file, work.all().as_ref()) {
            let path = self.file.display();
            tracing::error!(%path, %error, "what is to be repaired is not kept: if the process ends now, it is forgotten");
        }
    }

    /// Ends it.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.stop();
            task.join();
        }
    }

    /// What the page tells.
    pub fn shown(&self) -> Map<String, Value> {
        let last = match &*self.last.lock() {
            None => Value::Null,
            Some(Ok(report)) => json!(report),
            Some(Err(why)) => json!({ "failure": why }),
        };
        let since = self.work.lock().waiting.as_ref().map(|waiting| waiting.since);
        let repairs = json!({"waiting_since": since, "last": last});
        [("repairs".to_owned(), repairs)].into_iter().collect()
    }

    /// Repairs what was written since a moment; `failures`: how often that has failed.
    fn once(&self, run: &Run, (options, outward): (&Values, &Outward), waiting: &Waiting, failures: usize) -> Ended {
        let Waiting { since, copy, has_gap } = waiting;
        tracing::info!(since, has_gap, "what was written in the other region since is compared with what is here");
        let watch = Watching(run);
        let ended = pair(options, outward, &self.clock, (copy, failures)).and_then(|pair| {
            let config = RepairConfig {
                goal: Goal::Since(*since),
                rate: RATE,
                takes_rollbacks: options.get(&FLUSH),
                prefix: options.get(&PREFIX).unwrap_or_default(),
                ..RepairConfig::default()
            };
            let ended = moneta_repair::repair(&pair.a, &pair.b, &config, &watch);
            pair.close();
            Ok(ended?)
        });
        match ended {
            Ok(report) => {
                tracing::info!(
                    done = report.done,
                    "what may have been missing is repaired: {}",
                    in_words(&report, false).replace('\n', "; ")
                );
                let is_done = report.done && report.failed == 0;
                (if is_done { &self.done } else { &self.failed }).fetch_add(1, Ordering::Relaxed);
                *self.last.lock() = Some(Ok(report));
                match is_done {
                    true => Ended::Done,
                    false if run.is_stopped() => Ended::Stopped,
                    false => Ended::Failed,
                }
            }
            Err(error) => {
                let why = format!("{error:#}");
                tracing::error!(error = why, "what may be missing is not repaired; `moneta repair` may be run by hand");
                self.failed.fetch_add(1, Ordering::Relaxed);
                *self.last.lock() = Some(Err(why));
                Ended::Failed
            }
        }
    }
}

/// Where what waits is kept: beside the progress, whose name it has.
fn file_of(options: &Values) -> Option<PathBuf> {
    let share = options.get(&SHARE);
    let share = if share.is_all() { String::new() } else { format!(".share-{}-of-{}", share.number, share.of) };
    let (app, region) = (options.get(&APP).unwrap_or_default(), options.get(&REGION));
    Some(options.get(&STATE_DIR)?.join(format!("{app}.from-{region}{share}.repair")))
}

fn read(path: &Path) -> Option<Waiting> {
    let text = std::fs::read(path).ok()?;
    let read = serde_json::from_slice(&text);
    read.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "what was to be repaired cannot be read"))
        .ok()
}

fn keep(path: &Path, waiting: Option<&Waiting>) -> std::io::Result<()> {
    let Some(waiting) = waiting else {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let draft = path.with_extension("repair.new");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec(waiting)?)?;
    file.sync_all()?;
    std::fs::rename(draft, path)
}

struct Watching<'r>(&'r Run);

impl Watch for Watching<'_> {
    fn note(&self, text: &str) {
        tracing::info!("repair: {text}");
    }

    fn should_stop(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Both regions as their topologies have them now: there the copy of this name first, and with each failure another one, of both.
fn pair(
    options: &Values,
    outward: &Outward,
    clock: &Arc<Clock>,
    (name, failures): (&str, usize),
) -> anyhow::Result<Pair> {
    let first = |source: Box<dyn TopologySource>| -> anyhow::Result<Topology> {
        Ok(Guarded::new(source, GuardConfig::default()).first(proxy::FIRST)?)
    };
    let (from, to) = (options.get(&FROM).context("it has a source")?, options.get(&TO).context("it has a target")?);
    let there = first(source_there(options, outward)(&from)?).context("from")?;
    let here = first(source_here(options, outward)(&to)?).context("to")?;
    let (of_there, of_here) = (copies(&there, name), copies(&here, ""));
    let turn = of_there.len().max(1);
    let (one, other) = (nth(&of_there, failures), nth(&of_here, failures / turn));
    Pair::of_regions((&there, one), (&here, other), outward, clock)
}

/// The copies that can be compared, the one of this name first.
fn copies<'t>(topology: &'t Topology, name: &str) -> Vec<&'t str> {
    let readable = topology.replicas.iter().filter(|replica| !replica.write_only);
    let mut names: Vec<&str> = readable.map(|replica| &*replica.name).collect();
    let at = names.iter().position(|one| *one == name).unwrap_or(0);
    names.rotate_left(at);
    names
}

fn nth<'t>(names: &[&'t str], at: usize) -> Option<&'t str> {
    names.get(at.checked_rem(names.len())?).copied()
}

impl Observed for Repairs {
    fn samples(&self) -> Vec<Sample> {
        let of = |counter: &AtomicU64| MetricValue::from(counter.load(Ordering::Relaxed));
        vec![
            moneta_relay::REPAIRS.labelled(["done"], of(&self.done)),
            moneta_relay::REPAIRS.labelled(["failed"], of(&self.failed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_compared_from_the_earliest_on_with_the_copy_that_is_read_now() {
        let of = |since, copy: &str, has_gap| Waiting { since, copy: copy.to_owned(), has_gap };
        assert_eq!(of(5, "a", true).and(of(9, "b", false)), of(5, "b", true));
        assert_eq!(of(9, "a", false).and(of(5, "b", false)), of(5, "b", false));
    }

    /// Without this a stop, or a second gap and a kill, in the middle of a repair forgets it, and what it would have found stays
    /// missing.
    #[test]
    fn what_was_not_repaired_to_its_end_is_left_to_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app.repair");
        let repairs = Repairs {
            work: Mutex::default(),
            file: file.clone(),
            last: Mutex::default(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            clock: Arc::new(Clock::system()),
            task: Mutex::default(),
        };
        let of = |since, copy: &str| Some(Waiting { since, copy: copy.to_owned(), has_gap: true });
        let due = |since, copy: &str| repairs.due(&Due { since, copy: copy.to_owned(), cause: DueCause::Gap });
        due(5, "a");
        assert_eq!((repairs.begin(), read(&file)), (of(5, "a"), of(5, "a")));
        due(9, "b");
        assert_eq!(read(&file), of(5, "b"), "a process that is killed now leaves both");
        repairs.end(Ended::Stopped);
        assert_eq!(read(&file), of(5, "b"), "and so does one that stops");
        repairs.end(Ended::Failed);
        assert_eq!((repairs.begin(), read(&file)), (of(5, "b"), of(5, "b")));
        due(9, "c");
        repairs.end(Ended::Done);
        assert_eq!((repairs.begin(), read(&file)), (of(9, "c"), of(9, "c")), "what came meanwhile is left");
        repairs.end(Ended::Done);
        assert_eq!((repairs.begin(), file.exists()), (None, false));
    }

    #[test]
    fn each_failure_takes_another_copy() {
        let names = ["b", "c", "a"];
        let taken: Vec<Option<&str>> = (0..4).map(|at| nth(&names, at)).collect();
        assert_eq!(taken, ["b", "c", "a", "b"].map(Some));
        assert_eq!(nth(&[], 3), None);
    }
}
