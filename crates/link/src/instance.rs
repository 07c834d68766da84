//! What a process registers, and how it renews that.
//!
//! ```text
//!  unknown ── PUT ──> registered ── POST renewals, every renew_every_s, and when the status changes ──┐
//!     ^                   │ ^─────────────────────────────────────────────────────────────────────────┘
//!     └─ "register": true ┘
//!  leave: OUT_OF_SERVICE at once; at the end DELETE, tried once at each server
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::control::{Control, ControlError};
use crate::pause::{Pauses, jittered};

/// How often it is looked whether the status has changed.
const LOOK: Duration = Duration::from_millis(250);
/// Within which time what is new is told, so that a fleet that has heard of the same does not answer at once.
const SOON: Duration = Duration::from_secs(1);
/// Bounds of the period of renewals, in seconds, and what it is before the control plane has said one.
const PERIOD: (f64, f64) = (0.2, 300.0);
const PERIOD_FIRST: Duration = Duration::from_secs(30);
/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// What a process says of its own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is not ready yet: it reads its tiers, or catches up.
    Starting,
    /// It serves.
    Up,
    /// It is about to end.
    OutOfService,
    /// It was ready, and is not.
    Down,
}

impl Status {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Up => "UP",
            Self::OutOfService => "OUT_OF_SERVICE",
            Self::Down => "DOWN",
        }
    }
}

/// What a process is to the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its app.
    pub app: String,
    /// Its name.
    pub id: String,
    /// What else is registered: addresses, version, zone, and so on.
    pub record: Map<String, Value>,
}

/// What goes with a renewal.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Numbers that are never written: items, requests a second.
    pub vitals: Map<String, Value>,
    /// The epochs of topologies that were seen, by app.
    pub epochs: BTreeMap<String, u64>,
    /// What was told of and has taken effect, or not.
    pub acks: Map<String, Value>,
}

/// How an instance stands at the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether it is registered, as far as is known here.
    pub is_registered: bool,
    /// An operator's word on its status.
    pub overridden: Option<String>,
    /// `held` or `spare`, if it claims a slot.
    pub slot: Option<String>,
    /// Who has the slot that it waits for.
    pub holder: Option<String>,
    /// Why it is not registered, or not renewed.
    pub failure: Option<String>,
}

/// A registration, renewed until it ends.
pub struct Registration {
    shared: Arc<Shared>,
    task: Option<Task>,
}

struct Shared {
    control: Arc<Control>,
    instance: Mutex<Instance>,
    /// The record has changed since it was put.
    is_changed: AtomicBool,
    /// There is something to report that should not wait for its time.
    is_urgent: AtomicBool,
    standing: Mutex<Standing>,
    counts: Counts,
}

/// What a registration has counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Registrations that were taken.
    pub(crate) registered: AtomicU64,
    /// Renewals that were taken.
    pub(crate) renewed: AtomicU64,
    /// Those that were not.
    pub(crate) failures: AtomicU64,
}

/// The answer to a registration.
#[derive(Debug, Default, Deserialize)]
struct Registered {
    #[serde(default)]
    renew_every_s: Option<f64>,
    #[serde(flatten)]
    word: Word,
}

/// The answer to a renewal.
#[derive(Debug, Default, Deserialize)]
struct Renewed {
    #[serde(default)]
    register: bool,
    #[serde(flatten)]
    word: Word,
}

/// What both say.
#[derive(Debug, Default, Deserialize)]
struct Word {
    #[serde(default, rename = "override")]
    overridden: Option<Value>,
    #[serde(default)]
    slot: Option<String>,
    #[serde(default)]
    holder: Option<String>,
}

