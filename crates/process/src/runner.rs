//! The life of a process, whatever it serves.
//!
//! ```text
//!  begin     log, phases, supervisor, desk: it answers /healthz, and /readyz says that it starts
//!  push      its parts, each with what it works with, those first that others stand on
//!  run       ready. Supervised until its phases say that it leaves; who stays too long is left behind
//!  the end   the desk asks no part any more; parts are closed, the last one first, each within its time; then the rest
//! ```
//!
//! A process that fails before it runs, or is dropped, closes the parts that it has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use moneta_admin::AdminConfig;
use moneta_background::Joined;
use moneta_store::Progress;
use nix::sys::stat::{Mode, umask};

use crate::desk::{About, Desk, Told};
use crate::ending;
use crate::logging::{self, Log, LogHandle, LogSettings};
use crate::part::{Closing, Failure, Part};
use crate::phases::{Phase, Phases};
use crate::signals::Signals;
use crate::startup::{PidFile, Startup, let_go};
use crate::supervisor::{Pulses, Supervisor};

/// How long parts may take to end once everything is to stop: longer than the longest wait for a device or a node.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// What a process begins with.
#[derive(Debug)]
pub struct Beginning {
    /// Who it is.
    pub about: About,
    /// What its start script asked for.
    pub startup: Startup,
    /// What is logged.
    pub log: LogSettings,
    /// Where it answers operators; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Who may ask there, and for how much.
    pub desk: AdminConfig,
}

/// A process and its parts.
pub struct Process {
    phases: Arc<Phases>,
    recovery: Arc<Progress>,
    startup: Startup,
    parts: Vec<Box<dyn Part>>,
    // These end in this order.
    signals: Option<Signals>,
    desk: Desk,
    supervisor: Option<Supervisor>,
    _rest: Rest,
    /// Writes what is queued.
    log: Log,
}

/// What the runner waits for.
enum Event {
    /// The phase has changed.
    Phase,
    /// The part of this number in the list has ended.
    Ended(usize, Result<(), Failure>),
}

impl Process {
    /// Begins: starts the log, and answers operators from now on. What the process writes from here on is its user's alone.
    ///
    /// # Errors
    /// If a log was started before, the address is taken ([`moneta_admin::AdminError`]), or the system has no room for a thread.
    pub fn begin(beginning: Beginning) -> anyhow::Result<Self> {
        let Beginning { about, startup, log, admin, desk } = beginning;
        let log = logging::start(log)?;
        umask(Mode::from_bits_truncate(0o077));
        let (phases, recovery) = (Arc::<Phases>::default(), Arc::<Progress>::default());
        let supervisor = Supervisor::start(Arc::clone(&recovery), Arc::clone(&phases))?;
        let (shared, progress) = (Arc::clone(&phases), Arc::clone(&recovery));
        let told = Told { about, phases: shared, recovery: progress, left_out: Some(log.handle.left_out.clone()) };
        let desk = Desk::open(told, admin, desk)?;
        let parts = Vec::new();
        Ok(Self { phases, recovery, startup, parts, signals: None, desk, supervisor, _rest: Rest, log })
    }

    /// The phases of its life.
    pub fn phases(&self) -> &Arc<Phases> {
        &self.phases
    }

    /// Where its start tells how far it is.
    pub fn recovery(&self) -> &Arc<Progress> {
        &self.recovery
    }

    /// What it tells operators.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Its log.
    pub fn log(&self) -> &LogHandle {
        &self.log.handle
    }

