//! What a worker does with jobs: it claims tasks, renews them while it works, writes down how far it is, and gives them back.
//!
//! ```text
//!  claim ──> held ── renewed by a thread every two seconds, with its progress ──> the word: go, finish, stop
//!              │ └── checkpoint: committed under the term                          409: lost
//!              └── end: done, failed, released
//! ```
//! A worker that cannot reach the control plane goes on: what it writes is idempotent, and a term that is over is found out with the
//! next answer. What must not be done twice asks [`Held::is_sure`] first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_background::Task as Thread;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::{Control, ControlError};

/// Bounds of the time between two renewals.
const RENEW: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// Pause before what must be told is told again.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks for tasks.
#[derive(Debug)]
pub struct Worker {
    /// Where.
    pub control: Arc<Control>,
    /// Its name, which no other worker has that runs.
    pub name: String,
    /// The kinds of jobs that it can do.
    pub kinds: Vec<String>,
    /// What it has for files of jobs: directories and URLs.
    pub volumes: Vec<String>,
    /// Only jobs of this app.
    pub app: Option<String>,
    /// Only this job.
    pub job: Option<String>,
}

/// A task, as it is given to a worker.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Given {
    /// The job.
    pub job: String,
    /// Its kind.
    pub kind: String,
    /// Its app.
    pub app: String,
    /// What the job is to do.
    #[serde(default)]
    pub params: Value,
    /// The task.
    pub task: String,
    /// How often it was given to a worker.
    pub term: u64,
    /// What the task is to do.
    #[serde(default)]
    pub task_params: Value,
    /// How far it is, as the worker before has written down.
    #[serde(default)]
    pub checkpoint: Value,
    /// How long a worker may be silent, in seconds.
    pub lease_s: u64,
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Go on.
    Go,
    /// Bring it to its end: what it was needed for is done.
    Finish,
    /// Write down how far it is, and give it back.
    Stop,
    /// Another worker has it, or it is not to be done any more.
    Lost,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is done.
    Done,
    /// It did not work; why.
    Failed(String),
    /// Another may go on.
    Released,
}

impl Worker {
    /// A task to work on, if there is one. One that this worker has already is given to it anew.
    ///
    /// # Errors
    /// When no server answers, or it refuses; if the system has no thread to renew it.
    pub fn claim(&self) -> Result<Option<Held>, ControlError> {
        let Self { control, name, kinds, volumes, app, job } = self;
        let ask = json!({ "worker": name, "kinds": kinds, "volumes": volumes, "app": app, "job": job });
        let asked = Instant::now();
        let answer = control.post(&control.path(["claims"]), &ask.to_string())?;
        let not_understood = |error: serde_json::Error| ControlError::NotUnderstood(error.to_string());
        let answer: Value = serde_json::from_str(&answer).map_err(not_understood)?;
        if answer["task"].is_null() {
            return Ok(None);
        }
        let given: Given = serde_json::from_value(answer).map_err(not_understood)?;
        let path = control.path(["jobs", &given.job, "tasks", &given.task]);
        let lease = Duration::from_secs(given.lease_s.max(1));
        let holding = Arc::new(Holding {
            control: Arc::clone(control),
            path,
            worker: name.clone(),
            term: given.term,
            word: AtomicU8::new(Word::Go as u8),
            renewed: Mutex::new(asked),
            progress: Mutex::new(Value::Null),
        });
        let renews = Arc::clone(&holding);
        let period = (lease / 3).clamp(RENEW.0, RENEW.1);
        let thread = moneta_background::start(format!("renews-{}", given.task), move |run| {
            while renews.word() != Word::Lost {
                let progress = renews.progress.lock().clone();
                if let Err(error) = renews.tell(&json!({ "progress": progress })) {
                    run.failed(&error);
                }
                if !run.sleep(period) {
                    return;
                }
            }
        })
        .map_err(|error| ControlError::Unreachable(format!("no thread renews the task: {error}")))?;
        Ok(Some(Held { given, lease, holding, thread: Some(thread) }))
    }
}

