//! What the process holds for its clients: bytes of requests that are not complete, of replies that are not read, of requests
//! that wait for the store. One account, one limit.
//!
//! ```text
//!  0                                            3/4        7/8        limit
//!  |---------------------------------------------|----------|----------|
//!   each connection may hold an eighth of what is left up to 7/8;
//!   a large request is admitted if it takes no more than half of that
//!                                                |  who holds memory for longer than 10 s is closed, largest first
//!                                                           |  largest holders are closed until 3/4
//!                                                                      |  who comes to hold more is closed
//! ```
//!
//! As every connection is held to a part of what is left, those that take all they can get leave some for others, however
//! many they are (thresholds that move with what is free: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
//!
//! Accounts are kept by connection and turn, not by request: a connection whose requests come whole and whose replies are
//! taken owns no memory, and is not looked at. Workers write counters that they alone write, and tell the shared total of
//! changes of [`STEP`] bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::counters::Counter;

/// Bytes by which a worker's own sum may differ from what it has told the total.
const STEP: usize = 64 * 1024;
/// Part of what is left that one connection may hold: an eighth.
const SHARE: usize = 8;
/// Part of the difference by which the expected size of a read falls with each one that is smaller.
const FORGET: u64 = 64;
/// Requests up to this length are not refused for want of memory: lines, and what one read brings.
pub(crate) const SMALL_REQUEST: usize = 128 * 1024;
/// Seconds for which a connection may hold memory while it is scarce.
pub(crate) const SCARCE_SECONDS: u32 = 10;
/// Bytes by which the total falls before free memory is given back to the system.
const TRIM: usize = 32 * 1024 * 1024;
/// Time that a fall may go on before memory is given back.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests that have not come whole. A large one counts with the length that it announces.
    Input,
    /// The same of clients that have yet to log in.
    Login,
    /// Replies that clients have not read.
    Output,
    /// Requests that wait for the store, with what they read and write, and replies behind them.
    Parked,
    /// Lines of dumps that clients have not read.
    Dump,
    /// Lines for watchers.
    Watch,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Input, Self::Login, Self::Output, Self::Parked, Self::Dump, Self::Watch];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Login => "login",
            Self::Output => "output",
            Self::Parked => "parked",
            Self::Dump => "dump",
            Self::Watch => "watch",
        }
    }
}

/// Bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    kinds: [usize; Kind::ALL.len()],
    total: usize,
}

impl Holding {
    /// Adds bytes of a kind.
    pub fn add(&mut self, kind: Kind, bytes: usize) {
        self.kinds[kind as usize] += bytes;
        self.total += bytes;
    }

    /// Bytes of a kind.
    pub fn of(&self, kind: Kind) -> usize {
        self.kinds[kind as usize]
    }

    /// Bytes of all kinds.
    #[inline]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether all of it is of that kind.
    #[inline]
    pub(crate) fn is_only(&self, kind: Kind) -> bool {
        self.kinds[kind as usize] == self.total
    }

    /// Holds so many bytes of the one kind that it holds bytes of.
    #[inline]
    pub(crate) fn set_only(&mut self, kind: Kind, bytes: usize) {
        debug_assert!(self.is_only(kind));
        self.kinds[kind as usize] = bytes;
        self.total = bytes;
    }
}

/// What one worker's connections hold; written by the worker only.
#[derive(Debug, Default)]
pub struct Ledger {
    kinds: [Counter; Kind::ALL.len()],
    /// Their sum.
    held: Counter,
    /// Bytes that the shared total knows of.
    told: Counter,
    /// Size of the largest items that were read late, falling slowly.
    late: Counter,
}

impl Ledger {
    /// What is held now.
    pub fn holding(&self) -> Holding {
        let mut holding = Holding::default();
        Kind::ALL.into_iter().for_each(|kind| holding.add(kind, self.kinds[kind as usize].get() as usize));
        holding
    }

    /// Bytes that a read of unknown size is taken to hold: not less than most of those before it did.
    pub(crate) fn expected_read(&self) -> usize {
        self.late.get() as usize
    }

    /// An item of so many bytes was read late.
    pub(crate) fn note_read(&self, bytes: usize) {
        let (bytes, late) = (bytes as u64, self.late.get());
        let next = if bytes >= late { bytes } else { late - (late - bytes).div_ceil(FORGET) };
        self.late.add(next.wrapping_sub(late));
    }

    /// A connection that held `was` holds `now`.
    pub(crate) fn change(&self, was: &Holding, now: &Holding, memory: &ClientMemory) {
        for (kind, counter) in self.kinds.iter().enumerate() {
            counter.add((now.kinds[kind] as u64).wrapping_sub(was.kinds[kind] as u64));
        }
        self.change_sum(was.total, now.total, memory);
    }

    /// The same for one that holds `now` bytes where it held `was`, all of one kind.
    #[inline]
    pub(crate) fn change_of(&self, kind: Kind, was: usize, now: usize, memory: &ClientMemory) {
        self.kinds[kind as usize].add((now as u64).wrapping_sub(was as u64));
        self.change_sum(was, now, memory);
    }

    #[inline]
    fn change_sum(&self, was: usize, now: usize, memory: &ClientMemory) {
        self.held.add((now as u64).wrapping_sub(was as u64));
        let (held, told) = (self.held.get() as usize, self.told.get() as usize);
        // What is little is told at once when nothing is left, so that an idle node's total is 0.
        if held.abs_diff(told) >= STEP || held == 0 {
            self.told.add((held as u64).wrapping_sub(told as u64));
            memory.change(told, held);
        }
    }
}

