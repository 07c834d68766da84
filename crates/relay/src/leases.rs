//! Shares by leases of the control plane: each share is a task of a job, and relays take them on.
//!
//! ```text
//!  not held ── claimed: from the checkpoint less the margin ──> held ── checkpoint every few seconds
//!      ^                                                         │ │
//!      │                    streams have ended, checkpoint       │ └── renewals stop for the lease: another relay claims it
//!      └── released <── more than its part of all, or a pause ───┘
//! ```
//! A checkpoint says up to when all is on the nodes here: while this relay owes hints to some, which lie on its disk alone, it stays
//! where it was. So what another relay takes over lacks nothing, whatever becomes of this one's disk.
//!
//! One thread asks the control plane. What is to be carried, and how far that is, it shares with the relay's own thread through
//! [`Wanted`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use moneta_link::worker::{End, Held, Word, Worker};
use moneta_link::{Control, ControlError};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The kind of the jobs.
pub const KIND: &str = "relay";
/// How long a relay may be silent until another one takes its shares, in seconds.
const LEASE_S: u64 = 10;
/// How often it is looked what there is to do.
const LOOK: Duration = Duration::from_millis(500);
/// How often a share is asked for, and how many relays there are.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How often a checkpoint is written: the next relay reads the margin before it again in any case.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(15);

/// What is carried by leases.
pub struct LeaseConfig {
    /// The control plane here.
    pub control: Arc<Control>,
    /// The relay's name there, which no other one has that runs.
    pub worker: String,
    /// The app.
    pub app: String,
    /// The region whose changes are carried.
    pub region: u8,
    /// How many shares there are.
    pub of: u16,
}

impl LeaseConfig {
    /// The job whose tasks the shares are.
    pub fn job(&self) -> String {
        format!("relay-{}-from-{}-by-{}", self.app, self.region, self.of)
    }
}

/// How far a share is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// All is on the nodes here up to then, in milliseconds since the Unix epoch.
    pub(crate) whole: u64,
    /// Its streams have ended.
    pub(crate) has_ended: bool,
}

/// What the relay is to carry, and what it carries.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Shares to be carried, each from its checkpoint, in milliseconds since the Unix epoch; 0: it was not carried before.
    pub(crate) wanted: BTreeMap<u16, u64>,
    /// Shares that the relay has begun to carry, until they are given back.
    pub(crate) carried: BTreeMap<u16, Carried>,
    /// Why none is asked for.
    pub(crate) failure: Option<String>,
}

/// Leases that are asked for and renewed, until they are closed.
pub(crate) struct Leases {
    pub(crate) shared: Arc<Mutex<Wanted>>,
    task: Task,
}

impl Leases {
    /// Starts to ask for shares.
    ///
    /// # Errors
    /// If the system has no thread.
    pub(crate) fn start(config: LeaseConfig) -> std::io::Result<Self> {
        let shared = Arc::<Mutex<Wanted>>::default();
        let mut asking = Asking {
            shared: Arc::clone(&shared),
            config,
            holds: Vec::new(),
            is_begun: false,
            asked: None,
            fair: usize::MAX,
        };
        let task = moneta_background::start("relay-leases", move |run| asking.run(run))?;
        Ok(Self { shared, task })
    }

    /// Gives all shares back, once their streams have ended.
    pub(crate) fn close(self) {
        self.task.stop();
        self.task.join();
    }
}

struct Hold {
    held: Held,
    share: u16,
    /// The worker's place: under each name the control plane gives one task.
    place: usize,
    kept: u64,
    kept_at: Instant,
    /// It is to be given back.
    leaves: bool,
}

impl Hold {
    /// Writes down how far it is, if it has come further.
    fn write(&mut self, whole: u64) {
        self.kept_at = Instant::now();
        if whole <= self.kept {
            return;
        }
        match self.held.checkpoint(&json!({ "whole": whole }), || true) {
            Ok(_) => self.kept = whole,
            Err(error) => tracing::warn!(share = self.share, %error, "how far a share is was not written down"),
        }
    }
}

struct Asking {
    shared: Arc<Mutex<Wanted>>,
    config: LeaseConfig,
    holds: Vec<Hold>,
    is_begun: bool,
    asked: Option<Instant>,
    /// The most shares that this relay is to have.
    fair: usize,
}