struct Holding {
    control: Arc<Control>,
    path: String,
    worker: String,
    term: u64,
    word: AtomicU8,
    /// When the last request was begun that was answered.
    renewed: Mutex<Instant>,
    progress: Mutex<Value>,
}

impl Holding {
    fn word(&self) -> Word {
        match self.word.load(Ordering::Relaxed) {
            0 => Word::Go,
            1 => Word::Finish,
            2 => Word::Stop,
            _ => Word::Lost,
        }
    }

    fn tell(&self, said: &Value) -> Result<Word, ControlError> {
        let mut said = said.clone();
        (said["worker"], said["term"]) = (json!(self.worker), json!(self.term));
        let begun = Instant::now();
        let answered = self.control.post(&self.path, &said.to_string());
        let word = match answered {
            Ok(text) => {
                let answer: Value =
                    serde_json::from_str(&text).map_err(|error| ControlError::NotUnderstood(error.to_string()))?;
                *self.renewed.lock() = begun;
                match answer["word"].as_str() {
                    Some("go") => Word::Go,
                    Some("finish") => Word::Finish,
                    _ => Word::Stop,
                }
            }
            // Another has it; or the job is gone.
            Err(ControlError::Refused { status: 404 | 409, .. }) => Word::Lost,
            Err(error) => return Err(error),
        };
        // What is lost stays so.
        if self.word() != Word::Lost {
            self.word.store(word as u8, Ordering::Relaxed);
        }
        Ok(self.word())
    }
}

/// A task that this worker has. Dropped without an end, it is given to another after its lease.
pub struct Held {
    /// What it is.
    pub given: Given,
    lease: Duration,
    holding: Arc<Holding>,
    thread: Option<Thread>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("given", &self.given).finish_non_exhaustive()
    }
}

impl Held {
    /// What the worker is to do, as it was told last.
    pub fn word(&self) -> Word {
        self.holding.word()
    }

    /// Whether no other worker can have it: a renewal was answered lately enough, by this machine's monotonic clock.
    pub fn is_sure(&self) -> bool {
        self.word() != Word::Lost && self.holding.renewed.lock().elapsed() < self.lease * 2 / 3
    }

    /// How far it is, for people; goes with the next renewal. At most 1 KiB of JSON is shown.
    pub fn progress(&self, progress: Value) {
        *self.holding.progress.lock() = progress;
    }

    /// Writes down how far it is, for whom the task is given to next; at most 4 KiB of JSON. Where the control plane does not answer
    /// it is tried again until `should_stop`.
    ///
    /// # Errors
    /// When it refuses, or was not reached.
    pub fn checkpoint(&self, checkpoint: &Value, should_stop: impl Fn() -> bool) -> Result<Word, ControlError> {
        self.insist(&json!({ "checkpoint": checkpoint }), should_stop)
    }

    /// Gives it back. Where the control plane does not answer it is tried again until `should_stop`.
    ///
    /// # Errors
    /// When it refuses, or was not reached.
    pub fn end(mut self, end: &End, should_stop: impl Fn() -> bool) -> Result<Word, ControlError> {
        let said = match end {
            End::Done => json!({ "end": "done" }),
            End::Failed(why) => json!({ "end": "failed", "why": why.chars().take(400).collect::<String>() }),
            End::Released => json!({ "end": "released" }),
        };
        // Else it would renew what has ended, and take the answer for a loss.
        if let Some(thread) = self.thread.take() {
            thread.stop();
            thread.join();
        }
        self.insist(&said, should_stop)
    }

    fn insist(&self, said: &Value, should_stop: impl Fn() -> bool) -> Result<Word, ControlError> {
        loop {
            match self.holding.tell(said) {
                Err(ControlError::Unreachable(_) | ControlError::Refused { status: 429 | 500.., .. })
                    if !should_stop() && self.word() != Word::Lost =>
                {
                    sleep(PAUSE);
                }
                told => return told,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(thread) = &self.thread {
            thread.stop();
        }
    }
}