impl Registration {
    /// Registers `instance`, and renews that with what `status` and `report` say: the former is asked a few times in a second.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(
        control: Arc<Control>,
        instance: Instance,
        status: impl FnMut() -> Status + Send + 'static,
        report: impl FnMut() -> Report + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            control,
            instance: Mutex::new(instance),
            is_changed: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            standing: Mutex::default(),
            counts: Counts::default(),
        });
        let of_task = Arc::clone(&shared);
        let task = moneta_background::start("registration", move |run| of_task.run(run, status, report))?;
        Ok(Self { shared, task: Some(task) })
    }

    /// Registers another record, since what it says has changed.
    pub fn change(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut instance = self.shared.instance.lock();
        let before = instance.record.clone();
        change(&mut instance.record);
        if instance.record != before {
            self.shared.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Has it renewed within a second: there is something new to report.
    pub fn report_soon(&self) {
        self.shared.is_urgent.store(true, Ordering::Relaxed);
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.shared.standing.lock().clone()
    }

    /// What it registers.
    pub fn instance(&self) -> Instance {
        self.shared.instance.lock().clone()
    }

    /// Ends it, and says so. Waits for that as long as a request or two may take.
    pub fn leave(mut self) {
        if let Some(task) = self.task.take() {
            task.stop();
            task.join();
        }
        let Instance { app, id, .. } = self.instance();
        if !self.standing().is_registered {
            return;
        }
        let path = self.shared.control.path(["instances", app.as_str(), id.as_str()]);
        if let Err(error) = self.shared.control.delete(&path) {
            tracing::warn!(%error, "the control plane was not told of the end of this process");
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.stop();
        }
    }
}

impl Shared {
    fn run(&self, run: &Run, mut status: impl FnMut() -> Status, mut report: impl FnMut() -> Report) {
        let (mut pauses, mut period) = (Pauses::new(PAUSES.0, PAUSES.1), PERIOD_FIRST);
        // What was told last; and when something is told next.
        let (mut told, mut sequence, mut due) = (None, 0u64, Instant::now());
        while !run.is_stopped() {
            let now = status();
            if self.is_urgent.swap(false, Ordering::Relaxed) && self.standing.lock().failure.is_none() {
                due = due.min(Instant::now() + jittered(SOON));
            }
            let is_registered = self.standing.lock().is_registered && !self.is_changed.load(Ordering::Relaxed);
            // A change of status is told at once, but what fails is tried again in its time.
            let is_news = told != Some(now) && self.standing.lock().failure.is_none();
            if Instant::now() < due && !is_news && (is_registered || self.standing.lock().failure.is_some()) {
                run.sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
                continue;
            }
            let ended = match is_registered {
                false => self.register(now, &report()).map(|registered| {
                    period = registered.unwrap_or(period);
                    true
                }),
                true => {
                    sequence += 1;
                    self.renew(now, sequence, report())
                }
            };
            match ended {
                Ok(is_known) => {
                    pauses.reset();
                    self.standing.lock().failure = None;
                    told = is_known.then_some(now);
                    due = Instant::now() + if is_known { jittered(period) } else { Duration::ZERO };
                }
                Err(error) => {
                    self.fail(&error);
                    run.failed(&error);
                    due = Instant::now() + pauses.next().min(period);
                }
            }
        }
    }

    /// Registers; returns the period of renewals.
    fn register(&self, status: Status, report: &Report) -> Result<Option<Duration>, ControlError> {
        let Instance { app, id, mut record } = self.instance.lock().clone();
        self.is_changed.store(false, Ordering::Relaxed);
        record.insert("status".into(), status.word().into());
        if !report.epochs.is_empty() {
            record.insert("epochs".into(), json!(report.epochs));
        }
        let path = self.control.path(["instances", app.as_str(), id.as_str()]);
        let answer = self.control.put(&path, &Value::Object(record).to_string()).inspect_err(|_| {
            self.is_changed.store(true, Ordering::Relaxed);
        })?;
        let answer: Registered = understood(&answer)?;
        self.counts.registered.fetch_add(1, Ordering::Relaxed);
        tracing::info!(app, id, status = status.word(), "registered with the control plane");
        self.take(answer.word);
        let period = answer.renew_every_s.filter(|seconds| seconds.is_finite());
        Ok(period.map(|seconds| Duration::from_secs_f64(seconds.clamp(PERIOD.0, PERIOD.1))))
    }

    /// Renews; false: it is to register again.
    fn renew(&self, status: Status, sequence: u64, report: Report) -> Result<bool, ControlError> {
        let (app, id) = {
            let instance = self.instance.lock();
            (instance.app.clone(), instance.id.clone())
        };
        let Report { vitals, epochs, acks } = report;
        let renewal = json!([{
            "app": app, "id": id, "status": status.word(), "seq": sequence,
            "vitals": vitals, "acks": acks, "epochs": epochs,
        }]);
        let answer = self.control.post(&self.control.path(["renewals"]), &renewal.to_string())?;
        let answers: Vec<Renewed> = understood(&answer)?;
        let answer = answers.into_iter().next();
        let answer = answer.ok_or_else(|| ControlError::NotUnderstood("a renewal has no answer".into()))?;
        if answer.register {
            self.standing.lock().is_registered = false;
            return Ok(false);
        }
        self.counts.renewed.fetch_add(1, Ordering::Relaxed);
        self.take(answer.word);
        Ok(true)
    }

    fn take(&self, word: Word) {
        let overridden = word.overridden.and_then(|word| match word {
            Value::String(word) => Some(word),
            object => object["status"].as_str().map(str::to_owned),
        });
        let mut standing = self.standing.lock();
        if standing.overridden != overridden {
            tracing::info!(
                status = overridden,
                "an operator has changed the status of this process at the control plane"
            );
        }
        if standing.slot != word.slot {
            match (word.slot.as_deref(), &word.holder) {
                (Some("spare"), holder) => {
                    tracing::warn!(holder, "another process has the slot: this one waits as a spare")
                }
                (Some(slot), _) => tracing::info!(slot, "the slot is this process's"),
                (None, _) => {}
            }
        }
        (standing.is_registered, standing.overridden) = (true, overridden);
        (standing.slot, standing.holder) = (word.slot, word.holder);
    }

    fn fail(&self, error: &ControlError) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let why = error.to_string();
        let mut standing = self.standing.lock();
        if standing.failure.as_ref() != Some(&why) {
            tracing::warn!(error = why, "this process is not registered with the control plane, or not renewed there");
        }
        standing.failure = Some(why);
    }
}

fn understood<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, ControlError> {
    serde_json::from_str(text).map_err(|error| ControlError::NotUnderstood(error.to_string()))
}
