//! Where the time of a job goes: each of its threads waits for its source, for the bound on its rate or for its target, or works itself.
//!
//! ```text
//!  source ──▶ read ──▶ decode, encode ──▶ write ──▶ target
//!           waits for    works itself     waits for
//!           the source                    the target
//! ```
//!
//! What waits says so by [`waiting`]; a thread adds up what it says, and [`Meter::lap`] moves it into the meter of its job some times a
//! second. So a change looks at no clock.

use std::cell::Cell;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Created};
use serde::Serialize;

/// What a thread of a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Its source: bytes that have to come, or to be read.
    Source,
    /// The bound on its rate.
    Bound,
    /// Its target: answers, room, a disk.
    Target,
}

thread_local! {
    /// How long this thread has waited since its last lap, in the order of [`For`].
    static WAITED: Cell<[Duration; 3]> = const { Cell::new([Duration::ZERO; 3]) };
    /// It waits now.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Runs what waits. What says within it that it waits, waits for the same.
pub fn waiting<T>(what: For, run: impl FnOnce() -> T) -> T {
    if WAITS.replace(true) {
        return run();
    }
    let begun = Instant::now();
    let ended = run();
    WAITS.set(false);
    let mut waited = WAITED.get();
    waited[what as usize] += begun.elapsed();
    WAITED.set(waited);
    ended
}

/// Adds up what all threads of a job tell. Clones are the same.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    /// Nanoseconds of all threads, and of these what they waited, in the order of [`For`].
    threads: AtomicU64,
    waited: [AtomicU64; 3],
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(Inner {
            begun: Instant::now(),
            threads: AtomicU64::new(0),
            waited: [const { AtomicU64::new(0) }; 3],
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }))
    }
}

/// Since when the time of a thread is not in a meter yet.
#[derive(Debug)]
pub struct Lap(Instant);

impl Lap {
    /// From now on. What the thread waited before is of nobody.
    pub fn begin() -> Self {
        WAITED.take();
        Self(Instant::now())
    }
}

impl Meter {
    /// Takes over what the calling thread did since the last lap.
    pub fn lap(&self, lap: &mut Lap) {
        let now = Instant::now();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.threads.fetch_add(nanoseconds(now - lap.0), Ordering::Relaxed);
        lap.0 = now;
        for (sum, waited) in self.0.waited.iter().zip(WAITED.take()) {
            sum.fetch_add(nanoseconds(waited), Ordering::Relaxed);
        }
    }

    /// So many items and deletes, with bytes of keys and values, were given to the target, and what was given before has ended.
    pub fn wrote(&self, items: u64, bytes: u64) {
        self.0.items.fetch_add(items, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// By now, of a job that has read so many items and deletes, with bytes of keys and values.
    pub fn stages(&self, items: u64, bytes: u64) -> Stages {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let seconds = |sum: &AtomicU64| load(sum) as f64 / 1e9;
        let [source, bound, target] = &self.0.waited;
        Stages {
            seconds: self.0.begun.elapsed().as_secs_f64(),
            read: Passed { items, bytes },
            written: Passed { items: load(&self.0.items), bytes: load(&self.0.bytes) },
            thread_seconds: seconds(&self.0.threads),
            waited: Waited { source: seconds(source), bound: seconds(bound), target: seconds(target) },
        }
    }
}

/// What has passed a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Items and deletes.
    pub items: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Seconds that threads waited, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// The source.
    pub source: f64,
    /// The bound on the rate.
    pub bound: f64,
    /// The target.
    pub target: f64,
}

/// How far the stages of a job are, and where its time went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// Since it was begun.
    pub seconds: f64,
    /// Came from the source, and was decoded.
    pub read: Passed,
    /// Was encoded, and given to the target.
    pub written: Passed,
    /// Seconds of all its threads.
    pub thread_seconds: f64,
    /// Of these what they waited; the rest they worked.
    pub waited: Waited,
}

