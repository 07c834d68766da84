//! A bound on lines that repeat: of each place in the program ten a second are written, and now and then a line that says how
//! many were not. A device that fails every request, or a client that fails every log-in, cannot fill a disk.
//!
//! Lines of level debug and trace are not bounded where the operator asked for them, to see each. Where only a client's
//! `verbosity` did, they come out of one allowance: some thousand at once, a few a second for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use moneta_background::Run;
use parking_lot::{Mutex, MutexGuard};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines of one place that are written in a [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// How long lines are left out before a line says so.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Lines that are written at once because a client asked for more of the log: enough to see what a connection does.
const ASKED_LINES: u64 = 5_000;
/// How often one more of them may be written: 65 MB of lines a day, at 150 bytes each.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// What was written of one place lately.
#[derive(Debug)]
struct Place {
    metadata: &'static Metadata<'static>,
    window: Instant,
    written: u32,
    /// Left out since that was last told.
    untold: u64,
}

#[derive(Debug, Default)]
struct Shared {
    // Held for a look at one entry by who logs. There are a few dozen entries at most: places that have logged.
    places: Mutex<HashMap<Identifier, Place>>,
    left_out: AtomicU64,
    /// The most verbose level that the operator asked for; lines beyond it are what a client asked for.
    own: AtomicU8,
    /// When the allowance for these is whole again, in units of [`ASKED_EVERY`] since the start.
    asked: Mutex<Option<(Instant, u64)>>,
    /// Sleeps until a line is left out.
    teller: Option<Thread>,
}

/// Lets through what has not been said too often.
#[derive(Clone, Debug, Default)]
pub struct Repeats(Arc<Shared>);

impl Repeats {
    /// Begins to count, with a thread that tells what is left out.
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub fn start() -> std::io::Result<Self> {
        let (give, given) = mpsc::channel::<Self>();
        let tell = move |task: &Run| {
            let Ok(told) = given.recv() else { return };
            while !task.is_stopped() {
                thread::park();
                task.sleep(TELL_AFTER);
                told.tell();
            }
        };
        let teller = moneta_background::start("log-repeats", tell)?.thread().clone();
        let repeats = Self(Arc::new(Shared { teller: Some(teller), ..Shared::default() }));
        // It fails only if the thread is gone.
        let _ = give.send(repeats.clone());
        Ok(repeats)
    }

    /// The operator wants lines up to this level; what goes beyond is what a client asked for.
    pub fn set_own(&self, level: Level) {
        self.0.own.store(verbosity_of(level), Ordering::Relaxed);
    }

    /// Counts a line that a client asked for, at `now`; false if it is to be left out.
    fn admit_asked(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        {
            let mut asked = self.0.asked.lock();
            let (start, whole_at) = asked.get_or_insert((now, 0));
            let passed = now.saturating_duration_since(*start).as_millis() / ASKED_EVERY.as_millis();
            let passed = u64::try_from(passed).unwrap_or(u64::MAX);
            let next = (*whole_at).max(passed) + 1;
            if next - passed <= ASKED_LINES {
                *whole_at = next;
                return true;
            }
        }
        let mut places = self.lock();
        let fresh = Place { metadata, window: now, written: 0, untold: 0 };
        places.entry(metadata.callsite()).or_insert(fresh).untold += 1;
        drop(places);
        self.leave_out();
        false
    }

    fn leave_out(&self) {
        self.0.left_out.fetch_add(1, Ordering::Relaxed);
        if let Some(teller) = &self.0.teller {
            teller.unpark();
        }
    }

    /// Lines left out since the start.
    pub fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, Place>> {
        self.0.places.lock()
    }

    /// Counts one more line of a place at `now`; false if it is to be left out.
    fn admit(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let mut places = self.lock();
        let fresh = Place { metadata, window: now, written: 0, untold: 0 };
        let place = places.entry(metadata.callsite()).or_insert(fresh);
        if now.saturating_duration_since(place.window) >= WINDOW {
            (place.window, place.written) = (now, 0);
        }
        if place.written < LINES {
            place.written += 1;
            return true;
        }
        place.untold += 1;
        drop(places);
        self.leave_out();
        false
    }

    /// Places with the lines left out since the last call.
    fn untold(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut places = self.lock();
        let untold = places.values_mut().filter(|place| place.untold > 0);
        untold.map(|place| (place.metadata, std::mem::take(&mut place.untold))).collect()
    }

    fn tell(&self) {
        for (metadata, lines) in self.untold() {
            let (file, line) = (metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
            tracing::warn!(target: TELLER, lines, place = format!("{file}:{line}"), "lines left out: their like came too often");
        }
    }
}

/// A number that grows with how verbose a level is.
fn verbosity_of(level: Level) -> u8 {
    [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG].iter().filter(|less| level > **less).count() as u8
}

/// Target of the lines that tell of others.
const TELLER: &str = "log-repeats";

impl<S> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target() == TELLER {
            return true;
        }
        if *metadata.level() <= Level::INFO {
            return self.admit(metadata, Instant::now());
        }
        // Greater levels are more verbose.
        let is_own = verbosity_of(*metadata.level()) <= self.0.own.load(Ordering::Relaxed);
        is_own || self.admit_asked(metadata, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn of_one_place_ten_lines_a_second_are_written_and_the_rest_is_counted() {
        let repeats = Repeats::default();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let lines = tracing_subscriber::Layer::with_filter(
            tracing_subscriber::fmt::layer().with_writer(std::sync::Mutex::new(writer)),
            repeats.clone(),
        );
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            for number in 0..1000 {
                tracing::error!(number, "a device fails");
            }
            tracing::error!("another place");
            repeats.tell();
        });
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        let of = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        // More than one window may have passed while a loaded machine wrote.
        assert!((10..=100).contains(&of("a device fails")), "{text}");
        assert_eq!(of("another place"), 1, "{text}");
        assert_eq!(of("lines left out"), 1, "{text}");
        assert_eq!(repeats.left_out(), 1000 - of("a device fails") as u64);
        assert!(repeats.untold().is_empty());
    }

    #[test]
    fn what_a_client_asked_for_comes_out_of_an_allowance_and_what_the_operator_wants_does_not() {
        let write = |own| {
            let repeats = Repeats::default();
            repeats.set_own(own);
            let lines = tracing_subscriber::Layer::with_filter(
                tracing_subscriber::fmt::layer().with_writer(std::io::sink),
                repeats.clone(),
            );
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
                for number in 0..3 * ASKED_LINES {
                    tracing::debug!(number, "a connection opens");
                }
            });
            repeats.left_out()
        };
        // A few more come meanwhile on a loaded machine.
        assert!(write(Level::INFO) > ASKED_LINES, "{}", write(Level::INFO));
        assert_eq!(write(Level::DEBUG), 0);
    }

    #[test]
    fn a_place_may_speak_again_in_the_next_window() {
        let repeats = Repeats::default();
        let seen = std::sync::OnceLock::new();
        struct Take<'a>(&'a std::sync::OnceLock<&'static Metadata<'static>>);
        impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Take<'static> {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                let _ = self.0.set(event.metadata());
            }
        }
        let seen: &'static std::sync::OnceLock<_> = Box::leak(Box::new(seen));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Take(seen)), || tracing::warn!("here"));
        let (metadata, start) = (seen.get().unwrap(), Instant::now());
        let admitted = |now| (0..30).filter(|_| repeats.admit(metadata, now)).count();
        assert_eq!(admitted(start), LINES as usize);
        assert_eq!(admitted(start + WINDOW), LINES as usize);
        assert_eq!(repeats.untold()[0].1, 40);
    }
}
