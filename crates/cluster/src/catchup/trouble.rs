//! What tells a node that it may hold what is old though it did not restart: it was stopped, cut off, or its clock is wrong.
//!
//! ```text
//!  its clock jumps by over 2 s between two pulses ─────────────▶ behind, since the last pulse
//!  no node of another copy answers for 5 s, then one does ─────▶ behind, since one answered last
//!  its clock differs from the others' by more than may be ─────▶ behind until it does not, and then since it did not
//! ```
//!
//! A node that is behind for one of these reads the feeds of other copies from that moment on, as at a start. While no other copy
//! can be reached it answers reads, since it may be the last: it cannot tell.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moneta_client::wire::Protocol;
use moneta_client::wire::blocking::Dialogue;
use moneta_net::Address;

use super::state::{CatchUpState, Trouble};

/// A clock that moves by so much between two pulses: the node was stopped, in milliseconds. Proxies wait for a node for about as
/// long.
const STOPPED: u64 = 2000;
/// How often a node that runs says so.
const PULSE: Duration = Duration::from_millis(100);
/// How often other nodes are asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for one.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time without any answer after which a node is cut off.
const CUT_OFF: Duration = Duration::from_secs(5);
/// Most nodes that are asked.
pub(super) const ASKED: usize = 6;
/// Rounds in a row in which the clock is wrong before it counts.
const ROUNDS: u32 = 2;
/// How late an answer tells the time, in milliseconds.
const LATE: u64 = 100;

impl CatchUpState {
    /// Whether the node has not run for a while, and no pulse came since.
    #[inline]
    pub(super) fn was_stopped(&self) -> bool {
        // What the thread stored that was first to see it is seen by who sees this.
        self.clock.millis() > self.runs_until.load(Ordering::Acquire) && self.pulse()
    }

    /// The node runs. Called often; true: it did not for a while, and is behind.
    #[cold]
    pub(super) fn pulse(&self) -> bool {
        let (now, until) = (self.clock.millis(), self.runs_until.load(Ordering::Relaxed));
        let was_stopped = now > until;
        if was_stopped {
            self.note_stopped(until.saturating_sub(STOPPED), now);
        }
        self.runs_until.store(now + STOPPED, Ordering::Release);
        was_stopped
    }

    #[cold]
    fn note_stopped(&self, last: u64, now: u64) {
        let mut trouble = self.trouble.lock();
        // Another thread may have been first.
        if self.runs_until.load(Ordering::Relaxed) >= now {
            return;
        }
        self.miss(&mut trouble, last);
        tracing::warn!(milliseconds = now - last, "the node was stopped, or its clock jumped: catching up");
    }

    /// What was taken elsewhere since a moment may be missing here.
    fn miss(&self, trouble: &mut Trouble, since: u64) {
        trouble.since = Some(trouble.since.map_or(since, |before| before.min(since)));
        self.behind.store(true, Ordering::Relaxed);
        self.counts.again.add(1);
    }

    /// Since when what other copies took may be missing, if it is not known yet. While the clock is wrong there is nothing to be
    /// done.
    pub(super) fn take_trouble(&self) -> Option<u64> {
        let mut trouble = self.trouble.lock();
        if trouble.wrong.is_some() { None } else { trouble.since.take() }
    }