    /// Answers signals from now on, before clients or supervisors can see it and send one; `reload` is called for each SIGHUP, one
    /// at a time.
    ///
    /// # Errors
    /// If the system has no room for a handler or a thread.
    pub fn answer_signals(&mut self, reload: impl Fn() + Send + 'static) -> anyhow::Result<()> {
        let signals = Signals::start(Arc::clone(&self.phases), reload).context("no signals are handled")?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Adds a part that runs. It is closed before those that were added before it.
    pub fn push(&mut self, part: impl Part + 'static) {
        self.parts.push(Box::new(part));
    }

    /// Calls `close` at the end, in the order of parts; it may take so long.
    pub fn at_end(&mut self, name: &'static str, within: Duration, close: impl FnOnce() + Send + 'static) {
        self.push(Closing { name, within, close });
    }

    /// Runs until it is told to stop or a part fails, and then brings all to rest. `started` is called when it is ready.
    ///
    /// # Errors
    /// If a part fails, or one does not end in its time.
    pub fn run(mut self, started: impl FnOnce(&Desk)) -> anyhow::Result<()> {
        self.desk.serve();
        let _pid_file = self.startup.pid_file.as_deref().and_then(PidFile::write);
        started(&self.desk);
        if let Some(supervisor) = &self.supervisor {
            supervisor.serving(Arc::new(Pulses(self.parts.iter().filter_map(|part| part.pulse()).collect())));
        }
        if self.startup.is_detached {
            let_go()?;
        }
        let supervised = self.supervise();
        self.desk.close();
        if let Some(supervisor) = &self.supervisor {
            supervisor.leaving();
        }
        // Whatever ended it, and whatever stays behind.
        supervised.and(self.close())
    }

    /// Waits for the end of all parts that end by themselves, and for the process to leave. One that fails takes the others along.
    fn supervise(&mut self) -> anyhow::Result<()> {
        let (tell, told) = channel();
        let changed = tell.clone();
        self.phases.notify(move || {
            let _ = changed.send(Event::Phase);
        });
        let mut running = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let Some(ending) = part.ending() else { continue };
            let tell = tell.clone();
            moneta_background::start(format!("{}-end", part.name()), move |_| {
                let _ = tell.send(Event::Ended(number, ending()));
            })?;
            running.push(number);
        }
        let mut ended = Ok(());
        let mut wait = Wait::default();
        while !running.is_empty() || self.phases.phase() < Phase::Draining {
            match wait.next(&self.phases, &told) {
                Some(Event::Phase) => {}
                Some(Event::Ended(number, outcome)) => {
                    running.retain(|other| *other != number);
                    let has_failed = outcome.is_err();
                    ended = ended.and(outcome.map_err(|failure| anyhow!(failure)));
                    if has_failed || self.phases.phase() == Phase::Running {
                        self.phases.enter(Phase::Stopping);
                    }
                }
                None if self.phases.phase() == Phase::LameDuck => self.phases.enter(Phase::Draining),
                None => {
                    let names: Vec<_> = running.iter().map(|number| self.parts[*number].name()).collect();
                    return ended.and(Err(anyhow!("parts that do not end: {}", names.join(", "))));
                }
            }
        }
        ended
    }

    /// Closes all parts, the last one first.
    fn close(&mut self) -> anyhow::Result<()> {
        let mut late = Vec::new();
        while let Some(part) = self.parts.pop() {
            let (name, within) = (part.name(), part.close_within());
            // On a thread, as it may hang: then it is left there, and what it holds ends with the process.
            let closed = moneta_background::start(format!("{name}-close"), move |_| part.close())
                .map(|task| task.join_by(Instant::now() + within));
            match closed {
                Ok(Joined::Ended) => {}
                Ok(Joined::Panicked | Joined::Late) => {
                    tracing::error!(part = name, seconds = within.as_secs(), "was not closed");
                    late.push(name);
                }
                Err(error) => {
                    tracing::error!(part = name, %error, "cannot be closed: there is no thread for it");
                    late.push(name);
                }
            }
        }
        if late.is_empty() { Ok(()) } else { Err(anyhow!("parts that were not closed: {}", late.join(", "))) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.parts.is_empty() {
            self.phases.enter(Phase::Stopping);
            self.desk.close();
            // Each that is late is in the log.
            let _ = self.close();
        }
    }
}

/// Ends what runs by itself, once the parts that started it are gone.
struct Rest;

impl Drop for Rest {
    fn drop(&mut self) {
        ending::stop_tasks();
    }
}

/// Waits for events, and no longer than the phase may last.
#[derive(Default)]
struct Wait {
    until: Option<(Phase, Instant)>,
}

impl Wait {
    /// The next event; `None`: the time of the phase is over.
    fn next(&mut self, phases: &Phases, events: &Receiver<Event>) -> Option<Event> {
        let phase = phases.phase();
        let may_last = match phase {
            // Draining has a time of its own, which is the part's.
            Phase::Running | Phase::Draining => None,
            Phase::LameDuck => Some(phases.lame_duck()),
            Phase::Stopping => Some(STOP_WITHIN),
        };
        let Some(may_last) = may_last else { return events.recv().ok() };
        let until = match self.until {
            Some((of, until)) if of == phase => until,
            _ => Instant::now() + may_last,
        };
        self.until = Some((phase, until));
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}
