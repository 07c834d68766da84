//! The engine as a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use moneta_store::component::{Component, Flush, Health, Observe, Observer, Parts, Report, Walk};
use moneta_store::feed::Feed;
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors, Versioning};
use moneta_store::{
    Clock, Cursor, Cx, Expiry, Key, KeyHash, Op, Pending, Reactors, ReadSeveral, Step, Store, Version, Visit, Walked,
    Walking,
};
use parking_lot::{Mutex, RwLock};

use crate::config::FlashConfig;
use crate::counters::FlashCounters;
use crate::deletes::debts::Debts;
use crate::deletes::floors::KnownFloors;
use crate::deletes::remembered::Deletes;
use crate::feed::telling::Telling;
use crate::flusher::queue::FlushQueue;
use crate::flusher::round::Flusher;
use crate::flusher::waiting::Goal;
use crate::for_flusher::ForFlusher;
use crate::index::location::BLOCKS_MAX;
use crate::index::shard::{Room, Shard};
use crate::inner::{Inner, Slot};
use crate::log::regions::Regions;
use crate::log::sequence::{Sequence, floor_at};
use crate::log::writer::{Log, REGIONS_LEAST};
use crate::operations::attempt::pend;
use crate::presence::Presence;
use crate::reclaim::reclaimer::Reclaimer;
use crate::reclaim::work::Reclaim;
use crate::start::recovery;
use crate::start::snapshot;
use crate::threads::{Joined, Threads};
use moneta_device::TierError;
use moneta_device::devices::{Devices, Opened};
use moneta_device::format::BLOCK;
use moneta_device::io::running::RunningTime;
use moneta_device::io::{ReadCounters, Reader, look_every};
use moneta_device::regions::identity::Shards;

/// The SSD engine. Clones are handles on the same store; dropping the last one writes out what is in RAM.
#[derive(Clone)]
pub struct Flash {
    pub(crate) inner: Arc<Inner>,
    // Ends the threads when the last handle is dropped; they hold `inner` themselves.
    _end: Arc<End>,
}

struct End(Arc<Inner>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.shut_down(true);
    }
}

impl std::fmt::Debug for Flash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Flash").field("regions", &self.inner.regions.len()).finish_non_exhaustive()
    }
}

impl Flash {
    /// Opens a tier, or creates one on blank devices, and recovers its index. Returns when all items can be served.
    ///
    /// # Errors
    /// If a device cannot be used, or the system lacks memory or disk space. Data on the devices is then unchanged.
    pub fn open(config: &FlashConfig, clock: Arc<Clock>) -> Result<Self, TierError> {
        Self::start(Devices::open(&config.tier())?, config, clock)
    }

    /// Opens a tier on devices that a test provides.
    ///
    /// # Errors
    /// As [`Flash::open`].
    #[cfg(feature = "testing")]
    pub fn open_on(
        media: Vec<Arc<dyn moneta_device::io::Media>>,
        config: &FlashConfig,
        clock: Arc<Clock>,
    ) -> Result<Self, TierError> {
        Self::start(Devices::on(media, &config.tier())?, config, clock)
    }

