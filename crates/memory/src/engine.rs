//! The engine as a store: shards behind locks, chosen by the top bits of a key's hash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use moneta_background::Run;
use moneta_index::Walk;
use moneta_pages::{PAGE_BYTES, PagePool, Part};
use moneta_store::component::{Component, Flush, Health, Observe, Observer, Parts, Report, Resize};
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Expiry, ItemRef, Key, KeyHash, Lookup, Op, Outcome, Put, Reactors, ReadSeveral, Rest, Step,
    Store, StoreStats, Unseen, Value, Version, Visit, Walked, Walking, Written, component,
};

use crate::config::{ConfigError, Eviction, MemoryConfig};
use crate::large::Published;
use crate::new_item::NewItem;
use crate::read::{Pinned, Read};
use crate::record::LARGE;
use crate::report::MemoryStats;
use crate::segments::Location;
use crate::shard::{Found, Shard, ShardsShared, location_of};
use crate::sync::Mutex;
use crate::write::{Newer, Order};

/// Classes of the index that one batch of a walk visits.
pub(crate) const WALK_CLASSES: usize = 64;

/// A shard on cache lines that no other shard shares: its neighbours' locks are busy too.
type Slot = CachePadded<Mutex<Shard>>;

/// The memory engine. Clones are handles on the same store.
#[derive(Clone)]
pub struct Memory {
    shards: Arc<[Slot]>,
    /// Shift that leaves of a hash the bits which choose the shard.
    shift: u32,
    seed: KeyHash,
    item_max: usize,
    /// The limit as it was asked for; shards divide it in whole pages.
    limit: Arc<AtomicU64>,
    /// Bytes of it that are not for items.
    beside_items: u64,
    /// Two limits at once would leave some shards with one and some with the other.
    resizing: Arc<Mutex<()>>,
    /// Threads that shrink the store now; all but the last find that another limit was set, and end.
    shrinking: Arc<AtomicUsize>,
    pool: Arc<PagePool>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty store.
    ///
    /// # Errors
    /// If the configuration does not hold together, or the system gives no memory for a page a shard.
    pub fn new(config: &MemoryConfig, clock: Arc<Clock>) -> Result<Self, ConfigError> {
        let count = config.shard_count()?;
        let shared = Arc::new(ShardsShared {
            pool: PagePool::new(),
            clock,
            seed: config.seed,
            versioning: config.versioning,
            count: CachePadded::new(AtomicU64::new(config.versioning.counts_from.unwrap_or(0))),
            item_max: config.item_max,
            evict: config.evict,
        });
        let quota = MemoryConfig::quota(config.for_items(), count);
        let pool = Arc::clone(&shared.pool);
        let shards = (0..count)
            .map(|number| {
                let place = (number as u64, count as u64);
                Ok(Slot::new(Mutex::new(Shard::new(Arc::clone(&shared), place, quota)?)))
            })
            .collect::<std::io::Result<Arc<[Slot]>>>()
            .map_err(ConfigError::Memory)?;
        let shift = 64 - count.trailing_zeros();
        let limit = Arc::new(AtomicU64::new(config.limit));
        Ok(Self {
            shards,
            shift,
            seed: config.seed,
            item_max: config.item_max,
            limit,
            beside_items: config.limit - config.for_items(),
            resizing: Arc::new(Mutex::new(())),
            shrinking: Arc::default(),
            pool,
        })
    }

    /// The same store with another eviction; without this it is [`Eviction::Adaptive`]. To be called before the store is used:
    /// what was learnt is forgotten.
    #[must_use]
    pub fn with_eviction(self, eviction: Eviction) -> Self {
        if eviction == Eviction::S3Fifo {
            self.shards.iter().for_each(|slot| slot.lock().probation.pin());
        }
        self
    }

    /// What this engine counts beside what every store does.
    pub fn numbers(&self) -> MemoryStats {
        let mut numbers = MemoryStats::default();
        self.shards.iter().for_each(|slot| numbers.add(&slot.lock().numbers()));
        numbers
    }

    /// Checks the books of all shards: every record, every segment and every entry of the index accounts for the others.
    /// For a moment at which no request is under way.
    ///
    /// # Errors
    /// Says what does not add up.
    #[cfg(feature = "testing")]
    pub fn verify(&self) -> Result<(), String> {
        self.shards.iter().try_for_each(|slot| slot.lock().verify())
    }

