//! The curve of misses over RAM: what the gets of this server would miss with less or more of it ([`moneta_curve`]).
//!
//! All workers share one estimate, since a key's requests come through any of them. A request on a sampled key takes a lock for less
//! than a microsecond. Readers of the curve hold it for as long as it takes to copy the counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use moneta_curve::{Curve, Read, Sampled, Sampler, Served};
use moneta_store::Policy;
use parking_lot::Mutex;

/// Bytes of RAM that an item takes beside its key and value, as the engine in RAM stores most: header, padding, index, what is
/// remembered of it after it has left.
pub(crate) const ITEM_BYTES: usize = 24;

/// The estimate of a server: no memory is taken before it has counted something.
#[derive(Default)]
pub(crate) struct MissCurve(Mutex<Estimate>);

#[derive(Default)]
struct Estimate {
    sampler: Option<Box<Sampler>>,
    /// The Unix second of a flush to come. A later command takes its place.
    flush_at: Option<u32>,
}

/// Which keys a worker tells of. It learns with each of them what the estimate samples by now.
#[derive(Debug)]
pub(crate) struct Choice(AtomicU64);

impl Default for Choice {
    fn default() -> Self {
        Self(AtomicU64::new(Sampled::FIRST.0))
    }
}

impl Choice {
    /// Whether the key with this hash is sampled.
    #[inline(always)]
    pub(crate) fn has(&self, hash: u64) -> bool {
        Sampled(self.0.load(Relaxed)).has(hash)
    }

    fn set(&self, sampled: Sampled) {
        self.0.store(sampled.0, Relaxed);
    }
}

/// The curve at one moment.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) curve: Curve,
    /// Keys used and not deleted since, and bytes of RAM for their items.
    pub(crate) footprint: (u64, u64),
    /// Bytes of memory that the estimate takes.
    pub(crate) memory: usize,
    /// One key in so many is counted from now on.
    pub(crate) sampled_one_in: u64,
}

impl Estimate {
    /// Lets a flush take effect whose second has come.
    fn settle(&mut self, now: u32) {
        if self.flush_at.take_if(|second| *second <= now).is_some()
            && let Some(sampler) = &mut self.sampler
        {
            sampler.delete_all();
        }
    }
}

impl MissCurve {
    /// A request on a sampled key at the Unix second `now`; `served` tells what gets there were until then.
    fn with(&self, now: u32, served: impl Fn() -> Served, change: impl FnOnce(&mut Sampler)) -> Sampled {
        let mut estimate = self.0.lock();
        if estimate.flush_at.is_some() {
            estimate.settle(now);
        }
        let sampler = estimate.sampler.get_or_insert_with(|| Box::new(Sampler::new(now, served())));
        if sampler.is_due(now) {
            sampler.age(now, served());
        }
        change(sampler);
        sampler.sampled()
    }

    /// All items are deleted at the Unix second `second`: at once if that is not after `now`.
    pub(crate) fn flush(&self, second: u32, now: u32) {
        let mut estimate = self.0.lock();
        estimate.flush_at = Some(second);
        estimate.settle(now);
    }

    /// Forgets everything, and gives its memory back.
    pub(crate) fn forget(&self) {
        self.0.lock().sampler = None;
    }

    /// The curve at the Unix second `now`, where these gets were served until then; `None` if nothing was counted.
    pub(crate) fn told(&self, now: u32, served: Served) -> Option<Told> {
        let mut estimate = self.0.lock();
        estimate.settle(now);
        let sampler = estimate.sampler.as_deref()?;
        Some(Told {
            curve: sampler.curve(served),
            footprint: sampler.footprint(),
            memory: sampler.memory(),
            sampled_one_in: sampler.sampled().one_in(),
        })
    }

    /// A request on a sampled key, told by a worker with this choice.
    pub(crate) fn note(&self, now: u32, served: impl Fn() -> Served, policy: Policy, choice: &Choice, noted: Noted) {
        choice.set(self.with(now, served, |sampler| match noted {
            Noted::Read { hash, size } if policy == Policy::Online => {
                sampler.read(hash, now, size.map_or(Read::Miss, |size| Read::Hit(bytes(size))));
            }
            // It brings nothing into RAM, and no more RAM would make it faster for long.
            Noted::Read { size, .. } => sampler.skip(size.is_some()),
            Noted::Wrote { hash, size, expires } => sampler.write(hash, bytes(size), expires),
            Noted::Changed { hash, more, expires } => {
                sampler.change(hash, u32::try_from(more).unwrap_or(u32::MAX), expires);
            }
            Noted::Deleted { hash } => sampler.delete(hash),
        }));
    }
}

/// What became of a sampled key. Sizes are bytes of key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noted {
    /// A get; with the item's size, if it is a hit.
    Read { hash: u64, size: Option<usize> },
    /// Its item was replaced.
    Wrote { hash: u64, size: usize, expires: u32 },
    /// Its item, if it is there, got so many more bytes, or another expiry, or was only used.
    Changed { hash: u64, more: usize, expires: Option<u32> },
    /// Its item was deleted.
    Deleted { hash: u64 },
}

impl std::fmt::Debug for MissCurve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MissCurve").finish_non_exhaustive()
    }
}

/// Bytes of RAM of an item.
fn bytes(size: usize) -> u32 {
    u32::try_from(size + ITEM_BYTES).unwrap_or(u32::MAX)
}