    /// Takes note of a round of answers.
    fn judge(&self, watch: &mut Watch, answers: &[Option<i64>], now: Instant) {
        let mut trouble = self.trouble.lock();
        let ago = |moment: Instant| {
            let elapsed = u64::try_from(now.saturating_duration_since(moment).as_millis()).unwrap_or(u64::MAX);
            self.clock.millis().saturating_sub(elapsed)
        };
        if answers.iter().any(Option::is_some) {
            if std::mem::take(&mut trouble.is_cut_off) {
                tracing::warn!("other copies can be reached again: catching up");
                self.miss(&mut trouble, ago(watch.contact));
            }
            watch.contact = now;
        } else if !answers.is_empty() && now.saturating_duration_since(watch.contact) >= CUT_OFF && !trouble.is_cut_off
        {
            trouble.is_cut_off = true;
            // Nothing tells any more whether its clock is wrong.
            if trouble.wrong.take().is_some() {
                self.miss(&mut trouble, ago(watch.right));
            }
            tracing::error!("no other copy can be reached: what this node answers may be old");
        }
        let most = self.config.skew_max.saturating_add(LATE);
        match ahead(answers) {
            Some(by) if by.unsigned_abs() > most => {
                watch.wrong += 1;
                if watch.wrong >= ROUNDS {
                    if trouble.wrong.replace(by).is_none() {
                        tracing::error!(
                            milliseconds = by,
                            "this node's clock is ahead of those of other copies (behind, if negative): it answers no reads"
                        );
                    }
                    self.behind.store(true, Ordering::Relaxed);
                }
            }
            Some(_) => {
                if trouble.wrong.take().is_some() {
                    tracing::info!("this node's clock is right again: catching up");
                    self.miss(&mut trouble, ago(watch.right));
                }
                (watch.wrong, watch.right) = (0, now);
            }
            // Too few tell it.
            None => {}
        }
    }
}

/// By how much this node's clock is ahead of most, of those that tell theirs with its own among them; `None`: fewer than two do.
fn ahead(answers: &[Option<i64>]) -> Option<i64> {
    let mut all: Vec<i64> = answers.iter().flatten().copied().collect();
    if all.len() < 2 {
        return None;
    }
    all.push(0);
    all.sort_unstable();
    let middle = all.len() / 2;
    match all.len() % 2 {
        1 => Some(all[middle]),
        _ => [all[middle - 1], all[middle]].into_iter().min_by_key(|by| by.abs()),
    }
}

/// What is remembered between two rounds.
struct Watch {
    /// When a node of another copy answered last.
    contact: Instant,
    /// When the clock was right last.
    right: Instant,
    /// Rounds in a row in which it was not.
    wrong: u32,
}

/// A node that is asked.
struct Peer {
    address: Address,
    dialogue: Option<Dialogue>,
}

impl Peer {
    /// By how much this node's clock is ahead of the other's, in milliseconds; `None`: it does not answer, or has no such clock.
    fn ask(&mut self, state: &CatchUpState) -> Option<i64> {
        let mut dialogue = match self.dialogue.take() {
            Some(dialogue) => dialogue,
            None => {
                let endpoint = state.endpoint(&self.address, TIMEOUT);
                Dialogue::open(&endpoint, Some(Protocol::Meta), 1024).ok()?
            }
        };
        state.clock.refresh();
        let before = state.clock.millis();
        let told = dialogue.server_time().ok()??;
        state.clock.refresh();
        let after = state.clock.millis();
        self.dialogue = Some(dialogue);
        // It was read in between.
        Some(if told < before { (before - told).cast_signed() } else { -told.saturating_sub(after).cast_signed() })
    }
}

/// Pulses until the store is closed.
pub(super) fn pulse(state: &CatchUpState) {
    while !state.is_closed() {
        state.clock.refresh();
        state.pulse();
        std::thread::sleep(PULSE);
    }
}