    fn start(opened: Opened, config: &FlashConfig, clock: Arc<Clock>) -> Result<Self, TierError> {
        let Opened { devices, fresh, why_fresh } = opened;
        if let Some(why) = &why_fresh {
            tracing::warn!("the SSD tier starts empty: {why}");
        }
        let devices = Arc::new(devices);
        let region_bytes = devices.region_bytes();
        check_size(devices.regions(), region_bytes)?;
        check_retired(devices.regions(), devices.retired().len())?;
        let regions = Arc::new(Regions::new(devices.regions(), region_bytes));
        let counters = Arc::new(FlashCounters::default());
        let reclaim = Arc::<Reclaim>::default();
        let state = devices.state();
        // A tier that starts empty over an older one must not reuse its CAS values either.
        let is_new = fresh && why_fresh.is_none();
        // Behind a clean stop all that was given out is known.
        let ahead = if state.clean_stop == 0 { config.versioning.skew_max } else { 0 };
        let counts = config.versioning.counts_from.is_some() && !Sequence::has_versions(state.sequence_floor);
        let floor = if is_new || counts { 0 } else { floor_at(clock.millis(), ahead) }.max(state.sequence_floor);
        let (tier, table) = ((devices.tier(), devices.seed()), Arc::clone(&regions));
        let (counted, reclaimed) = (Arc::clone(&counters), Arc::clone(&reclaim));
        let time = Arc::new(RunningTime::new());
        let queue = FlushQueue::new(config.wait_limit, Arc::clone(&time));
        let Versioning { origin, salt, .. } = config.versioning;
        let sequence = if counts { Sequence::counted } else { Sequence::above };
        let sequence = sequence(floor, origin, salt, Arc::clone(&clock));
        let log = Arc::new(Log::new(table, counted, reclaimed, tier, region_bytes, sequence, queue));
        let reads = Arc::new(ReadCounters::default());
        let (media, limit) = (devices.all().to_vec(), config.wait_limit);
        let reader = Reader::new(media, config.io, config.io_threads, limit, time, Arc::clone(&reads))?;
        let (shards, identities) = make_shards(devices.shard_bits(), config.index_bytes)?;
        let (clock_now, opened) = (clock.now(), clock.millis());
        let deletes = Deletes::new(&config.versioning, shards.len(), clock.millis());
        let inner = Arc::new(Inner {
            shards,
            identities,
            config: config.clone(),
            devices,
            regions,
            log,
            reader,
            reads,
            counters,
            clock,
            reclaim,
            presence: Presence::default(),
            debts: Debts::default(),
            observer: RwLock::new(None),
            flush_at: AtomicU32::new(state.flush_at),
            flushing: Mutex::new(()),
            floors: KnownFloors::new(&state, clock_now),
            deletes,
            from_snapshot: AtomicBool::new(false),
            opened,
            telling: Telling::default(),
            reclaimer: Threads::default(),
            flusher: Threads::default(),
        });
        let started = Instant::now();
        recovery::recover(&inner, fresh)?;
        let took = started.elapsed().as_micros() as u64;
        inner.counters.recovery_microseconds.store(took, Ordering::Relaxed);
        inner.settle();
        inner.start_threads()?;
        tracing::info!(
            regions = inner.regions.len(),
            free = inner.regions.free(),
            items = inner.items(),
            milliseconds = took / 1000,
            index_limit_mib = config.index_bytes >> 20,
            io = inner.reader.kind(),
            "the SSD tier is open"
        );
        Ok(Self { _end: Arc::new(End(Arc::clone(&inner))), inner })
    }

    /// Whether CAS values are counted: asked to ([`Versioning::counts_from`]), and of a tier that has kept no versions before.
    pub fn counts(&self) -> bool {
        self.inner.log.sequence.counts()
    }

    /// Completes when everything accepted so far is on the devices.
    pub fn sync(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        pend(async move { inner.log.queue.wait(Goal::Durable(inner.log.appended())).await })
    }

    /// Stops as a killed process does: nothing more is written.
    #[cfg(feature = "testing")]
    pub fn crash(self) {
        self.inner.shut_down(false);
    }
}

/// Refuses more blocks than a location can address.
fn check_size(regions: usize, region_bytes: usize) -> Result<(), TierError> {
    if regions * (region_bytes / BLOCK) > BLOCKS_MAX {
        let reason = "a tier has at most 4 TiB in all: give its devices smaller sizes, or run another node on the rest";
        return Err(TierError::Config(reason.into()));
    }
    Ok(())
}

/// Refuses a tier with too few usable regions left.
fn check_retired(regions: usize, retired: usize) -> Result<(), TierError> {
    if regions - retired < REGIONS_LEAST {
        return Err(TierError::Config(format!(
            "{retired} of the {regions} regions of the SSD tier have bad blocks, and at least {REGIONS_LEAST} are needed: \
             replace the device, or give it a larger size"
        )));
    }
    Ok(())
}

fn make_shards(bits: u32, index_bytes: u64) -> Result<(Box<[Slot]>, Shards), TierError> {
    let room = Room::new(index_bytes, 1 << bits);
    let slot = |_| Ok(Slot::new(Mutex::new(Shard::new(Arc::clone(&room))?)));
    let shards: std::io::Result<_> = (0..1 << bits).map(slot).collect();
    let shards = shards.map_err(|source| TierError::Start { what: "the index", source })?;
    Ok((shards, Shards::new(bits)))
}

