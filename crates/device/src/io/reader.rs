//! The reader that requests use: the ring of the calling worker, or the pool.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use moneta_store::{Cx, Reactors, Slot};
use parking_lot::Mutex;

use super::counters::ReadCounters;
use super::kinds::{Kind, probe};
use super::media::Media;
use super::patience::Patience;
use super::pool::{Pool, Task};
use super::ring::{Ring, RingRead};
use super::shared::RingShared;
use crate::config::Io;
use crate::error::TierError;
use crate::io::running::RunningTime;
use moneta_store::aligned::{Aligned, BLOCK_BYTES};

/// Reads devices for requests. Clones are handles of the same reader.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<RingShared>,
}

impl Reader {
    /// A reader of `media`, with `threads` threads for reads that do not go through a ring. A read that takes longer than
    /// `limit`, by `time`, fails at the next [`Reader::give_up_late`].
    ///
    /// # Errors
    /// If threads cannot be started, or rings are required and the kernel refuses them.
    pub fn new(
        media: Vec<Arc<dyn Media>>,
        io: Io,
        threads: usize,
        limit: Duration,
        time: Arc<RunningTime>,
        counters: Arc<ReadCounters>,
    ) -> Result<Self, TierError> {
        let rings = match io {
            Io::Threads => false,
            Io::Uring => {
                probe().map_err(|source| TierError::Start {
                    what: "io_uring (where the kernel or a sandbox forbids it, choose threads)",
                    source,
                })?;
                true
            }
            Io::Auto => {
                probe().inspect_err(|error| tracing::info!(%error, "no io_uring: reading with threads")).is_ok()
            }
        };
        let patience = Arc::new(Patience::new(limit, time, media.len()));
        let pool = Pool::start(media.clone(), threads, Arc::clone(&counters), Arc::clone(&patience))?;
        let (bells, slot) = (Mutex::default(), Slot::draw());
        Ok(Self { inner: Arc::new(RingShared { media, counters, patience, bells, pool, rings, slot }) })
    }

    /// Begins to read `bytes` from `offset` of a device; both are multiples of 4 KiB. Uses the ring of the calling worker if it
    /// has one, else a thread.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn read(&self, cx: &Cx, device: usize, offset: u64, bytes: usize) -> Read {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64));
        if !self.inner.patience.admits(device) {
            self.inner.counters.errors.fetch_add(1, Relaxed);
            return Read { way: Way::Refused(Arc::clone(&self.inner.patience)) };
        }
        if let Some(ring) = cx.reactor::<Ring>(self.inner.slot)
            && let Some(read) = ring.read(device, offset, bytes)
        {
            return Read { way: Way::Ring(read) };
        }
        Read { way: Way::Pool(self.inner.pool.read(device, offset, bytes)) }
    }

    /// Gives a worker a ring, unless all reads go through threads.
    pub fn attach(&self, worker: &mut Reactors) {
        if self.inner.rings {
            self.attach_one_of(&Kind::ALL, worker);
        }
    }

    /// The same with the first of `kinds` that the kernel gives.
    pub(super) fn attach_one_of(&self, kinds: &[Kind], worker: &mut Reactors) {
        match Ring::new(&self.inner, kinds) {
            Ok(ring) => worker.add(self.inner.slot, Rc::new(ring)),
            Err(error) => tracing::warn!(%error, "no io_uring for a worker: it reads with threads"),
        }
    }

    /// Fails late reads for their waiters: those of threads now, those of rings at their next turn. Never blocks on a device.
    /// Call it every [`look_every`](super::look_every).
    pub fn give_up_late(&self) {
        let inner = &self.inner;
        inner.patience.probe();
        if inner.counters.in_flight.load(Relaxed) == 0 {
            return;
        }
        inner.pool.give_up_late();
        inner.bells.lock().retain(|bell| bell.upgrade().inspect(|bell| bell.ring()).is_some());
    }

    /// How many devices hang: a read was late, and none has completed since.
    pub fn hanging(&self) -> usize {
        self.inner.patience.hanging()
    }

    /// How workers read: `io_uring` or `threads`.
    pub fn kind(&self) -> &'static str {
        if self.inner.rings { "io_uring" } else { "threads" }
    }
}

/// A read in progress. It may be dropped early.
#[must_use]
pub struct Read {
    way: Way,
}

enum Way {
    Ring(RingRead),
    Pool(Arc<Task>),
    /// Its device hangs.
    Refused(Arc<Patience>),
}

impl Future for Read {
    type Output = io::Result<Aligned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.way {
            Way::Ring(read) => read.poll(context),
            Way::Pool(task) => task.poll(context),
            Way::Refused(patience) => Poll::Ready(Err(patience.late())),
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Way::Pool(task) = &self.way {
            task.abandon();
        }
    }
}