/// Asks other copies until the store is closed.
pub(super) fn watch(state: &Arc<CatchUpState>) {
    let mut peers: Vec<Peer> = Vec::new();
    let now = Instant::now();
    let mut watch = Watch { contact: now, right: now, wrong: 0 };
    while !state.is_closed() {
        let asked = state.peers.lock().clone();
        peers.retain(|peer| asked.contains(&peer.address));
        for address in asked {
            if !peers.iter().any(|peer| peer.address == address) {
                peers.push(Peer { address, dialogue: None });
            }
        }
        // At once: those that do not answer take as long as one of them.
        let answers: Vec<Option<i64>> = std::thread::scope(|scope| {
            let ask = |peer| scope.spawn(|| Peer::ask(peer, state));
            let asking: Vec<_> = peers.iter_mut().map(ask).collect();
            asking.into_iter().map(|asked| asked.join().unwrap_or_default()).collect()
        });
        state.judge(&mut watch, &answers, Instant::now());
        std::thread::sleep(ASK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use moneta_store::{Clock, Store};
    use moneta_testkit::model::ModelStore;

    use super::super::{AtDeadline, CatchUp, CatchUpConfig};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn node() -> (CatchUp, Arc<Clock>) {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let store: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::clone(&clock), 1 << 20));
        let config = CatchUpConfig {
            own: None,
            kept_until: None,
            lost_some: false,
            skew_max: 500,
            deadline: SECOND,
            at_deadline: AtDeadline::StayOut,
            item_max: 1 << 20,
            outward: Default::default(),
        };
        (CatchUp::new(store, config, Arc::clone(&clock)), clock)
    }

    #[test]
    fn a_node_whose_clock_jumps_is_behind_since_its_last_pulse() {
        let (node, clock) = node();
        let state = node.state();
        state.pulse();
        clock.advance_millis(STOPPED);
        assert!(!state.pulse() && !state.is_behind(), "as on a busy machine");
        let last = clock.millis();
        clock.advance_millis(STOPPED + 1);
        assert!(state.pulse() && state.is_behind());
        state.end(None);
        assert!(state.is_behind(), "what it missed is not read yet");
        assert_eq!(state.take_trouble(), Some(last));
        state.end(None);
        assert!(!state.is_behind() && state.take_trouble().is_none());
    }

    #[test]
    fn a_node_that_was_cut_off_is_behind_once_another_copy_answers() {
        let (node, clock) = node();
        let state = node.state();
        let begun = Instant::now();
        let mut watch = Watch { contact: begun, right: begun, wrong: 0 };
        let start = clock.millis();
        let mut round = |second: u32, answers: &[Option<i64>]| {
            clock.set_millis(start + u64::from(second) * 1000);
            state.judge(&mut watch, answers, begun + SECOND * second);
        };
        round(1, &[None, Some(3)]);
        (2..6).for_each(|second| round(second, &[None, None]));
        assert!(state.trouble.lock().note().is_none(), "not for so short");
        (6..60).for_each(|second| round(second, &[None, None]));
        assert!(state.trouble.lock().note().is_some_and(|note| note.contains("cut off")));
        assert!(!state.is_behind(), "it may be the last copy");
        round(60, &[None, Some(-2)]);
        assert!(state.is_behind() && state.trouble.lock().note().is_none());
        assert_eq!(state.take_trouble(), Some(start + 1000));
        // A node that is alone in its topology is not cut off.
        (61..90).for_each(|second| round(second, &[]));
        assert!(state.trouble.lock().note().is_none());
    }

    #[test]
    fn a_node_whose_clock_is_out_of_bound_is_behind_until_it_is_right() {
        let (node, clock) = node();
        let state = node.state();
        let begun = Instant::now();
        let mut watch = Watch { contact: begun, right: begun, wrong: 0 };
        let start = clock.millis();
        let mut round = |second: u32, answers: &[Option<i64>]| {
            clock.set_millis(start + u64::from(second) * 1000);
            state.judge(&mut watch, answers, begun + SECOND * second);
            state.is_behind()
        };
        assert!(!round(1, &[Some(20), Some(-400)]));
        assert!(!round(2, &[Some(-30_000), Some(400)]), "one of them is wrong");
        assert!(!round(3, &[Some(-30_000)]), "of two either may be wrong");
        assert!(!round(4, &[Some(-30_000), Some(-30_010)]), "for one round");
        assert!(round(5, &[Some(-30_000), Some(-30_010), None]));
        let note = state.trouble.lock().note().expect("it says so");
        assert!(note.contains("30000 ms behind"), "{note}");
        assert_eq!(state.take_trouble(), None, "there is nothing to be done yet");
        state.end(None);
        assert!(state.is_behind());
        assert!(round(9, &[Some(1), Some(2), Some(3)]));
        assert_eq!(state.take_trouble(), Some(start + 2000));
    }
}
