//! What a supervisor is told that asks for it, as systemd does with `Type=notify`: how far the recovery is, that the node
//! serves, that it leaves, and, for its watchdog, that all workers turn.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use moneta_store::Progress;
use sd_notify::NotifyState;

use crate::phases::{Phase, Phases};

/// How often the state of the node is looked at where no watchdog asks for more.
const TICK: Duration = Duration::from_secs(1);
/// By how much each tick of the recovery puts off the supervisor's deadline for the start.
const MORE_TIME: Duration = Duration::from_secs(30);

/// Whether what serves is alive, beyond having threads.
pub trait Pulse: Send + Sync {
    /// The numbers of workers that have not turned since the last call.
    fn standing_still(&self) -> Vec<usize>;
}

/// The pulses of several parts, as one.
pub(crate) struct Pulses(pub(crate) Vec<Arc<dyn Pulse>>);

impl Pulse for Pulses {
    fn standing_still(&self) -> Vec<usize> {
        self.0.iter().flat_map(|pulse| pulse.standing_still()).collect()
    }
}

/// What the thread that tells is told.
enum News {
    /// The node serves.
    Serving(Arc<dyn Pulse>),
    /// It has been told to stop; whoever says so waits until the supervisor knows.
    Leaving(Sender<()>),
}

/// The thread that tells. It ends once this is dropped; it is not waited for, since a supervisor may not listen.
pub struct Supervisor {
    news: Sender<News>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Begins to tell of `recovery`, if there is a supervisor that listens (`NOTIFY_SOCKET`).
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub fn start(recovery: Arc<Progress>, phases: Arc<Phases>) -> io::Result<Option<Self>> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(None);
        }
        let watchdog = sd_notify::watchdog_enabled();
        // Three looks within its time, so that one that comes late costs nothing.
        let tick = watchdog.map_or(TICK, |limit| (limit / 4).clamp(Duration::from_millis(10), TICK));
        let (news, told) = mpsc::channel::<News>();
        let run = move |_: &moneta_background::Run| {
            let mut teller = Teller { recovery, phases, pulse: None, is_ready: false, is_leaving: false };
            loop {
                let mut leaving = None;
                match told.recv_timeout(tick) {
                    Ok(News::Serving(pulse)) => teller.pulse = Some(pulse),
                    Ok(News::Leaving(answer)) => leaving = Some(answer),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                teller.tick();
                // Who asked may have given up waiting.
                leaving.map(|answer| answer.send(()));
            }
        };
        moneta_background::start("supervisor", run)?;
        Ok(Some(Self { news }))
    }

    /// The node serves from now on.
    pub fn serving(&self, pulse: Arc<dyn Pulse>) {
        // It fails only if the thread is gone, and then nothing can be told.
        let _ = self.news.send(News::Serving(pulse));
    }

    /// The node has been told to stop: returns when the supervisor has been told, or after a second.
    pub fn leaving(&self) {
        let (answer, answered) = mpsc::channel();
        let _ = self.news.send(News::Leaving(answer));
        let _ = answered.recv_timeout(TICK);
    }
}

struct Teller {
    recovery: Arc<Progress>,
    phases: Arc<Phases>,
    /// Once the node serves.
    pulse: Option<Arc<dyn Pulse>>,
    is_ready: bool,
    is_leaving: bool,
}

impl Teller {
    fn tick(&mut self) {
        let Some(pulse) = &self.pulse else {
            let more = u32::try_from(MORE_TIME.as_micros()).unwrap_or(u32::MAX);
            let doing = match self.recovery.percent() {
                Some(percent) => format!("recovering, {percent} %"),
                None => "starting".to_owned(),
            };
            return tell(&[NotifyState::Status(&doing), NotifyState::ExtendTimeoutUsec(more)]);
        };
        if !std::mem::replace(&mut self.is_ready, true) {
            // Workers have not had the time for a turn yet.
            return tell(&[NotifyState::Ready, NotifyState::Status("serving"), NotifyState::Watchdog]);
        }
        if self.phases.phase() != Phase::Running {
            if !std::mem::replace(&mut self.is_leaving, true) {
                tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
            }
            // Workers end one by one; that the end comes is what the deadline for the stop is for.
            return tell(&[NotifyState::Watchdog]);
        }
        let still = pulse.standing_still();
        if still.is_empty() {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::warn!(workers = ?still, "workers stand still: the watchdog is not told that all is well");
        }
    }
}

/// A supervisor that does not listen is not waited for.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the supervisor cannot be told");
    }
}