impl Stages {
    /// What came after `before`, of the same job.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        let passed = |now: Passed, before: Passed| Passed {
            items: now.items.saturating_sub(before.items),
            bytes: now.bytes.saturating_sub(before.bytes),
        };
        Self {
            seconds: self.seconds - before.seconds,
            read: passed(self.read, before.read),
            written: passed(self.written, before.written),
            thread_seconds: self.thread_seconds - before.thread_seconds,
            waited: Waited {
                source: self.waited.source - before.waited.source,
                bound: self.waited.bound - before.waited.bound,
                target: self.waited.target - before.waited.target,
            },
        }
    }

    /// As rates, and parts of the time.
    pub fn rates(&self) -> Rates {
        let seconds = self.seconds.max(1e-3);
        let rate = |passed: Passed| Rate {
            items_per_s: (passed.items as f64 / seconds) as u64,
            bytes_per_s: (passed.bytes as f64 / seconds) as u64,
        };
        let Waited { source, bound, target } = self.waited;
        let all = self.thread_seconds.max(source + bound + target).max(1e-9);
        let part = |time: f64| (time / all * 1000.0).round() / 1000.0;
        let shares = Shares {
            source: part(source),
            bound: part(bound),
            target: part(target),
            work: part((all - source - bound - target).max(0.0)),
        };
        let most = [(source, "source"), (bound, "bound"), (target, "target"), (all - source - bound - target, "work")];
        let limit = most.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).map_or("", |(_, limit)| limit);
        Rates {
            seconds: (self.seconds * 1000.0).round() / 1000.0,
            read: rate(self.read),
            written: rate(self.written),
            time: shares,
            limit,
        }
    }
}

/// What passes a stage in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// Items and deletes.
    pub items_per_s: u64,
    /// Bytes of their keys and values.
    pub bytes_per_s: u64,
}

/// Parts of the time of a job's threads, 1 together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// They wait for the source.
    pub source: f64,
    /// They wait as the bound on the rate says.
    pub bound: f64,
    /// They wait for the target.
    pub target: f64,
    /// They decode and encode.
    pub work: f64,
}

/// How fast the stages of a job are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The time that the rates are of.
    pub seconds: f64,
    /// Reading and decoding.
    pub read: Rate,
    /// Encoding and writing.
    pub written: Rate,
    /// Where the time went.
    pub time: Shares,
    /// The largest of these parts: what limits the job.
    pub limit: &'static str,
}

/// How fast the phases of a job were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Its base; zeros, if there was none.
    pub base: Rates,
    /// Changes, in the same way.
    pub changes: Rates,
}

/// For people, on one line.
impl Display for Rates {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { read, written, time, limit, .. } = self;
        let megabytes = |rate: &Rate| rate.bytes_per_s as f64 / 1e6;
        let limit = match *limit {
            "work" => "its own work",
            limit => limit,
        };
        write!(
            f,
            "read {}/s, {:.1} MB/s; written {}/s, {:.1} MB/s; waits for source {:.0} %, bound {:.0} %, target {:.0} %, works {:.0} %: \
             limited by {limit}",
            read.items_per_s,
            megabytes(read),
            written.items_per_s,
            megabytes(written),
            time.source * 100.0,
            time.bound * 100.0,
            time.target * 100.0,
            time.work * 100.0,
        )
    }
}

/// An archive: who reads it waits for a source, who writes it for a target.
#[derive(Debug)]
pub(crate) struct Timed(Arc<dyn Archive>);

impl Timed {
    pub(crate) fn archive(archive: &Arc<dyn Archive>) -> Arc<dyn Archive> {
        Arc::new(Self(Arc::clone(archive)))
    }
}

impl Archive for Timed {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        waiting(For::Target, || self.0.create(name, content))
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let upload = waiting(For::Target, || self.0.begin(name))?;
        Ok(Box::new(TimedUpload(upload)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = waiting(For::Source, || self.0.open(name))?;
        Ok(Box::new(TimedRead(file)))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        waiting(For::Source, || self.0.list(folder))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.0.tidy(folder)
    }
}

struct TimedUpload(Box<dyn Upload>);

impl Write for TimedUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        waiting(For::Target, || self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        waiting(For::Target, || self.0.flush())
    }
}

impl Upload for TimedUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        waiting(For::Target, || self.0.finish())
    }
}

/// A file as a source that is waited for.
pub struct TimedRead<R>(pub R);

impl<R: Read> Read for TimedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        waiting(For::Source, || self.0.read(buffer))
    }
}
