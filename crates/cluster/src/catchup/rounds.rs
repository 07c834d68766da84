//! Which copies are read, and when a node has learned enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_net::Address;
use parking_lot::Mutex;

use super::copies::{Copy, Look, Span, Verdict, verdict};
use super::past::Past;
use super::peers::{self, Keys};
use super::state::{AtDeadline, CatchUpState};
use super::trouble::ASKED;
use crate::topology::Topology;

/// How far before the newest that it holds a node begins to read that was killed: longer than it may have left changes in RAM
/// alone.
const MARGIN_OF_KILLED: Duration = Duration::from_secs(90);
/// The same for a node that has lost nothing: longer than the clocks of two nodes differ, and than a write is under way.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a node that is whole goes on to follow: longer than proxies pause between two probes
/// ([`crate::ClusterConfig::PROBE_MAX`]).
const FOLLOW: Duration = Duration::from_secs(90);
/// How often readers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a node that has nothing to learn looks for another topology.
const LOOK_RARELY: Duration = Duration::from_millis(200);
/// How often what was done is logged.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Pause before a topology that does not help is asked for again.
const RETRY: Duration = Duration::from_secs(1);
/// Why a node learns nothing that finds itself in no topology until its deadline.
const NO_TOPOLOGY: &str = "no topology has this node";
/// How long a node that has come to its deadline looks for a copy that answers reads.
const GRACE: Duration = Duration::from_secs(5);

/// Catches up, follows for a while, and does so again when keys come back.
pub(super) fn run(
    state: &Arc<CatchUpState>,
    ports: &[u16],
    mut topology: impl FnMut() -> Option<Topology> + Send + 'static,
) {
    let began = Instant::now();
    let at = state.clock.millis();
    let Some(mut round) = first(state, ports, &mut topology, began) else {
        give_up(state, began, NO_TOPOLOGY);
        return stay(state);
    };
    round.watch(state);
    let mut past = Past::new(Arc::clone(&round.keys));
    let later = later(state, topology);
    let needed = state.config.kept_until.map_or(at, |kept| kept.min(at));
    let margin = if state.config.lost_some { MARGIN_OF_KILLED } else { MARGIN };
    let span = Span { since: before(needed, margin), needed, until: at };
    if state.is_behind() {
        tracing::info!(seconds = at.saturating_sub(needed) / 1000, "catching up with other copies");
    }
    let mut ended = round.catch_up(state, span, began, (ports, &later));
    let mut following = Instant::now();
    while !state.is_closed() {
        let unlearned = match std::mem::replace(&mut ended, Ended::Whole) {
            Ended::Whole => None,
            Ended::Early(span, began) => Some((span, began)),
            Ended::Closed => return,
        };
        if unlearned.is_some() {
            round.forget();
        } else if following.elapsed() < FOLLOW {
            let until = state.whole_until.load(Ordering::Relaxed);
            round.note_whole(state, until);
            std::thread::sleep(LOOK_EVERY);
        } else {
            round.forget();
            std::thread::sleep(LOOK_RARELY);
        }
        if unlearned.is_none()
            && let Some(missed) = state.take_trouble()
        {
            round.forget();
            state.clock.refresh();
            let span = Span { since: before(missed, MARGIN), needed: missed, until: state.clock.millis() };
            ended = round.catch_up(state, span, Instant::now(), (ports, &later));
            following = Instant::now();
            continue;
        }
        let taken = later.lock().take();
        let Some(topology) = taken else { continue };
        state.clock.refresh();
        let now = state.clock.millis();
        let next = Round::of(&topology, state.config.own.as_ref(), ports);
        let lost = past.note(next.as_ref().map(|round| Arc::clone(&round.keys)), now);
        round.forget();
        let is_here = next.is_some();
        tracing::info!(epoch = topology.epoch, is_here, "other copies are read by another topology");
        let Some(next) = next else {
            if let Some((span, began)) = unlearned {
                ended = round.catch_up(state, span, began, (ports, &later));
            }
            continue;
        };
        next.watch(state);
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
        let mut span = Span { since: before(needed, MARGIN), needed, until: now };
        let mut began = Instant::now();
        if let Some((earlier, since)) = unlearned {
            (span.since, span.needed) = (span.since.min(earlier.since), span.needed.min(earlier.needed));
            began = since;
        }
        ended = round.catch_up(state, span, began, (ports, &later));
        following = Instant::now();
    }
}