    /// The pages of a shard under a limit, bytes.
    fn quota(&self, limit: u64) -> usize {
        MemoryConfig::quota(limit.saturating_sub(self.beside_items), self.shards.len())
    }

    /// Evicts down, or grows, to `quota` pages a shard, unless the limit is another one than `limit` meanwhile.
    fn approach(&self, limit: u64, quota: usize) {
        let is_current = || self.limit.load(Ordering::Relaxed) == limit;
        let _one_at_a_time = self.resizing.lock();
        for slot in self.shards.iter() {
            // A piece at a time, so that other commands get their turn at the lock.
            while is_current() && slot.lock().approach(quota) {
                std::thread::yield_now();
            }
        }
        self.pool.give_back();
    }

    /// What is read after a `false` is as the shrink left it.
    fn is_shrinking(&self) -> bool {
        self.shrinking.load(Ordering::Acquire) > 0
    }

    /// Waits until the store has come down to the last limit it was given.
    #[cfg(feature = "testing")]
    pub fn settle(&self) {
        while self.is_shrinking() {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // With one shard the shift is 64, and no bit chooses.
        let number = hash.checked_shr(self.shift).unwrap_or(0);
        &self.shards[number as usize]
    }

    #[inline]
    fn store(&self, key: &Key<'_>, value: &[u8], order: &Order<'_>) -> Written {
        let shard = self.shard(key.hash);
        if value.len() > self.item_max {
            return shard.lock().drop_for_oversize(key);
        }
        let small = if value.len() > LARGE { None } else { shard.lock().set(key, value, order) };
        small.unwrap_or_else(|| self.set_large(key, value, order))
    }

    /// A write whose result is large: reserve, copy without the lock, publish.
    #[cold]
    fn set_large(&self, key: &Key<'_>, value: &[u8], order: &Order<'_>) -> Written {
        let shard = self.shard(key.hash);
        loop {
            let reserved = match shard.lock().reserve(key, value, order) {
                Ok(reserved) => reserved,
                Err(written) => return written,
            };
            reserved.fill(value);
            if let Published::Done(written) = shard.lock().publish_reserved(key, value.len(), order, &reserved) {
                return written;
            }
        }
    }

    /// Shows a large item without holding its shard's lock.
    #[cold]
    fn show_large(shard: &Mutex<Shard>, pinned: &Pinned, visitor: &mut dyn Visit) {
        let (first, rest) = pinned.parts.split_first().expect("an item has a first part");
        // SAFETY: the segments are pinned until `unpin` below, and a record of this size is never written in place.
        let first = unsafe { first.as_slice() };
        visitor.item(&ItemRef { meta: pinned.meta, value: Value::split(first, &PinnedRest(rest)) });
        shard.lock().unpin(pinned);
    }

    fn finish(shard: &Mutex<Shard>, read: Read, visitor: &mut dyn Visit) -> Lookup {
        match read {
            Read::Visited => Lookup::Visited,
            Read::Missing(missing) => Lookup::Miss { expired: missing.expired },
            Read::Large(pinned) => {
                Self::show_large(shard, &pinned, visitor);
                Lookup::Visited
            }
        }
    }
}

/// The fragments of a pinned item.
struct PinnedRest<'a>(&'a [Part]);

impl Rest for PinnedRest<'_> {
    fn len(&self) -> usize {
        self.0.iter().map(Part::len).sum()
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        for part in self.0 {
            // SAFETY: the creator of this value keeps the segments pinned while it is shown.
            out.extend_from_slice(unsafe { part.as_slice() });
        }
    }
}

