//! Memory held for clients: bytes of incomplete requests, unread replies, and requests that wait for the store. One account, one
//! limit.
//!
//! ```text
//!  0                                            3/4        7/8        limit
//!  |---------------------------------------------|----------|----------|
//!   each connection may hold an eighth of the bytes left below 7/8;
//!   a large request is admitted if it takes at most half of that
//!                                                |  connections that have held memory for over 10 s are closed, largest first
//!                                                           |  the largest holders are closed until 3/4
//!                                                                      |  a connection that grows is closed
//! ```
//!
//! Each connection is limited to a share of the free part, so greedy connections leave room for others, however many they are
//! (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
//!
//! Memory is accounted for each connection and turn, not for each request: a connection whose requests arrive whole and whose
//! replies are taken owns no memory and costs no accounting. Each worker writes only its own counters, and reports to the shared
//! total in steps of [`STEP`] bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::OwnCounter;

/// Bytes by which a worker's sum may differ from what it has reported to the total.
const STEP: usize = 64 * 1024;
/// One connection may hold this fraction of the free part: an eighth.
const SHARE: usize = 8;
/// The expected size of a read decays by this fraction of the difference with each smaller read.
const FORGET: u64 = 64;
/// Requests up to this length are never refused for want of memory: lines, and the bytes of one read.
pub(crate) const SMALL_REQUEST: usize = 128 * 1024;
/// Seconds for which a connection may hold memory while it is scarce.
pub(crate) const SCARCE_SECONDS: u32 = 10;
/// Bytes by which the total falls before free memory is given back to the system.
const TRIM: usize = 32 * 1024 * 1024;
/// Delay before memory is given back, in which the total may fall further.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// The use of client memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Incomplete requests. A large one counts with its announced length.
    Input,
    /// The same for clients that have not logged in yet.
    Login,
    /// Replies that clients have not read.
    Output,
    /// Requests that wait for the store, with their values, and the replies queued behind them.
    Parked,
    /// Lines of dumps that clients have not read.
    Dump,
    /// Lines for watchers.
    Watch,
    /// Changes that readers of the feed have not read, and what is read for them.
    Feed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Input, Self::Login, Self::Output, Self::Parked, Self::Dump, Self::Watch, Self::Feed];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Login => "login",
            Self::Output => "output",
            Self::Parked => "parked",
            Self::Dump => "dump",
            Self::Watch => "watch",
            Self::Feed => "feed",
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

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        Kind::ALL.into_iter().for_each(|kind| self.add(kind, other.of(kind)));
        self
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

    /// Whether all bytes are of that kind.
    #[inline]
    pub(crate) fn is_only(&self, kind: Kind) -> bool {
        self.kinds[kind as usize] == self.total
    }

    /// Sets the bytes of the only kind that has any.
    #[inline]
    pub(crate) fn set_only(&mut self, kind: Kind, bytes: usize) {
        debug_assert!(self.is_only(kind));
        self.kinds[kind as usize] = bytes;
        self.total = bytes;
    }
}

/// The memory held by one worker's connections; written by the worker only.
#[derive(Debug, Default)]
pub struct Ledger {
    kinds: [OwnCounter; Kind::ALL.len()],
    /// Their sum.
    held: OwnCounter,
    /// Bytes reported to the shared total.
    told: OwnCounter,
    /// Decaying maximum of the sizes of items that were read after a wait.
    late: OwnCounter,
}

impl Ledger {
    /// The bytes held now.
    pub fn holding(&self) -> Holding {
        let mut holding = Holding::default();
        Kind::ALL.into_iter().for_each(|kind| holding.add(kind, self.kinds[kind as usize].get() as usize));
        holding
    }

    /// Bytes that a read of unknown size is assumed to hold: at least what most recent reads held.
    pub(crate) fn expected_read(&self) -> usize {
        self.late.get() as usize
    }

    /// Notes the size of an item that was read after a wait.
    pub(crate) fn note_read(&self, bytes: usize) {
        let (bytes, late) = (bytes as u64, self.late.get());
        let next = if bytes >= late { bytes } else { late - (late - bytes).div_ceil(FORGET) };
        self.late.add(next.wrapping_sub(late));
    }

    /// A connection's holding changed from `was` to `now`.
    pub(crate) fn change(&self, was: &Holding, now: &Holding, memory: &ClientMemory) {
        for (kind, counter) in self.kinds.iter().enumerate() {
            counter.add((now.kinds[kind] as u64).wrapping_sub(was.kinds[kind] as u64));
        }
        self.change_sum(was.total, now.total, memory);
    }

    /// The same for a connection whose bytes are all of one kind.
    #[inline]
    pub(crate) fn change_of(&self, kind: Kind, was: usize, now: usize, memory: &ClientMemory) {
        self.kinds[kind as usize].add((now as u64).wrapping_sub(was as u64));
        self.change_sum(was, now, memory);
    }