/// There is no copy to learn from: a node that was stopped answers as before.
fn stay(state: &CatchUpState) {
    while !state.is_closed() {
        if state.take_trouble().is_some() {
            state.end(Some(format!("may hold what is old: {NO_TOPOLOGY}")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A moment so much before another one, in milliseconds since the Unix epoch.
fn before(moment: u64, margin: Duration) -> u64 {
    moment.saturating_sub(u64::try_from(margin.as_millis()).unwrap_or(u64::MAX))
}

/// Follows the topology. The last one that was not taken yet.
fn later(
    state: &Arc<CatchUpState>,
    mut topology: impl FnMut() -> Option<Topology> + Send + 'static,
) -> Arc<Mutex<Option<Topology>>> {
    let (state, last) = (Arc::clone(state), Arc::<Mutex<Option<Topology>>>::default());
    let told = Arc::clone(&last);
    let run = move |task: &Run| {
        while !state.is_closed() && !task.is_stopped() {
            if let Some(topology) = topology() {
                *told.lock() = Some(topology);
            }
            task.sleep(LOOK_EVERY);
        }
    };
    if let Err(error) = moneta_background::start("topology", run) {
        tracing::error!(%error, "no thread to follow the topology");
    }
    last
}

/// The node answers reads though it has not learned everything.
fn give_up(state: &CatchUpState, began: Instant, why: &str) {
    if state.is_behind() {
        tracing::error!("{why}: the node answers reads all the same");
        state.end(Some(format!("may hold what is old: {why}")));
        note_time(state, began);
    }
}

fn note_time(state: &CatchUpState, began: Instant) {
    state.counts.took.store(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Waits for a topology in which this node is.
fn first(
    state: &Arc<CatchUpState>,
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

/// The last topology that was not taken yet, and the ports by which this node finds itself in it.
type Later<'a> = (&'a [u16], &'a Mutex<Option<Topology>>);

/// How catching up ended.
enum Ended {
    /// Nothing is left to be learned, or the node answers reads without it.
    Whole,
    /// By a later topology the other copies are elsewhere: what is to be learned from these, and since when that is tried.
    Early(Span, Instant),
    Closed,
}

/// What became of reading.
enum Learned {
    Everything,
    /// Another topology waits whose copies are elsewhere.
    Elsewhere,
    /// No copy that is whole reaches back.
    TooLittle,
    TooLate,
    Closed,
}

struct Round {
    /// Under which other nodes list this one as a reader.
    name: String,
    keys: Arc<Keys>,
    copies: Vec<Copy>,
    /// Copies there are, with this one.
    all: usize,
    /// The epoch of the later topology that was compared last.
    compared: Option<u64>,
}

impl Round {
    /// The copies beside the node that listens on `ports`; `None`: the topology does not have it.
    fn of(topology: &Topology, own: Option<&Address>, ports: &[u16]) -> Option<Self> {
        let place = peers::place(topology, own, ports)?;
        let keys = peers::keys(topology, place).ok()?;
        let copies = peers::sources(topology, place).into_iter().map(Copy::new).collect();
        let name = peers::reader_name(topology, place);
        Some(Self { name, keys, copies, all: peers::copies(topology), compared: None })
    }

    /// Has nodes of the other copies asked whether they answer: some of each copy.
    fn watch(&self, state: &CatchUpState) {
        let most = self.copies.iter().map(|copy| copy.nodes().len()).max().unwrap_or(0);
        let by_turns = (0..most).flat_map(|turn| self.copies.iter().filter_map(move |copy| copy.nodes().get(turn)));
        let held = by_turns.filter(|node| !node.is_unheld());
        *state.peers.lock() = held.take(ASKED).cloned().collect();
    }

    /// Whether the copies are on other nodes by a topology that waits. One is compared once.
    fn is_elsewhere(&mut self, state: &CatchUpState, (ports, later): Later<'_>) -> bool {
        let later = later.lock();
        let Some(topology) = later.as_ref().filter(|topology| self.compared != Some(topology.epoch)) else {
            return false;
        };
        self.compared = Some(topology.epoch);
        let Some(next) = Self::of(topology, state.config.own.as_ref(), ports) else { return false };
        !next.copies.iter().map(Copy::nodes).eq(self.copies.iter().map(Copy::nodes))
    }

    /// Learns what the node has missed, after which it answers reads.
    fn catch_up(&mut self, state: &Arc<CatchUpState>, mut span: Span, began: Instant, later: Later<'_>) -> Ended {
        loop {
            match self.learn(state, span, began, later) {
                Learned::Everything => break,
                Learned::Elsewhere => return Ended::Early(span, began),
                Learned::Closed => return Ended::Closed,
                Learned::TooLate => {
                    give_up(state, began, "other copies could not be read until the deadline");
                    break;
                }
                Learned::TooLittle if !state.is_behind() => break,
                Learned::TooLittle => {
                    tracing::warn!("away for longer than the feeds of other copies reach: what is held is dropped");
                    if let Err(error) = state.drop_all() {
                        tracing::error!(%error, "what is held cannot be dropped");
                        return Ended::Closed;
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
        Ended::Whole
    }

    /// Reads other copies.
    fn learn(&mut self, state: &Arc<CatchUpState>, span: Span, began: Instant, later: Later<'_>) -> Learned {
        let mut told = Instant::now();
        if self.copies.is_empty() {
            return Learned::Everything;
        }
        loop {
            if state.is_closed() {
                return Learned::Closed;
            }
            if began.elapsed() >= state.config.deadline && self.gives_up(state, span, began) {
                return Learned::TooLate;
            }
            let looks: Vec<Look> = self.copies.iter().map(|copy| copy.look(span.until)).collect();
            match verdict(&looks, self.all) {
                Verdict::Enough => {
                    self.note_whole(state, span.until);
                    return Learned::Everything;
                }
                Verdict::TooLittle => return Learned::TooLittle,
                Verdict::Ask(copy) => self.copies[copy].ask(state, &self.keys, &self.name, span),
                Verdict::Wait => {}
            }
            if self.is_elsewhere(state, later) {
                return Learned::Elsewhere;
            }
            self.tell(state, span, &mut told);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether a node that has come to its deadline answers reads: not while another copy does, unless it is told to.
    fn gives_up(&mut self, state: &Arc<CatchUpState>, span: Span, began: Instant) -> bool {
        if state.config.at_deadline == AtDeadline::Serve || !state.is_behind() {
            return true;
        }
        for copy in self.copies.iter_mut().filter(|copy| !copy.is_asked()) {
            copy.ask(state, &self.keys, &self.name, span);
        }
        let serves = self.copies.iter().any(Copy::serves);
        let is_late = began.elapsed() >= state.config.deadline + GRACE;
        if serves {
            state.stay_out();
        }
        !serves && (is_late || self.copies.iter().all(Copy::is_out))
    }

    /// Takes note of how far the readers are, for people.
    fn tell(&self, state: &CatchUpState, Span { since, until, .. }: Span, told: &mut Instant) {
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
    fn note_whole(&self, state: &CatchUpState, until: u64) {
        let read = self.copies.iter().filter(|copy| matches!(copy.look(until), Look::Read { .. }));
        let furthest = read.map(Copy::watermark).max().unwrap_or(0);
        state.whole_until.fetch_max(furthest, Ordering::Relaxed);
    }

    /// Begins anew.
    fn forget(&mut self) {
        self.copies.iter_mut().for_each(Copy::stop);
    }
}