impl Store for Memory {
    #[inline]
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match op {
            Op::Read(request) => self.read(key, request, out),
            Op::Write(value, request) => Step::ended(self.store(key, value, &Order::Write(request))),
            Op::Put(item, Put::Newer { as_of, base }) => self.put_newer(key, item, as_of, base),
            Op::Put(item, how) => Step::ended(self.put(key, item, how)),
            other => self.call_rest(key, other, out),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, keys: &[Key<'_>]) {
        for key in keys {
            self.shard(key.hash).lock().index.prefetch(key.hash);
        }
        for key in keys {
            self.shard(key.hash).lock().prefetch_record(key.hash);
        }
    }

    fn seed(&self) -> KeyHash {
        self.seed
    }
}

impl Memory {
    #[inline]
    fn read(&self, key: &Key<'_>, request: &Retrieve, out: &mut dyn Visit) -> Step {
        let shard = self.shard(key.hash);
        let read = shard.lock().get(key, request, out);
        match read {
            Ok(Read::Visited) => Step::ended(Lookup::Visited),
            Ok(read) => Step::ended(Self::finish(shard, read, out)),
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// What is not worth a place on the way of reads and writes.
    #[inline(never)]
    fn call_rest(&self, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let shard = self.shard(key.hash);
        match op {
            Op::Peek => {
                let read = shard.lock().peek(key, out);
                Step::ended(Self::finish(shard, read, out))
            }
            Op::Delete(request) => Step::ended(shard.lock().delete(key, request)),
            Op::Arithmetic(request) => Step::ended(shard.lock().arithmetic(key, request)),
            Op::Drop => {
                shard.lock().forget(key);
                Step::Done(Ok(Outcome::Done))
            }
            Op::Holds => {
                let read = shard.lock().peek(key, &mut Unseen);
                let held = !matches!(Self::finish(shard, read, &mut Unseen), Lookup::Miss { .. });
                Step::Done(Ok(Outcome::Held(held)))
            }
            // The highest tier there can be: it sees every hit.
            Op::NoteHit => Step::Done(Ok(Outcome::Done)),
            Op::NextCas => Step::Done(Ok(Outcome::Cas(shard.lock().next_version().0))),
            Op::BuriedAs => {
                let version = shard.lock().tombstones.find(key.hash).unwrap_or_default();
                Step::Done(Ok(Outcome::Cas(version.0)))
            }
            Op::Bury(version) => Step::Done(shard.lock().bury(key, version).map(Outcome::Deleted)),
            Op::Read(_) | Op::Write(..) | Op::Put(..) => unreachable!("answered before"),
        }
    }

    #[inline]
    fn put(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Written {
        self.put_as(key, item, &Order::Put(NewItem::of(&item.meta), how))
    }

    #[cold]
    fn put_newer(&self, key: &Key<'_>, item: &ItemRef<'_>, as_of: u64, base: Option<moneta_store::Version>) -> Step {
        let accepted = self.shard(key.hash).lock().accept_version(item.meta.version());
        Step::Done(accepted.map(|()| self.put_as(key, item, &Order::Newer(Newer::new(key, item, as_of, base))).into()))
    }

    #[inline]
    fn put_as(&self, key: &Key<'_>, item: &ItemRef<'_>, order: &Order<'_>) -> Written {
        match item.value.as_slice() {
            Some(value) => self.store(key, value, order),
            None => self.store(key, &item.value.to_vec(), order),
        }
    }

    /// Lets every shard take a flush, and sweeps out what it takes.
    fn take_flush(&self, floor: Floor) {
        for slot in self.shards.iter() {
            slot.lock().floor(floor);
            // A piece at a time, so that other commands get their turn at the lock.
            while slot.lock().sweep_step() {
                std::thread::yield_now();
            }
        }
    }
}

impl Component for Memory {
    fn parts(&self) -> Parts<'_> {
        Parts {
            below: Vec::new(),
            walk: Some(self),
            flush: Some(self),
            resize: Some(self),
            observe: Some(self),
            feed: None,
        }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        // First, so that gauges without it are those of a store that has shrunk.
        let shrinking = self.is_shrinking();
        let mut stats =
            StoreStats { kind: "ram", limit: self.limit.load(Ordering::Relaxed), shrinking, ..StoreStats::default() };
        self.shards.iter().for_each(|slot| stats.add(&slot.lock().census()));
        Report { stats, metrics: self.numbers().samples() }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

impl Flush for Memory {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        // Once for all: the clock may turn on the way from shard to shard.
        let mut first = self.shards[0].lock();
        let now = first.settle();
        if first.shared.versioning.counts_from.is_some() {
            drop(first);
            let moment = Expiry::resolve(delay, now);
            self.shards.iter().for_each(|slot| slot.lock().flush_all(moment));
            return Step::done(());
        }
        // Above what any shard has made or seen.
        let newest = self.shards[1..].iter().map(|slot| slot.lock().newest_version()).max();
        newest.into_iter().for_each(|newest| first.note_version(newest));
        let floor = first.flush(Expiry::resolve(delay, now));
        drop(first);
        self.take_flush(floor);
        Step::done(())
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        self.take_flush(floor);
        Step::done(())
    }

    fn floors(&self) -> Floors {
        self.shards[0].lock().floors
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        let newest = self.shards.iter().map(|slot| slot.lock().newest_version()).max();
        Step::done(newest.unwrap_or_default())
    }

    fn lag(&self) -> u32 {
        0
    }
}

/// Where a walk stands.
#[derive(Default)]
struct WalkPlace {
    shard: usize,
    /// The walk of the shard's index; `None` before its first batch.
    walk: Option<Walk>,
}

impl component::Walk for Memory {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let mut place: Box<WalkPlace> = cursor.take().unwrap_or_default();
        let mut shard = self.shards[place.shard].lock();
        shard.settle();
        let walk = place.walk.get_or_insert_with(|| shard.index.begin_walk());
        if !shard.walk(walk, WALK_CLASSES, show) {
            drop(shard);
            *place = WalkPlace { shard: place.shard + 1, walk: None };
            if place.shard == self.shards.len() {
                return Walking::End;
            }
        }
        cursor.keep(place);
        Walking::More
    }
}

impl Resize for Memory {
    fn fits(&self, limit: u64) -> bool {
        let quota = self.quota(limit);
        quota >= MemoryConfig::quota_min(self.item_max) && quota <= Location::SEGMENTS_MAX
    }

    fn resize(&self, limit: u64) -> bool {
        if !self.fits(limit) {
            return false;
        }
        let quota = self.quota(limit);
        let before = self.limit.swap(limit, Ordering::Relaxed);
        if limit == before && self.is_shrinking() {
            return true;
        }
        if limit >= before {
            self.approach(limit, quota);
            return true;
        }
        // The caller is a worker or the thread that answers signals, and has others to serve.
        let shrinking = self.clone();
        self.shrinking.fetch_add(1, Ordering::Relaxed);
        let shrink = move |_: &Run| {
            shrinking.approach(limit, quota);
            shrinking.shrinking.fetch_sub(1, Ordering::Release);
        };
        if moneta_background::start("resize", shrink).is_err() {
            self.approach(limit, quota);
            self.shrinking.fetch_sub(1, Ordering::Release);
        }
        true
    }
}

impl Observe for Memory {
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.shards.iter().for_each(|slot| slot.lock().observer.clone_from(&observer));
    }
}

impl Shard {
    fn walk(&self, walk: &Walk, classes: usize, show: &mut dyn FnMut(&Walked<'_>)) -> bool {
        let now = self.shared.clock.now();
        (0..classes).all(|_| {
            self.index.walk(walk, |position, payload| {
                let location = location_of(payload);
                let header = self.segments.header(location);
                if header.expiry.is_dead(now) {
                    return;
                }
                let found = Found { position, location, hits: 0, header };
                if self.sweep.is_some() && self.is_flushed(&found) {
                    return;
                }
                show(&Walked {
                    key: self.key(&found),
                    meta: self.meta(&found),
                    value_bytes: header.value_length as usize,
                    size: header.value_start() + header.value_length as usize,
                });
            })
        })
    }

    fn census(&self) -> StoreStats {
        StoreStats {
            items: self.index.len() as u64,
            bytes: self.segments.live_and_dead().0,
            tail_idle: self.tail_idle(),
            tombstones: self.tombstones.len() as u64,
            tombstone_bytes: self.tombstones.memory() as u64,
            horizon: self.tombstones.horizon(),
            ..self.stats
        }
    }

    fn numbers(&self) -> MemoryStats {
        MemoryStats {
            index_bytes: (self.index.pages() * PAGE_BYTES) as u64,
            log_bytes: (self.segments.len() * PAGE_BYTES) as u64,
            ghost_bytes: (self.ghosts.pages() * PAGE_BYTES) as u64,
            dead_bytes: self.segments.live_and_dead().1,
            ..self.numbers
        }
    }
}
