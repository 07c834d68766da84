//! The thread that follows a feed. It connects again and again, to one server after the other, and goes on where it was.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use parking_lot::{Condvar, Mutex};

use crate::control::{Control, ControlError};
use crate::items::{Brought, Items, Told};
use crate::lines::Lines;
use crate::pause::Pauses;

/// A connection that has said `at` for the last time so long ago is broken: it comes every 5 s.
const AT_WITHIN: Duration = Duration::from_secs(15);
/// Longest line, in bytes: a topology of ten thousand slots has about two million.
const LINE_MAX: usize = 8 << 20;
/// The first pause before another connection, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Kinds: `instances`, `topologies`, `properties`, `away`, `jobs`.
    pub kinds: Vec<&'static str>,
    /// Of one app alone.
    pub app: Option<String>,
}

/// What is known, at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What was told; empty until [`View::is_begun`].
    pub items: Arc<Items>,
    /// How often something new was known, or it was said again that nothing is.
    pub steps: u64,
    /// Of these, how often it was said that all is told.
    pub ats: u64,
    /// The revision up to which all was told when that was said last; 0: never.
    pub at: u64,
    /// When that was said last. `None`: never.
    pub in_step: Option<Instant>,
    /// Why the feed is not followed now, if it is not.
    pub failure: Option<Arc<str>>,
}

impl View {
    /// Whether all was told once.
    pub fn is_begun(&self) -> bool {
        self.in_step.is_some()
    }

    /// Whether what is known is what the control plane knows, but for the last seconds.
    pub fn is_fresh(&self) -> bool {
        self.in_step.is_some_and(|at| at.elapsed() < AT_WITHIN)
    }
}

/// Follows a feed until it is dropped.
pub struct Follower {
    shared: Arc<Shared>,
    /// Of one app alone, or empty.
    app: String,
    begun: Instant,
    task: Task,
}

#[derive(Default)]
struct Shared {
    view: Mutex<View>,
    changed: Condvar,
    is_ended: AtomicBool,
    counts: Counts,
}

/// What a follower has counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections begun.
    pub(crate) connections: AtomicU64,
    /// Of these, those that failed or broke off.
    pub(crate) failures: AtomicU64,
}

impl Follower {
    /// Begins to follow.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(control: Arc<Control>, query: Query) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (of_task, app) = (Arc::clone(&shared), query.app.clone().unwrap_or_default());
        let task = moneta_background::start("control-feed", move |run| of_task.follow(run, &control, &query))?;
        Ok(Self { shared, app, begun: Instant::now(), task })
    }

    /// What is known now.
    pub fn view(&self) -> View {
        self.shared.view.lock().clone()
    }

    /// What is known once there were more than so many steps, or after `timeout`.
    pub fn wait(&self, steps: u64, timeout: Duration) -> View {
        let until = Instant::now() + timeout;
        let mut view = self.shared.view.lock();
        while view.steps <= steps && !self.shared.changed.wait_until(&mut view, until).timed_out() {}
        view.clone()
    }

    /// The app that is followed; empty: all.
    pub fn app(&self) -> &str {
        &self.app
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It ends by itself within a moment: whoever drops it need not wait for a server.
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.task.stop();
    }
}

impl Shared {
    fn follow(self: &Arc<Self>, run: &Run, control: &Control, query: &Query) {
        let mut told = Told::default();
        let mut pauses = Pauses::new(PAUSES.0, PAUSES.1);
        while !run.is_stopped() {
            self.counts.connections.fetch_add(1, Ordering::Relaxed);
            let before = self.view.lock().ats;
            let why = self.connection(control, query, &mut told);
            if run.is_stopped() {
                return;
            }
            let has_told = self.view.lock().ats > before;
            let is_refused = matches!(why, ControlError::Refused { .. } | ControlError::NotUnderstood(_));
            if has_told {
                pauses.reset();
            } else if is_refused {
                // It may be the cursor that is refused, or what it leads to.
                told.forget_cursor();
            }
            self.fail(&why);
            run.failed(&why);
            control.turn();
            run.sleep(pauses.next());
        }
    }

    /// Follows one connection until it breaks.
    fn connection(self: &Arc<Self>, control: &Control, query: &Query, told: &mut Told) -> ControlError {
        told.connect();
        // In milliseconds since the connection began.
        let (began, last_at) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let give_up = {
            let (shared, last_at) = (Arc::clone(self), Arc::clone(&last_at));
            move || {
                let last_at = Duration::from_millis(last_at.load(Ordering::Relaxed));
                shared.is_ended.load(Ordering::Relaxed) || began.elapsed() > last_at + AT_WITHIN
            }
        };
        let reader = match control.stream(&path(control, query, told.cursor()), AT_WITHIN, give_up) {
            Ok(answer) => answer.reader(),
            Err(error) => return error,
        };
        let mut lines = Lines::new(BufReader::new(reader), LINE_MAX);
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => return ControlError::Unreachable("the feed has ended".into()),
                Err(error) if error.kind() == moneta_net::GIVEN_UP => {
                    return ControlError::Unreachable(format!("the feed is silent for {} s", AT_WITHIN.as_secs()));
                }
                Err(error) => return ControlError::Unreachable(format!("the feed broke: {error}")),
            };
            match told.take(line) {
                Ok(Brought::Nothing) => {}
                Ok(Brought::Change) => self.show(told.items(), None),
                Ok(Brought::InStep) => {
                    let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    last_at.store(now, Ordering::Relaxed);
                    self.show(told.items(), Some(told.revision()));
                }
                Err(error) => return ControlError::NotUnderstood(error.to_string()),
            }
            if self.is_ended.load(Ordering::Relaxed) {
                return ControlError::Unreachable("ended".into());
            }
        }
    }

    fn show(&self, items: Arc<Items>, in_step_at: Option<u64>) {
        let mut view = self.view.lock();
        view.items = items;
        view.steps += 1;
        if let Some(at) = in_step_at {
            view.ats += 1;
            view.at = at;
            view.in_step = Some(Instant::now());
            if view.failure.take().is_some() {
                tracing::info!("the control plane is followed again");
            }
        }
        drop(view);
        self.changed.notify_all();
    }

    fn fail(&self, why: &ControlError) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let why: Arc<str> = why.to_string().into();
        let mut view = self.view.lock();
        if view.failure.as_ref() != Some(&why) {
            tracing::warn!(error = &*why, "the control plane is not followed: what is known of before stays");
        }
        view.failure = Some(why);
        view.steps += 1;
        drop(view);
        self.changed.notify_all();
    }
}

fn path(control: &Control, query: &Query, cursor: Option<&str>) -> String {
    let mut path = format!("{}?kinds={}", control.path(["feed"]), query.kinds.join(","));
    for (name, value) in [("app", query.app.as_deref()), ("cursor", cursor)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", crate::control::encoded(value)));
        }
    }
    path
}