    #[inline]
    fn change_sum(&self, was: usize, now: usize, memory: &ClientMemory) {
        self.held.add((now as u64).wrapping_sub(was as u64));
        let (held, told) = (self.held.get() as usize, self.told.get() as usize);
        // A zero is reported at once, so that an idle node's total is 0.
        if held.abs_diff(told) >= STEP || held == 0 {
            self.told.add((held as u64).wrapping_sub(told as u64));
            memory.change(told, held);
        }
    }
}

/// The memory that the process holds for clients, and its limit.
#[derive(Debug)]
pub struct ClientMemory {
    limit: AtomicUsize,
    total: Arc<AtomicUsize>,
    /// The part of the total that is in no worker's ledger, by kind: what is held for clients of the admin side.
    beside: [AtomicUsize; Kind::ALL.len()],
    /// The part of the total held by connections that have been told to close.
    leaving: AtomicUsize,
    /// Highest total since memory was last given back to the system.
    peak: Arc<AtomicUsize>,
    /// A thread is about to give memory back.
    trimming: Arc<AtomicBool>,
}

impl ClientMemory {
    /// Default limit in bytes; if items may be over 32 MiB, the limit is eight times the largest.
    pub const LIMIT: usize = 256 * 1024 * 1024;

    /// Nothing held, and a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            total: Arc::default(),
            beside: Default::default(),
            leaving: AtomicUsize::new(0),
            peak: Arc::default(),
            trimming: Arc::default(),
        }
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is held beyond a smaller one is freed as at any other time: the largest holders are closed.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes held, within 64 KiB a worker.
    #[inline]
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes left before connections are closed.
    #[inline]
    fn left(&self) -> usize {
        let limit = self.limit();
        (limit - limit / 8).saturating_sub(self.total())
    }

    /// Bytes that one connection may hold before it has to wait.
    #[inline]
    pub(crate) fn share(&self) -> usize {
        self.left() / SHARE
    }

    /// Whether a request of this length may be received.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        bytes <= SMALL_REQUEST || bytes <= self.left() / 2
    }

    /// Whether a connection that holds more than before has to be closed.
    pub(crate) fn is_used_up(&self) -> bool {
        self.total() > self.limit()
    }

    /// Bytes to free now by closing the largest holders.
    pub(crate) fn excess(&self) -> usize {
        let (staying, limit) = (self.staying(), self.limit());
        if staying > limit - limit / 8 { staying - limit / 4 * 3 } else { 0 }
    }

    /// Bytes to free by closing connections that have held memory for [`SCARCE_SECONDS`].
    pub(crate) fn scarcity(&self) -> usize {
        self.staying().saturating_sub(self.limit() / 4 * 3)
    }

    fn staying(&self) -> usize {
        self.total().saturating_sub(self.leaving.load(Ordering::Relaxed))
    }

    /// A connection with this many bytes has been told to close.
    pub(crate) fn leaves(&self, bytes: usize) {
        self.leaving.fetch_add(bytes, Ordering::Relaxed);
    }

    /// That connection has closed, or holds nothing any more.
    pub(crate) fn has_left(&self, bytes: usize) {
        self.leaving.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is held of a kind outside of workers changed from `was` to `now`.
    pub(crate) fn change_shared(&self, kind: Kind, was: usize, now: usize) {
        self.beside[kind as usize].fetch_add(now.wrapping_sub(was), Ordering::Relaxed);
        self.change(was, now);
    }

    /// What is held outside of workers.
    pub(crate) fn beside(&self) -> Holding {
        let mut holding = Holding::default();
        Kind::ALL.into_iter().for_each(|kind| holding.add(kind, self.beside[kind as usize].load(Ordering::Relaxed)));
        holding
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

    /// Gives free memory back to the system: the allocator keeps freed large buffers that lie between small ones. Runs on a
    /// thread, since it takes a millisecond for some megabytes, and after a delay, since frees come in groups.
    #[cold]
    fn trim(&self) {
        if self.trimming.swap(true, Ordering::AcqRel) {
            return;
        }
        let (total, peak, trimming) = (Arc::clone(&self.total), Arc::clone(&self.peak), Arc::clone(&self.trimming));
        let spawned = moneta_background::start("trim", move |_| {
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
    fn a_smaller_limit_frees_what_is_over_it() {
        let memory = ClientMemory::new(256 << 20);
        Ledger::default().change(&Holding::default(), &holding(Kind::Output, 75 << 20), &memory);
        assert_eq!(memory.excess(), 0);
        memory.set_limit(80 << 20);
        assert_eq!(memory.excess(), 15 << 20);
        memory.set_limit(256 << 20);
        assert!(memory.excess() == 0 && memory.admits(1 << 20));
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
