//! Which copies are read, and when a node has learned enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moneta_client::Address;
use parking_lot::Mutex;

use super::past::Past;
use super::peers::{self, Keys, Source};
use super::reader::{Progress, Reader};
use super::{FOLLOW, MARGIN, MARGIN_OF_KILLED, State};
use crate::config::majority;
use crate::topology::Topology;

/// How often readers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a node that has nothing to learn looks for another topology.
const LOOK_RARELY: Duration = Duration::from_millis(200);
/// How often what was done is logged.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Pause before a topology that does not help is asked for again.
const RETRY: Duration = Duration::from_secs(1);
/// A reader whose node does not answer and that has failed so often is given up for now: another copy is asked.
const FAILURES: u64 = 3;

/// Catches up, follows for a while, and does so again when keys come back.
pub(super) fn run(state: &Arc<State>, ports: &[u16], mut topology: impl FnMut() -> Option<Topology> + Send + 'static) {
    let began = Instant::now();
    let at = state.clock.millis();
    let Some(mut round) = first(state, ports, &mut topology, began) else {
        return give_up(state, began, "no topology has this node");
    };
    let mut past = Past::new(Arc::clone(&round.keys));
    let later = later(state, topology);
    let needed = state.config.kept_until.map_or(at, |kept| kept.min(at));
    let margin = if state.config.lost_some { MARGIN_OF_KILLED } else { MARGIN };
    let span = Span { since: before(needed, margin), needed, until: at };
    if state.is_behind() {
        tracing::info!(seconds = at.saturating_sub(needed) / 1000, "catching up with other copies");
    }
    let mut goes_on = round.catch_up(state, span, began);
    let mut following = Instant::now();
    while goes_on && !state.is_closed() {
        if following.elapsed() < FOLLOW {
            let until = state.whole_until.load(Ordering::Relaxed);
            round.note_whole(state, until);
            std::thread::sleep(LOOK_EVERY);
        } else {
            round.forget();
            std::thread::sleep(LOOK_RARELY);
        }
        let Some(topology) = later.lock().take() else { continue };
        state.clock.refresh();
        let now = state.clock.millis();
        let next = Round::of(&topology, state.config.own.as_ref(), ports);
        let lost = past.note(next.as_ref().map(|round| Arc::clone(&round.keys)), now);
        round.forget();
        let is_here = next.is_some();
        tracing::info!(epoch = topology.epoch, is_here, "other copies are read by another topology");
        let Some(next) = next else { continue };
        if let Some(lost) = lost {
            // First of all: proxies may ask for these keys already.
            state.behind.store(true, Ordering::Relaxed);
            tracing::info!(
                seconds = now.saturating_sub(lost) / 1000,
                "keys that other nodes had are back: catching up"
            );
        }
        round = next;
        // Proxies may have heard of the other topology before this node.
        let needed = before(lost.unwrap_or(now), MARGIN);
        goes_on = round.catch_up(state, Span { since: before(needed, MARGIN), needed, until: now }, Instant::now());
        following = Instant::now();
    }
}

/// A moment so much before another one, in milliseconds since the Unix epoch.
fn before(moment: u64, margin: Duration) -> u64 {
    moment.saturating_sub(u64::try_from(margin.as_millis()).unwrap_or(u64::MAX))
}

