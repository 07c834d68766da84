//! The parts of a process: supervised while they run, closed in order at the end.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use moneta_background::Joined;

use crate::part::{Failure, Part};
use crate::phases::{Phase, Phases};
use crate::supervisor::Pulses;

/// How long parts may take to end once everything is to stop: longer than the longest wait for a device or a node.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Parts that run, those first that others stand on.
pub(crate) struct Parts {
    list: Vec<Box<dyn Part>>,
    phases: Arc<Phases>,
    stop_within: Duration,
}

/// What is waited for.
enum Event {
    /// The phase has changed.
    Phase,
    /// The part at this place of the list has ended.
    Ended(usize, Result<(), Failure>),
}

impl Parts {
    /// None yet, of a process with these phases.
    pub(crate) fn new(phases: Arc<Phases>) -> Self {
        Self { list: Vec::new(), phases, stop_within: STOP_WITHIN }
    }

    pub(crate) fn push(&mut self, part: impl Part + 'static) {
        self.list.push(Box::new(part));
    }

    /// Whether all of them are alive.
    pub(crate) fn pulses(&self) -> Pulses {
        Pulses(self.list.iter().filter_map(|part| part.pulse()).collect())
    }

    /// Waits for the end of all parts that end by themselves, and for the process to leave. One that fails takes the others along.
    ///
    /// # Errors
    /// The first failure of a part; or if one does not end in time.
    pub(crate) fn supervise(&mut self) -> anyhow::Result<()> {
        let (tell, told) = channel();
        let changed = tell.clone();
        self.phases.notify(move || {
            // It fails once nobody waits any more.
            let _ = changed.send(Event::Phase);
        });
        let mut running = Vec::new();
        for (place, part) in self.list.iter_mut().enumerate() {
            let Some(ending) = part.ending() else { continue };
            let tell = tell.clone();
            moneta_background::start(format!("{}-end", part.name()), move |_| {
                let _ = tell.send(Event::Ended(place, ending()));
            })?;
            running.push(place);
        }
        let mut ended = Ok(());
        let mut wait = Wait { stop_within: self.stop_within, until: None };
        while !running.is_empty() || self.phases.phase() < Phase::Draining {
            match wait.next(&self.phases, &told) {
                Some(Event::Phase) => {}
                Some(Event::Ended(place, outcome)) => {
                    running.retain(|other| *other != place);
                    if outcome.is_err() || self.phases.phase() == Phase::Running {
                        self.phases.enter(Phase::Stopping);
                    }
                    ended = ended.and(outcome.map_err(|failure| anyhow!(failure)));
                }
                // Another part may have ended the lame duck at the same moment.
                None if wait.is_of(Phase::LameDuck) => self.phases.enter(Phase::Draining),
                None => {
                    let names: Vec<_> = running.iter().map(|place| self.list[*place].name()).collect();
                    return ended.and(Err(anyhow!("parts that do not end: {}", names.join(", "))));
                }
            }
        }
        ended
    }

    /// Closes all of them, the last one first. One that does not end in its time is left behind, and ends with the process.
    ///
    /// # Errors
    /// If there is such a one, or the system has no thread to close one on.
    pub(crate) fn close(&mut self) -> anyhow::Result<()> {
        let mut left = Vec::new();
        while let Some(part) = self.list.pop() {
            let (name, within) = (part.name(), part.close_within());
            let closed = moneta_background::start(format!("{name}-close"), move |_| part.close())
                .map(|task| task.join_by(Instant::now() + within));
            match closed {
                Ok(Joined::Ended) => continue,
                Ok(ended) => tracing::error!(part = name, seconds = within.as_secs(), ?ended, "was not closed"),
                Err(error) => tracing::error!(part = name, %error, "cannot be closed: there is no thread for it"),
            }
            left.push(name);
        }
        if left.is_empty() { Ok(()) } else { Err(anyhow!("parts that were not closed: {}", left.join(", "))) }
    }
}

impl Drop for Parts {
    /// A process that fails before it runs.
    fn drop(&mut self) {
        if !self.list.is_empty() {
            self.phases.enter(Phase::Stopping);
            // Each that is late is in the log.
            let _ = self.close();
        }
    }
}

/// Waits for events, and no longer than the phase may last.
struct Wait {
    stop_within: Duration,
    until: Option<(Phase, Instant)>,
}

impl Wait {
    /// Whether the last event was waited for in this phase.
    fn is_of(&self, phase: Phase) -> bool {
        self.until.is_some_and(|(of, _)| of == phase)
    }