impl Inner {
    fn start_threads(self: &Arc<Self>) -> Result<(), TierError> {
        let (devices, counters) = (Arc::clone(&self.devices), Arc::clone(&self.counters));
        let engine = Box::new(ForFlusher(Arc::downgrade(self)));
        let flusher = Flusher::new(Arc::clone(&self.log), devices, counters, self.config.flush_interval, engine);
        self.flusher.start("flash-flush", move || flusher.run())?;
        let (queue, reader) = (Arc::clone(&self.log.queue), self.reader.clone());
        let every = look_every(self.config.wait_limit);
        self.flusher.start("flash-watch", move || {
            queue.watch(every, || {
                reader.give_up_late();
                if reader.hanging() > 0 {
                    queue.look();
                }
            });
        })?;
        let reclaimer = Reclaimer::new(Arc::clone(self));
        self.reclaimer.start("flash-reclaim", move || reclaimer.run())
    }

    /// Ends the threads; with `flush`, after everything and a snapshot of the index have been written. Abandons what is not done
    /// within the stop limit.
    fn shut_down(self: &Arc<Self>, flush: bool) {
        let deadline = Instant::now() + self.config.stop_limit;
        self.reclaim.stop();
        if flush {
            // Before the flusher: the reclaimer may wait for it while it ends.
            self.reclaimer.join(deadline);
        }
        self.log.queue.stop(flush);
        let joined = self.flusher.join(deadline);
        if joined == Joined::Late {
            let seconds = self.config.stop_limit.as_secs();
            tracing::error!(seconds, "a device did not take in time what was in RAM alone: what it lacks is lost");
            self.log.queue.stop(false);
        }
        self.reclaimer.join(deadline);
        if joined == Joined::Ended && flush && !self.log.queue.is_off() {
            self.sweep_flushed(|| Instant::now() < deadline);
            self.save_snapshot(deadline);
        }
    }

    fn save_snapshot(self: &Arc<Self>, deadline: Instant) {
        let (inner, saver) = (Arc::clone(self), Threads::default());
        let started = saver.start("flash-snapshot", move || snapshot::save(&inner));
        if let Err(error) = started {
            tracing::warn!(%error, "no index snapshot is kept; the next start reads footers");
        } else if saver.join(deadline) == Joined::Late {
            tracing::warn!("the index snapshot is not written in time; the next start reads footers");
        }
    }
}

impl Store for Flash {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.inner.call(cx, key, op, out)
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.inner.devices.key_hash()
    }
}

impl Component for Flash {
    /// No resize: the size of the devices limits this store, and that cannot change at run time.
    fn parts(&self) -> Parts<'_> {
        let feed = self.inner.config.feed.then_some(self as &dyn Feed);
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: Some(self), feed }
    }

    fn attach(&self, worker: &mut Reactors) {
        self.inner.reader.attach(worker);
    }

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        self.inner.report()
    }

    fn health(&self, _: Vec<Health>) -> Health {
        let mut health = Health::default();
        if self.inner.log.queue.is_off() {
            let why = if self.inner.log.queue.is_worn_out() {
                "the SSD tier is off: most of its regions have bad blocks; RAM goes on serving"
            } else {
                "the SSD tier is off after a device error; RAM goes on serving"
            };
            health.notes.push(why.into());
        }
        if self.inner.reader.hanging() > 0 {
            health
                .notes
                .push("a device of the SSD tier does not answer reads: what is on it alone cannot be read".into());
        }
        health.notes.extend(self.inner.presence.notes());
        health
    }

    fn close(&self) {
        self.inner.shut_down(true);
    }
}

impl Walk for Flash {
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cx, cursor, show)
    }
}

impl Flush for Flash {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        let now = self.inner.settle();
        if self.inner.log.sequence.counts() {
            return self.inner.flush_all(Expiry::resolve(delay, now), now);
        }
        let version = self.inner.log.sequence.next();
        // All that is here is older.
        self.inner.take_floor(Floor::new(version, Expiry::resolve(delay, now), now), Version::ZERO)
    }

    fn pending(&self) -> Option<u32> {
        self.inner.settle();
        Some(self.inner.flush_at.load(Ordering::Acquire)).filter(|moment| *moment != 0)
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        self.inner.take_floor(floor, self.inner.log.sequence.newest())
    }

    fn floors(&self) -> Floors {
        self.inner.settle();
        self.inner.floors.known()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(self.inner.log.sequence.newest())
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl Observe for Flash {
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        *self.inner.observer.write() = observer;
    }
}