/// Follows the topology. The last one that was not taken yet.
fn later(
    state: &Arc<State>,
    mut topology: impl FnMut() -> Option<Topology> + Send + 'static,
) -> Arc<Mutex<Option<Topology>>> {
    let (state, last) = (Arc::clone(state), Arc::<Mutex<Option<Topology>>>::default());
    let told = Arc::clone(&last);
    let run = move || {
        while !state.is_closed() {
            if let Some(topology) = topology() {
                *told.lock() = Some(topology);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("topology".into()).spawn(run) {
        tracing::error!(%error, "no thread to follow the topology");
    }
    last
}

/// What is to be read of a feed, in milliseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct Span {
    /// Where reading begins.
    since: u64,
    /// Since when nothing may be missing.
    needed: u64,
    /// What was taken until then is to be read.
    until: u64,
}

/// The node answers reads though it has not learned everything.
fn give_up(state: &State, began: Instant, why: &str) {
    if state.is_behind() {
        tracing::error!("{why}: the node answers reads all the same");
        state.end(Some(format!("may hold what is old: {why}")));
        note_time(state, began);
    }
}

fn note_time(state: &State, began: Instant) {
    state.counts.took.store(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Waits for a topology in which this node is.
fn first(
    state: &Arc<State>,
    ports: &[u16],
    topology: &mut impl FnMut() -> Option<Topology>,
    began: Instant,
) -> Option<Round> {
    let mut told = false;
    while began.elapsed() < state.config.deadline && !state.is_closed() {
        if let Some(topology) = topology() {
            if let Some(round) = Round::of(&topology, state.config.own.as_ref(), ports) {
                return Some(round);
            }
            if !std::mem::replace(&mut told, true) {
                tracing::error!("this node is not in the topology: catch_up_as says under which address it is");
            }
        }
        std::thread::sleep(RETRY);
    }
    None
}

/// Another copy, and its readers once it is asked.
struct Copy {
    source: Source,
    readers: Vec<Arc<Progress>>,
}

/// How a copy looks from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is not asked yet.
    Unasked,
    /// It is being read.
    Reading,
    /// A node of it cannot be reached.
    Away,
    /// It does not know what this node has missed.
    Gap { whole: bool },
    /// All of it was read.
    Read { whole: bool },
}

impl Copy {
    fn new(source: Source) -> Self {
        Self { source, readers: Vec::new() }
    }

    fn look(&self, until: u64) -> Look {
        if self.readers.is_empty() {
            return Look::Unasked;
        }
        let all = || self.readers.iter().map(|reader| (reader.reached(), reader.failures()));
        let whole = all().all(|(reached, _)| reached.whole);
        if all().any(|(reached, failures)| !reached.answers && failures >= FAILURES) {
            Look::Away
        } else if all().any(|(reached, _)| reached.answers && reached.gap) {
            Look::Gap { whole }
        } else if all().all(|(reached, _)| reached.answers && reached.watermark >= until) {
            Look::Read { whole }
        } else {
            Look::Reading
        }
    }

    /// Begins to read all its nodes that hold keys of this one.
    fn ask(&mut self, state: &Arc<State>, keys: &Arc<Keys>, span: Span) {
        for address in &self.source.nodes {
            let progress = Arc::<Progress>::default();
            let reader = Reader {
                state: Arc::clone(state),
                address: address.clone(),
                keys: Arc::clone(keys),
                since: span.since,
                needed: span.needed,
                progress: Arc::clone(&progress),
            };
            if let Err(error) = std::thread::Builder::new().name("catch-up".into()).spawn(move || reader.run()) {
                tracing::error!(%error, "no thread to read a feed");
            }
            self.readers.push(progress);
        }
    }

    fn stop(&mut self) {
        self.readers.drain(..).for_each(|reader| reader.stop());
    }

    /// Up to when all its nodes were read, in milliseconds since the Unix epoch.
    fn watermark(&self) -> u64 {
        self.readers.iter().map(|reader| reader.reached().watermark).min().unwrap_or(0)
    }
}

/// What became of reading.
enum Learned {
    Everything,
    /// No copy that is whole reaches back.
    TooLittle,
    TooLate,
    Closed,
}

struct Round {
    keys: Arc<Keys>,
    copies: Vec<Copy>,
    /// Copies there are, with this one.
    all: usize,
}

impl Round {
    /// The copies beside the node that listens on `ports`; `None`: the topology does not have it.
    fn of(topology: &Topology, own: Option<&Address>, ports: &[u16]) -> Option<Self> {
        let place = peers::place(topology, own, ports)?;
        let keys = peers::keys(topology, place).ok()?;
        let copies = peers::sources(topology, place).into_iter().map(Copy::new).collect();
        Some(Self { keys, copies, all: peers::copies(topology) })
    }

    /// Learns what the node has missed, after which it answers reads. False: it is closed, or cannot go on.
    fn catch_up(&mut self, state: &Arc<State>, mut span: Span, began: Instant) -> bool {
        loop {
            match self.learn(state, span, began) {
                Learned::Everything => break,
                Learned::Closed => return false,
                Learned::TooLate => {
                    give_up(state, began, "other copies could not be read until the deadline");
                    break;
                }
                Learned::TooLittle if !state.is_behind() => break,
                Learned::TooLittle => {
                    tracing::warn!("away for longer than the feeds of other copies reach: what is held is dropped");
                    if let Err(error) = state.drop_all() {
                        tracing::error!(%error, "what is held cannot be dropped");
                        return false;
                    }
                    self.forget();
                    state.clock.refresh();
                    let now = state.clock.millis();
                    span = Span { since: now, needed: now, until: now };
                }
            }
        }
        if state.is_behind() {
            state.end(None);
            note_time(state, began);
            let (taken, superseded) = (state.counts.taken.get(), state.counts.superseded.get());
            let milliseconds = began.elapsed().as_millis();
            tracing::info!(taken, superseded, milliseconds, "caught up with other copies");
        }
        true
    }

    /// Reads other copies.
    fn learn(&mut self, state: &Arc<State>, span: Span, began: Instant) -> Learned {
        let mut told = Instant::now();
        if self.copies.is_empty() {
            return Learned::Everything;
        }
        loop {
            if state.is_closed() {
                return Learned::Closed;
            }
            if began.elapsed() >= state.config.deadline {
                return Learned::TooLate;
            }
            let looks: Vec<Look> = self.copies.iter().map(|copy| copy.look(span.until)).collect();
            match verdict(&looks, self.all) {
                Verdict::Enough => {
                    self.note_whole(state, span.until);
                    return Learned::Everything;
                }
                Verdict::TooLittle => return Learned::TooLittle,
                Verdict::Ask(copy) => self.copies[copy].ask(state, &self.keys, span),
                Verdict::Wait => {}
            }
            self.tell(state, span, &mut told);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Takes note of how far the readers are, for people.
    fn tell(&self, state: &State, Span { since, until, .. }: Span, told: &mut Instant) {
        let furthest = self.copies.iter().map(Copy::watermark).max().unwrap_or(0);
        let share = furthest.saturating_sub(since) * 100 / until.saturating_sub(since).max(1);
        let percent = u8::try_from(share.min(99)).unwrap_or(99);
        state.percent.store(percent, Ordering::Relaxed);
        if state.is_behind() && told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            let (taken, superseded) = (state.counts.taken.get(), state.counts.superseded.get());
            tracing::info!(percent, taken, superseded, "catching up with other copies");
        }
    }

    /// Everything that another copy has taken until a moment is here.
    fn note_whole(&self, state: &State, until: u64) {
        let read = self.copies.iter().filter(|copy| matches!(copy.look(until), Look::Read { .. }));
        let furthest = read.map(Copy::watermark).max().unwrap_or(0);
        state.whole_until.fetch_max(furthest, Ordering::Relaxed);
    }

    /// Begins anew.
    fn forget(&mut self) {
        self.copies.iter_mut().for_each(Copy::stop);
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Enough,
    TooLittle,
    Ask(usize),
    Wait,
}

/// Judges what was learned from the other copies, of `all` with this one.
fn verdict(looks: &[Look], all: usize) -> Verdict {
    if looks.contains(&Look::Read { whole: true }) {
        return Verdict::Enough;
    }
    let is_under_way = looks.contains(&Look::Reading);
    let next = looks.iter().position(|look| *look == Look::Unasked);
    // A copy that has come back itself may lack what a third one has: so that is read at the same time.
    let is_alone = looks.iter().any(|look| !matches!(look, Look::Unasked | Look::Reading));
    if let Some(next) = next.filter(|_| is_alone || !is_under_way) {
        return Verdict::Ask(next);
    }
    if is_under_way || next.is_some() {
        return Verdict::Wait;
    }
    let read = looks.iter().filter(|look| matches!(look, Look::Read { .. })).count();
    if 1 + read >= majority(all) {
        Verdict::Enough
    } else if looks.contains(&Look::Gap { whole: true }) {
        Verdict::TooLittle
    } else {
        Verdict::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::Look::{Away, Gap, Read, Reading, Unasked};
    use super::*;

    #[test]
    fn one_copy_that_is_whole_is_enough_and_others_are_asked_only_where_it_is_none() {
        let (whole, back) = (Read { whole: true }, Read { whole: false });
        for (looks, expected) in [
            (&[Unasked, Unasked][..], Verdict::Ask(0)),
            (&[Reading, Unasked], Verdict::Wait),
            (&[whole, Unasked], Verdict::Enough),
            (&[Away, Unasked], Verdict::Ask(1)),
            (&[Gap { whole: true }, Unasked], Verdict::Ask(1)),
            (&[Gap { whole: true }, Reading], Verdict::Wait),
            (&[Gap { whole: true }, whole], Verdict::Enough),
            (&[Gap { whole: true }, Gap { whole: true }], Verdict::TooLittle),
            (&[Gap { whole: true }, Away], Verdict::TooLittle),
            (&[Gap { whole: false }, Away], Verdict::Wait),
            // After a loss of power: all that answer are read, and are more than half.
            (&[back, Unasked], Verdict::Ask(1)),
            (&[back, Reading], Verdict::Wait),
            (&[back, back], Verdict::Enough),
            (&[back, Away], Verdict::Enough),
            (&[Away, Away], Verdict::Wait),
        ] {
            assert_eq!(verdict(looks, 3), expected, "{looks:?}");
        }
        assert_eq!(verdict(&[Away], 2), Verdict::Wait, "one of two copies");
    }
}