    /// The next event; `None`: the time of the phase is over.
    fn next(&mut self, phases: &Phases, events: &Receiver<Event>) -> Option<Event> {
        let phase = phases.phase();
        let may_last = match phase {
            // A drain has its time from the part that drains.
            Phase::Running | Phase::Draining => return events.recv().ok(),
            Phase::LameDuck => phases.lame_duck(),
            Phase::Stopping => self.stop_within,
        };
        let until = match self.until {
            Some((of, until)) if of == phase => until,
            _ => Instant::now() + may_last,
        };
        self.until = Some((phase, until));
        events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use parking_lot::Mutex;

    use super::*;
    use crate::part::Ending;

    type Said = Arc<Mutex<Vec<String>>>;

    /// A part that says what becomes of it. It ends when the other end of its channel says how, or is dropped.
    struct Saying {
        name: &'static str,
        said: Said,
        ends: Option<Receiver<Result<(), Failure>>>,
        hangs: bool,
    }

    impl Part for Saying {
        fn name(&self) -> &'static str {
            self.name
        }

        fn ending(&mut self) -> Option<Ending> {
            let (name, said, ends) = (self.name, Arc::clone(&self.said), self.ends.take()?);
            Some(Box::new(move || {
                let ended = ends.recv().unwrap_or(Ok(()));
                said.lock().push(format!("{name} ended"));
                ended
            }))
        }

        fn close(self: Box<Self>) {
            if self.hangs {
                loop {
                    std::thread::park();
                }
            }
            self.said.lock().push(format!("{} closed", self.name));
        }

        fn close_within(&self) -> Duration {
            if self.hangs { Duration::from_millis(10) } else { Duration::from_secs(60) }
        }
    }

    /// Parts by name, with what ends each.
    fn parts<const N: usize>(names: [&'static str; N]) -> (Parts, [Sender<Result<(), Failure>>; N], Said) {
        let (mut parts, said) = (Parts::new(Arc::default()), Said::default());
        let ends = names.map(|name| {
            let (end, ends) = channel();
            parts.push(Saying { name, said: Arc::clone(&said), ends: Some(ends), hangs: false });
            end
        });
        (parts, ends, said)
    }

    #[test]
    fn parts_end_with_the_process_and_are_closed_the_last_one_first() {
        let (mut parts, [store, server], said) = parts(["store", "server"]);
        let phases = Arc::clone(&parts.phases);
        phases.notify({
            let phases = Arc::clone(&phases);
            move || {
                if phases.phase() == Phase::Draining {
                    let _ = (store.send(Ok(())), server.send(Ok(())));
                }
            }
        });
        phases.request_shutdown(true);
        parts.supervise().expect("they end well");
        assert_eq!(phases.phase(), Phase::Draining, "nothing had to be cut off");
        said.lock().clear();
        parts.close().expect("they are closed");
        assert_eq!(*said.lock(), ["server closed", "store closed"]);
    }

    #[test]
    fn a_part_that_fails_takes_the_others_along() {
        let (mut parts, [one, other], said) = parts(["one", "other"]);
        let phases = Arc::clone(&parts.phases);
        phases.notify({
            let phases = Arc::clone(&phases);
            move || {
                assert_eq!(phases.phase(), Phase::Stopping);
                let _ = other.send(Ok(()));
            }
        });
        one.send(Err("a defect".into())).expect("it waits");
        let failure = parts.supervise().expect_err("one has failed");
        assert_eq!(failure.to_string(), "a defect");
        assert_eq!(*said.lock(), ["one ended", "other ended"]);
    }

    #[test]
    fn a_part_that_ends_while_the_process_runs_ends_the_process() {
        let (mut parts, [only], _) = parts(["only"]);
        drop(only);
        parts.supervise().expect("it has not failed");
        assert_eq!(parts.phases.phase(), Phase::Stopping);
    }

    #[test]
    fn a_process_without_a_server_ends_its_lame_duck_itself() {
        let (mut parts, [], _) = parts([]);
        parts.phases.set_lame_duck(Duration::from_millis(1));
        parts.phases.request_shutdown(true);
        parts.supervise().expect("nothing fails");
        assert_eq!(parts.phases.phase(), Phase::Draining);
    }

    #[test]
    fn a_part_that_does_not_end_or_close_is_named_and_left_behind() {
        let (mut parts, [end], said) = parts(["stuck"]);
        parts.push(Saying { name: "hangs", said: Arc::clone(&said), ends: None, hangs: true });
        parts.stop_within = Duration::from_millis(10);
        parts.phases.request_shutdown(false);
        let failure = parts.supervise().expect_err("it does not end");
        assert_eq!(failure.to_string(), "parts that do not end: stuck");
        let failure = parts.close().expect_err("it hangs");
        assert_eq!(failure.to_string(), "parts that were not closed: hangs");
        assert_eq!(*said.lock(), ["stuck closed"], "those before it are closed all the same");
        drop(end);
    }

    #[test]
    fn parts_of_a_process_that_does_not_come_to_run_are_closed() {
        let (parts, _ends, said) = parts(["store"]);
        let phases = Arc::clone(&parts.phases);
        drop(parts);
        assert_eq!((phases.phase(), &*said.lock()), (Phase::Stopping, &vec!["store closed".to_owned()]));
    }
}