impl Asking {
    fn run(&mut self, run: &Run) {
        while !run.is_stopped() {
            let ended = self.turn();
            if let Err(error) = &ended {
                run.failed(error);
            }
            self.shared.lock().failure = ended.err().map(|error| error.to_string());
            run.sleep(LOOK);
        }
        for hold in &mut self.holds {
            hold.leaves = true;
        }
        self.shared.lock().wanted.clear();
        while !self.holds.is_empty() {
            self.let_go();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn turn(&mut self) -> Result<(), ControlError> {
        for hold in &mut self.holds {
            hold.leaves |= hold.held.word() != Word::Go;
        }
        self.keep();
        let mut ended = Ok(());
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
            self.asked = Some(Instant::now());
            ended = self.ask();
        }
        let mut shared = self.shared.lock();
        for hold in self.holds.iter().filter(|hold| hold.leaves) {
            shared.wanted.remove(&hold.share);
        }
        drop(shared);
        self.let_go();
        ended
    }

    /// Asks for a share, if this relay is to have more; gives one back, if it is to have less.
    fn ask(&mut self) -> Result<(), ControlError> {
        if !self.is_begun {
            self.begin()?;
            self.is_begun = true;
        }
        self.fair = self.fair();
        let stays = self.holds.iter().filter(|hold| !hold.leaves).count();
        if stays > self.fair {
            if let Some(hold) = self.holds.iter_mut().rev().find(|hold| !hold.leaves) {
                tracing::info!(share = hold.share, "a share is given back: another relay is to have it");
                hold.leaves = true;
            }
            return Ok(());
        }
        if stays == self.fair || self.holds.iter().any(|hold| hold.leaves) {
            return Ok(());
        }
        let place = (0..).find(|place| self.holds.iter().all(|hold| hold.place != *place)).unwrap_or_default();
        let worker = Worker {
            control: Arc::clone(&self.config.control),
            name: format!("{}.{place}", self.config.worker),
            kinds: vec![KIND.to_owned()],
            volumes: Vec::new(),
            app: Some(self.config.app.clone()),
            job: Some(self.config.job()),
        };
        let Some(held) = worker.claim()? else { return Ok(()) };
        let share = held.given.task_params["share"].as_u64().and_then(|share| u16::try_from(share).ok());
        let Some(share) = share.filter(|share| (1..=self.config.of).contains(share)) else {
            return Err(ControlError::NotUnderstood("a task of a relay has no share".to_owned()));
        };
        let (term, whole) = (held.given.term, held.given.checkpoint["whole"].as_u64().unwrap_or(0));
        tracing::info!(share, term, whole, "a share is this relay's");
        let (kept, kept_at) = (whole, Instant::now());
        self.shared.lock().wanted.insert(share, whole);
        self.holds.push(Hold { held, share, place, kept, kept_at, leaves: false });
        Ok(())
    }

    /// Begins the job, unless it is there.
    fn begin(&self) -> Result<(), ControlError> {
        let LeaseConfig { control, app, region, of, .. } = &self.config;
        let task = |number: u16| json!({ "name": format!("share-{number}"), "params": { "share": number } });
        let job = json!({
            "kind": KIND, "app": app, "params": { "from": region, "of": of }, "lease_s": LEASE_S,
            "tasks": (1..=*of).map(task).collect::<Vec<_>>(),
        });
        let path = control.path(["jobs", &self.config.job()]);
        match control.put(&path, &job.to_string()) {
            // It may be there: an operator has begun it.
            Err(ControlError::Refused { status: 403, .. }) if control.get(&path).is_ok() => Ok(()),
            ended => ended.map(|_| ()),
        }
    }

    /// The part of all shares that one of so many relays as there are is to have, rounded up; all where that cannot be told.
    fn fair(&self) -> usize {
        let LeaseConfig { control, app, region, of, .. } = &self.config;
        let listed = control.get(&control.path(["instances"])).ok();
        let page: Value = listed.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let is_peer = |one: &&Value| {
            let (live, relay) = (one["state"] == "live", &one["value"]["relay"]);
            one["app"] == app.as_str() && live && relay["from"] == *region && relay["shares"] == *of
        };
        let peers = page["instances"].as_array().into_iter().flatten().filter(is_peer).count();
        usize::from(*of).div_ceil(peers.max(1))
    }

    /// Writes down how far the shares are.
    fn keep(&mut self) {
        for hold in &mut self.holds {
            let whole = self.shared.lock().carried.get(&hold.share).map_or(0, |carried| carried.whole);
            hold.held.progress(json!({ "whole": whole }));
            // From the first moment on: what comes while nobody carries it is missing then, and not from before the first start.
            if hold.kept == 0 || hold.kept_at.elapsed() >= CHECKPOINT_EVERY {
                hold.write(whole);
            }
        }
    }

    /// Gives those back that are to go and whose streams have ended.
    fn let_go(&mut self) {
        for mut hold in std::mem::take(&mut self.holds) {
            let carried = self.shared.lock().carried.get(&hold.share).copied();
            if !hold.leaves || carried.is_some_and(|carried| !carried.has_ended) {
                self.holds.push(hold);
                continue;
            }
            self.shared.lock().carried.remove(&hold.share);
            if hold.held.word() == Word::Lost {
                tracing::warn!(share = hold.share, "a share is another relay's");
                continue;
            }
            hold.write(carried.map_or(0, |carried| carried.whole));
            if let Err(error) = hold.held.end(&End::Released, || true) {
                tracing::warn!(share = hold.share, %error, "a share is given back by the end of its lease");
            }
        }
    }
}
