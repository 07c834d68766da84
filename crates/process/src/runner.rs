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
use std::time::Duration;

use anyhow::Context;
use moneta_admin::AdminConfig;
use moneta_store::Progress;
use nix::sys::stat::{Mode, umask};

use crate::desk::{About, Desk, Vitals};
use crate::ending;
use crate::logging::{self, Log, LogHandle, LogSettings};
use crate::part::{Closing, Part};
use crate::parts::Parts;
use crate::phases::Phases;
use crate::signals::Signals;
use crate::startup::{PidFile, Startup, let_go};
use crate::supervisor::Supervisor;

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
    // These end in this order.
    parts: Parts,
    signals: Option<Signals>,
    desk: Desk,
    supervisor: Option<Supervisor>,
    _rest: Rest,
    /// Writes what is queued.
    log: Log,
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
        let vitals = Vitals { about, phases: shared, recovery: progress, left_out: Some(log.handle.left_out.clone()) };
        let desk = Desk::open(vitals, admin, desk)?;
        let parts = Parts::new(Arc::clone(&phases));
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
        self.parts.push(part);
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
            supervisor.serving(Arc::new(self.parts.pulses()));
        }
        if self.startup.is_detached {
            let_go()?;
        }
        let supervised = self.parts.supervise();
        self.desk.close();
        if let Some(supervisor) = &self.supervisor {
            supervisor.leaving();
        }
        // Whatever ended it, and whatever stays behind.
        let closed = self.parts.close();
        supervised.and(closed)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where it does not come to run, parts are closed right after this.
        self.desk.close();
    }
}

/// Ends what runs by itself, once the parts that started it are gone.
struct Rest;

impl Drop for Rest {
    fn drop(&mut self) {
        ending::stop_tasks();
    }
}