/// What the whole process holds, and the limit on it.
#[derive(Debug)]
pub struct ClientMemory {
    limit: usize,
    total: Arc<AtomicUsize>,
    /// Of the total, bytes of connections that have been told to close.
    leaving: AtomicUsize,
    /// Greatest total since memory was given back to the system.
    peak: Arc<AtomicUsize>,
    /// A thread is about to give memory back.
    trimming: Arc<AtomicBool>,
}

impl ClientMemory {
    /// Default of the limit, in bytes; for items over 32 MiB eight times the largest.
    pub const LIMIT: usize = 256 * 1024 * 1024;

    /// Nothing held, and a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            total: Arc::default(),
            leaving: AtomicUsize::new(0),
            peak: Arc::default(),
            trimming: Arc::default(),
        }
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held, within 64 KiB a worker.
    #[inline]
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes that may come before connections are closed.
    #[inline]
    fn left(&self) -> usize {
        (self.limit - self.limit / 8).saturating_sub(self.total())
    }

    /// Bytes at which a connection has to wait before it gets more.
    #[inline]
    pub(crate) fn share(&self) -> usize {
        self.left() / SHARE
    }

    /// Whether a request of so many bytes may be waited for.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        bytes <= SMALL_REQUEST || bytes <= self.left() / 2
    }

    /// Whether a connection that has come to hold more must go.
    pub(crate) fn is_used_up(&self) -> bool {
        self.total() > self.limit
    }

    /// Bytes of connections to close, if it is time for that: the largest holders, whatever they do.
    pub(crate) fn excess(&self) -> usize {
        let staying = self.staying();
        if staying > self.limit - self.limit / 8 { staying - self.limit / 4 * 3 } else { 0 }
    }

    /// Bytes of connections to close if they have held memory for [`SCARCE_SECONDS`].
    pub(crate) fn scarcity(&self) -> usize {
        self.staying().saturating_sub(self.limit / 4 * 3)
    }

    fn staying(&self) -> usize {
        self.total().saturating_sub(self.leaving.load(Ordering::Relaxed))
    }

    /// A connection that holds so much has been told to close.
    pub(crate) fn leaves(&self, bytes: usize) {
        self.leaving.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It has closed, or holds nothing any more.
    pub(crate) fn has_left(&self, bytes: usize) {
        self.leaving.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn change(&self, was: usize, now: usize) {
        let before = self.total.fetch_add(now.wrapping_sub(was), Ordering::Relaxed);
        let total = before.wrapping_add(now.wrapping_sub(was));
        if now > was {
            self.peak.fetch_max(total, Ordering::Relaxed);
        } else if self.peak.load(Ordering::Relaxed).saturating_sub(total) >= TRIM {
            self.trim();
        }
    }

    /// Has free memory given back to the system: the allocator keeps what large buffers leave behind between small ones. On a
    /// thread, as it takes a millisecond for some megabytes; after a while, as a fall seldom comes alone.
    #[cold]
    fn trim(&self) {
        if self.trimming.swap(true, Ordering::AcqRel) {
            return;
        }
        let (total, peak, trimming) = (Arc::clone(&self.total), Arc::clone(&self.peak), Arc::clone(&self.trimming));
        let spawned = std::thread::Builder::new().name("trim".into()).spawn(move || {
            std::thread::sleep(TRIM_DELAY);
            peak.store(total.load(Ordering::Relaxed), Ordering::Relaxed);
            trimming.store(false, Ordering::Release);
            give_back();
        });
        if let Err(error) = spawned {
            tracing::debug!(%error, "no thread to give memory back");
            self.trimming.store(false, Ordering::Release);
        }
    }
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self::new(Self::LIMIT)
    }
}

/// Gives free memory back to the system, from the middle of the heap too.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and may be called from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(kind: Kind, bytes: usize) -> Holding {
        let mut holding = Holding::default();
        holding.add(kind, bytes);
        holding
    }

    #[test]
    fn a_total_is_right_within_a_step_a_worker_and_nothing_is_nothing() {
        let memory = ClientMemory::new(100 << 20);
        let (one, two) = (Ledger::default(), Ledger::default());
        let nothing = Holding::default();
        one.change(&nothing, &holding(Kind::Output, 10 << 20), &memory);
        two.change(&nothing, &holding(Kind::Input, 1000), &memory);
        assert_eq!((memory.total(), two.holding().of(Kind::Input)), (10 << 20, 1000));
        one.change(&holding(Kind::Output, 10 << 20), &nothing, &memory);
        two.change(&holding(Kind::Input, 1000), &nothing, &memory);
        assert_eq!(memory.total(), 0);
    }

    #[test]
    fn however_many_take_all_they_may_some_is_left() {
        let memory = ClientMemory::new(256 << 20);
        let ledger = Ledger::default();
        for _ in 0..200 {
            ledger.change(&Holding::default(), &holding(Kind::Parked, memory.share()), &memory);
        }
        assert!(memory.excess() == 0 && memory.total() <= memory.limit() / 8 * 7, "{}", memory.total());
        assert!(!memory.admits(memory.limit() / 2));
        assert!(memory.admits(SMALL_REQUEST));
    }

    #[test]
    fn what_leaves_is_not_closed_twice() {
        let memory = ClientMemory::new(80 << 20);
        let ledger = Ledger::default();
        ledger.change(&Holding::default(), &holding(Kind::Output, 75 << 20), &memory);
        assert_eq!((memory.excess(), memory.is_used_up()), (15 << 20, false));
        memory.leaves(15 << 20);
        assert_eq!(memory.excess(), 0);
        ledger.change(&holding(Kind::Output, 75 << 20), &holding(Kind::Output, 81 << 20), &memory);
        assert!(memory.is_used_up());
    }
}
