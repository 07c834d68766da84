//! A task that moves items, as the bulk crate sees its user: it shows how far it is, and ends once all is there.
//!
//! All is there when what the source held was moved, and its changes until some time later: what was deleted or overwritten while it
//! was moved is then known to the target.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use moneta_bulk::{Counts, Stages, Watch};
use moneta_link::worker::{End, Held, Word};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// How much later than the end of the base changes are followed to, in milliseconds: clocks may differ, and writes be on their way.
const MARGIN: u64 = 5_000;
/// Failures in a row, a second apart, after which a task fails. The next try asks the control plane again for the address of the slot.
pub const FAILURES: Option<u32> = Some(30);

/// Tells whether the process is to end.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Watches a task.
pub struct Watching<'a> {
    held: &'a Held,
    /// Whether its process is to end.
    stop: Stop<'a>,
    shown: Mutex<Shown>,
    /// When changes began to be followed alone, in milliseconds of Unix time; 0: not yet.
    followed: AtomicU64,
    is_settled: AtomicBool,
    /// Whether it ends by itself once all is there, and not at the word of the control plane.
    settles: bool,
    /// How often what it dumps was begun anew, since files were damaged.
    anew: u64,
}

struct Shown {
    phase: String,
    expected: Option<u64>,
    counts: Counts,
    stages: Stages,
    from: Instant,
}

impl Shown {
    fn of(phase: String, expected: Option<u64>) -> Self {
        let (counts, stages) = (Counts::default(), Stages::default());
        Self { phase, expected, counts, stages, from: Instant::now() }
    }
}

impl<'a> Watching<'a> {
    /// Of a task that ends once all is there.
    pub fn new(held: &'a Held, stop: Stop<'a>) -> Self {
        let shown = Shown::of(String::new(), None);
        Self {
            held,
            stop,
            shown: Mutex::new(shown),
            followed: AtomicU64::new(0),
            is_settled: AtomicBool::new(false),
            settles: true,
            anew: 0,
        }
    }

    /// Of one that goes on until it is told to finish.
    pub fn until_told(held: &'a Held, stop: Stop<'a>) -> Self {
        Self { settles: false, ..Self::new(held, stop) }
    }

    /// The same, of a dump that was begun anew so often.
    #[must_use]
    pub fn anew(self, anew: u64) -> Self {
        Self { anew, ..self }
    }

    /// How the task ends that has moved so much.
    pub fn end(&self, is_whole: bool) -> End {
        let is_done = if self.settles { self.is_settled() } else { self.held.word() == Word::Finish };
        if is_whole && is_done { End::Done } else { End::Released }
    }

    /// Whether all is there.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    fn tell(&self, shown: &Shown) {
        let mut told = progress(shown);
        if self.anew > 0 {
            let text = told["text"].as_str().unwrap_or_default();
            told["text"] = json!(format!("{text}; files were damaged: begun anew {} times", self.anew));
            told["anew"] = json!(self.anew);
        }
        self.held.progress(told);
    }
}

fn progress(Shown { phase, expected, counts, stages, from }: &Shown) -> Value {
    let (Counts { items, bytes, deletes, .. }, expected, passed) = (*counts, *expected, from.elapsed());
    let mut text = format!("{phase}: {items}");
    if let Some(expected) = expected {
        text += &format!(" of about {expected}");
    }
    let rate = items as f64 / passed.as_secs_f64().max(0.001);
    text += &format!(" items, {} MB, {rate:.0}/s", bytes / 1_000_000);
    let left =
        expected.filter(|_| items > 0).map(|expected| (expected.saturating_sub(items) as f64 / rate).ceil() as u64);
    if let Some(left) = left.filter(|left| *left > 0) {
        text += &format!(", {left} s left");
    }
    let rates = (*stages != Stages::default()).then(|| stages.rates());
    if let Some(rates) = &rates {
        text += &format!("; limited by {}", rates.limit);
    }
    json!({
        "stages": rates, "text": text, "phase": phase, "items": items, "expected": expected, "bytes": bytes, "deletes": deletes,
        "items_per_s": rate as u64, "left_s": left,
    })
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Watch for Watching<'_> {
    fn note(&self, text: &str) {
        eprintln!("moneta worker: {}: {}: {text}", self.held.given.job, self.held.given.task);
    }

    fn phase(&self, what: &str, expected: Option<u64>) {
        let mut shown = self.shown.lock();
        *shown = Shown::of(what.to_owned(), expected);
        self.tell(&shown);
    }

    fn progress(&self, counts: Counts) {
        let mut shown = self.shown.lock();
        shown.counts = counts;
        self.tell(&shown);
    }

    fn stages(&self, stages: &Stages) {
        self.shown.lock().stages = *stages;
    }

    fn reached(&self, watermark: u64) {
        let now = unix_ms();
        let since =
            self.followed.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|since| since);
        if since > 0 && watermark >= since.saturating_add(MARGIN) {
            self.is_settled.store(true, Ordering::Relaxed);
        }
    }

    fn should_stop(&self) -> bool {
        (self.settles && self.is_settled()) || self.held.word() != Word::Go || (self.stop)()
    }
}
