//! Lives of a node on one device: threads that change keys, a crash, and a restart from what the device may hold then.

use std::sync::{Arc, Mutex, RwLock};
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use moneta_flash::testing::{Event, Odds, Replay, VolatileMedia};
use moneta_flash::{Durability, Flash, FlashConfig, Media};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, ErrorKind, Store, StoreError};

use super::super::drive::{
    HEAD, REGION, START, config, delete, device_bytes, finish, get, get_with, numbers, open, set, wait,
};
use super::super::history::{name, version_of};
use super::blocks;
use super::book::{Book, Ended, Held, Seconds};
use super::telling::Crash;

/// A get after a crash. Reads may last for 30 ms at most here, which a busy machine can need for one: those are asked again.
fn get_when_answered(store: &impl Store, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let began = std::time::Instant::now();
    loop {
        match get(store, name) {
            Err(error) if error.kind() == ErrorKind::Timeout && began.elapsed() < Duration::from_secs(60) => {}
            shown => return shown,
        }
    }
}

const THREADS: usize = 3;
/// What a device that stalls costs in the time that the node goes by, in seconds.
const HOUR: u32 = 3600;
/// How long a device stalls: now less than requests wait for it, now more.
const STALL: Duration = Duration::from_millis(60);
/// How long requests wait for a device.
const WAIT_LIMIT: Duration = Duration::from_millis(30);
/// What the error says of a read that was given up; of a change that was given up for want of room it says another thing.
const READ_LATE: &str = "the device of the SSD tier does not answer";
/// Lets tests run for longer: lives are as many times as many.
const ROUNDS: &str = "MONETA_CRASH_ROUNDS";

/// How lives go.
pub struct Plan {
    pub regions: u64,
    pub durability: Durability,
    pub flush_interval: Duration,
    /// One after the other, each from what the one before left.
    pub lives: usize,
    /// Of each thread in a life.
    pub operations: usize,
    /// Of each thread.
    pub keys: usize,
    /// Crashes that are looked at, of each life.
    pub crashes: usize,
    pub odds: Odds,
    /// Any key may be gone.
    pub may_miss: bool,
    /// Flushes among ten thousand operations.
    pub flushes: u32,
    /// Times among ten thousand operations that the device goes away, and comes back after an hour.
    pub stalls: u32,
    /// Crashes, of those that are looked at, after which blocks cannot be read.
    pub damaged: usize,
}

/// A store that keeps its items on a device.
pub trait Stack {
    type Store: Store + Clone + Send + Sync;
    /// Something above the device answers alone while that is off.
    const HAS_RAM: bool;

    fn start(media: Arc<dyn Media>, config: &FlashConfig, clock: &Arc<Clock>) -> (Flash, Self::Store);
}

/// The SSD tier alone.
pub struct Alone;

impl Stack for Alone {
    type Store = Flash;
    const HAS_RAM: bool = false;

    fn start(media: Arc<dyn Media>, config: &FlashConfig, clock: &Arc<Clock>) -> (Flash, Flash) {
        let flash = open(media, config, clock);
        (flash.clone(), flash)
    }
}

/// The SSD tier below very little RAM.
pub struct Below;

impl Stack for Below {
    type Store = Tiered<Memory, Flash>;
    const HAS_RAM: bool = true;

    fn start(media: Arc<dyn Media>, config: &FlashConfig, clock: &Arc<Clock>) -> (Flash, Self::Store) {
        let flash = open(media, config, clock);
        let Versioning { cluster, tombstone_bytes, .. } = config.versioning;
        let memory = MemoryConfig {
            limit: MemoryConfig::limit_min(config.item_max) + if cluster { tombstone_bytes } else { 0 },
            item_max: config.item_max,
            evict: true,
            threads: 1,
            shards: Some(1),
            seed: flash.seed(),
            versioning: config.versioning,
        };
        let memory = Memory::new(&memory, Arc::clone(clock)).expect("the limits are possible");
        let tiers =
            TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: config.item_max, cluster };
        (flash.clone(), Tiered::new(memory, flash, tiers, Arc::clone(clock)))
    }
}

/// Lets lives go by, as many as the plan says or the environment wants.
pub fn live<S: Stack>(plan: &Plan) {
    let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let first = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds {
        let seed = first.map_or_else(|| fastrand::u64(..), |first: u64| first.wrapping_add(round));
        // Threads meet as they like, so a seed repeats what each of them does, and what each crash leaves, but not when.
        println!("MONETA_SEED={seed}");
        Lives::<S>::new(plan, seed).run();
    }
}

struct Lives<'p, S> {
    plan: &'p Plan,
    rng: Rng,
    clock: Arc<Clock>,
    config: FlashConfig,
    stack: std::marker::PhantomData<S>,
}

/// What threads share.
struct World<'w, T> {
    plan: &'w Plan,
    flash: &'w Flash,
    store: &'w T,
    has_ram: bool,
    media: &'w VolatileMedia,
    clock: &'w Clock,
    books: &'w [Mutex<Book>],
    /// Held for writing by a flush, which changes all keys.
    calm: RwLock<()>,
    /// Held while the device is away.
    away: Mutex<()>,
}

impl<'p, S: Stack> Lives<'p, S> {
    fn new(plan: &'p Plan, seed: u64) -> Self {
        let mut config = FlashConfig { flush_interval: plan.flush_interval, durability: plan.durability, ..config() };
        if plan.stalls > 0 {
            config.wait_limit = WAIT_LIMIT;
        }
        let clock = Arc::new(Clock::manual(START));
        Self { plan, rng: Rng::with_seed(seed), clock, config, stack: std::marker::PhantomData }
    }

    fn run(mut self) {
        let mut image = vec![0; device_bytes(self.plan.regions) as usize];
        let books: Vec<_> = (0..THREADS).map(|at| Mutex::new(Book::new(at * self.plan.keys, self.plan.keys))).collect();
        for _ in 0..self.plan.lives {
            let media = VolatileMedia::of(image, self.rng.u64(..));
            let begun = self.work(&media, &books);
            image = self.crash(&media, begun, &books);
            self.clock.advance(5);
        }
    }

    /// One life. Tells how many events there were when it began to serve.
    fn work(&mut self, media: &Arc<VolatileMedia>, books: &[Mutex<Book>]) -> usize {
        let (flash, store) = S::start(Arc::clone(media) as _, &self.config, &self.clock);
        let begun = media.events();
        media.set(self.plan.odds);
        let (plan, clock, has_ram, calm) = (self.plan, &*self.clock, S::HAS_RAM, RwLock::new(()));
        let (flash_ref, store_ref, away) = (&flash, &store, Mutex::new(()));
        let world = World { plan, flash: flash_ref, store: store_ref, has_ram, media, clock, books, calm, away };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (world, rng) = (&world, self.rng.fork());
                scope.spawn(move || world.work(thread, rng));
            }
        });
        let Odds { writes, syncs, worn, .. } = plan.odds;
        let may_be_off = plan.stalls > 0 || writes > 0 || syncs > 0;
        assert!(worn == 0 || may_be_off || !numbers(&flash).off, "some bad blocks turn the tier off");
        flash.crash();
        begun
    }

    /// Looks at what crashes during a life may leave; what the last of them leaves is what the next life begins with.
    fn crash(&mut self, media: &VolatileMedia, begun: usize, books: &[Mutex<Book>]) -> Vec<u8> {
        let log = media.log();
        trailers_follow_syncs(media.replay(), &log);
        let mut moments: Vec<usize> = (0..self.plan.crashes).map(|_| self.rng.usize(begun..=log.len())).collect();
        moments.sort_unstable();
        let (mut replay, mut applied) = (media.replay(), 0);
        let last = self.rng.usize(0..moments.len());
        let damaged_from = moments.len() - self.plan.damaged;
        let mut next = None;
        for (number, moment) in moments.into_iter().enumerate() {
            log[applied..moment].iter().for_each(|event| replay.apply(event));
            applied = moment;
            let image = replay.image(&mut self.rng);
            let crash = Crash { moment, unsynced: replay.cached(), log: &log, image: &image };
            let shown = self.reopen(&crash, books);
            if number >= damaged_from {
                self.reopen_damaged(&crash, &shown, books);
            }
            if number == last {
                next = Some((image, shown));
            }
        }
        let (image, shown) = next.expect("there are crashes");
        books.iter().zip(shown).for_each(|(book, shown)| book.lock().expect("no thread panicked").restart(shown));
        image
    }

    fn reopen(&self, crash: &Crash<'_>, books: &[Mutex<Book>]) -> Vec<Vec<Option<Held>>> {
        let (flash, store) = S::start(VolatileMedia::of(crash.image.to_vec(), 0), &self.config, &self.clock);
        let mut shown = Vec::new();
        for book in books {
            let book = book.lock().expect("no thread panicked");
            let of_key = |key: usize| {
                let shown = get_when_answered(&store, &name(book.number(key))).expect("a get after the crash");
                let (moment, now) = (crash.moment, self.clock.now());
                let checked = book.check_after(key, shown.as_deref(), moment, now, self.plan.may_miss);
                checked.unwrap_or_else(|wrong| {
                    panic!("{}: {wrong}{}", crash.what(), crash.tell(book.number(key)));
                })
            };
            shown.push((0..book.keys()).map(of_key).collect());
        }
        flash.crash();
        shown
    }

    /// The same device with blocks that cannot be read: what shows is what showed, but for the items on these blocks.
    fn reopen_damaged(&mut self, crash: &Crash<'_>, sound: &[Vec<Option<Held>>], books: &[Mutex<Book>]) {
        let image = crash.image;
        let bad = blocks::choose(image, &mut self.rng);
        let media = VolatileMedia::of(image.to_vec(), 0);
        media.spoil(&bad);
        let (flash, store) = S::start(media, &self.config, &self.clock);
        for (book, sound) in books.iter().zip(sound) {
            let book = book.lock().expect("no thread panicked");
            for (key, sound) in sound.iter().enumerate() {
                let (number, sound) = (book.number(key), sound.map(|held| held.version));
                // A bad block may make the read of a key fail.
                let shown = get_when_answered(&store, &name(number)).unwrap_or(None);
                // A torn record makes what lies before it in its block a miss. It counts as the end of the log once
                // nothing sound is left after it, and then what lies before it shows, if it was not lost for sure.
                let is_end = sound.is_none() && shown.is_some();
                if is_end && book.check_after(key, shown.as_deref(), crash.moment, self.clock.now(), false).is_ok() {
                    continue;
                }
                let shown = shown.map(|shown| version_of(number, &shown).unwrap_or_else(|wrong| panic!("{wrong}")));
                assert!(
                    shown == sound || blocks::excuse(image, &bad, number, sound, shown.is_some()),
                    "{}, with bad blocks at {bad:x?}: key {number} shows {shown:?}, not {sound:?}, and is on none of \
                     them; {}{}",
                    crash.what(),
                    book.history(key),
                    crash.tell(number)
                );
            }
        }
        flash.crash();
    }
}

impl<T: Store> World<'_, T> {
    fn work(&self, thread: usize, mut rng: Rng) {
        for _ in 0..self.plan.operations {
            if rng.u32(0..10_000) < self.plan.flushes {
                let _calm = self.calm.write().expect("no thread panicked");
                self.flush();
                continue;
            }
            if rng.u32(0..10_000) < self.plan.stalls {
                self.go_away(&mut rng);
                continue;
            }
            self.spare_regions();
            let _calm = self.calm.read().expect("no thread panicked");
            self.operation(&mut self.books[thread].lock().expect("no thread panicked"), &mut rng);
        }
    }

    /// The device does not answer for a while, which is an hour by the node's clock.
    fn go_away(&self, rng: &mut Rng) {
        let Ok(_away) = self.away.try_lock() else { return };
        let half = || STALL.mul_f32(0.5);
        self.media.stall(true);
        sleep(half().mul_f32(rng.f32() * 2.0));
        self.clock.advance(HOUR);
        sleep(half().mul_f32(rng.f32() * 2.0));
        self.media.stall(false);
    }

    /// Each region that is emptied while a read fails is lost to the tier, and each with a block that takes no writes; without
    /// some it is off for good.
    fn spare_regions(&self) {
        let lost = || numbers(self.flash).regions_retired.max(self.media.worn().len() as u64);
        if self.plan.odds.reads + self.plan.odds.worn > 0 && lost() * 8 >= self.plan.regions {
            self.media.set(Odds { reads: 0, worn: 0, ..self.plan.odds });
        }
    }

    /// Does something, and tells between which seconds.
    fn timed<R>(&self, act: impl FnOnce() -> Result<R, StoreError>) -> (Result<R, StoreError>, Seconds) {
        let before = self.clock.now();
        let ended = act();
        if ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
            // A tier that is off answers at once: there is to be something left to do when it is back.
            sleep(Duration::from_micros(500));
        }
        (ended, (before, self.clock.now()))
    }

    fn operation(&self, book: &mut Book, rng: &mut Rng) {
        let key = rng.usize(0..book.keys());
        let name = name(book.number(key));
        let begun = self.media.events();
        match rng.u8(0..100) {
            0..60 => {
                let (version, lifetime) = (book.next_version(key), lifetime(rng));
                let (ended, now) = self.timed(|| set(self.store, &name, &book.value(key, version), lifetime));
                let held = Held { version, dies: dies(lifetime, now) };
                self.note(book, key, Some(held), "set", &ended.map(drop), begun);
            }
            60..72 => {
                let (ended, _) = self.timed(|| delete(self.store, &name));
                self.note(book, key, None, "delete", &ended.map(drop), begun);
            }
            72..80 => {
                let lifetime = lifetime(rng);
                let request = Retrieve { touch: Some(Exptime(lifetime)), ..Retrieve::default() };
                let (touched, now) = self.timed(|| get_with(self.store, &name, &request));
                let what = what("touch", &touched);
                let shown = touched.map(|shown| self.look(book, key, shown.as_deref(), now)).map_err(drop);
                // It writes the item again.
                book.note_touched(key, shown, dies(lifetime, now), begun, what);
            }
            80..95 => {
                if let (Ok(shown), now) = self.timed(|| get(self.store, &name)) {
                    self.look(book, key, shown.as_deref(), now);
                }
            }
            _ => {
                if wait(self.flash.sync()).is_ok() {
                    book.note_all_sure(self.media.events());
                }
            }
        }
    }

    fn look(&self, book: &Book, key: usize, shown: Option<&[u8]>, now: Seconds) -> Option<u32> {
        let version = book.check_now(key, shown, now, self.plan.may_miss);
        version.unwrap_or_else(|wrong| panic!("before any crash: {wrong}"))
    }

    fn note(
        &self,
        book: &mut Book,
        key: usize,
        to: Option<Held>,
        asked: &str,
        ended: &Result<(), StoreError>,
        begun: usize,
    ) {
        let came_to = match ended {
            Ok(()) => Ended::Well,
            // A delete may have to read, and has changed nothing where that fails, or takes too long on a busy machine.
            Err(error) if self.plan.odds.reads > 0 && error.kind() == ErrorKind::Device => Ended::Unsure,
            Err(error) if error.kind() == ErrorKind::Timeout && error.to_string() == READ_LATE => Ended::Unsure,
            Err(_) => Ended::Badly,
        };
        book.note(key, to, came_to, begun, what(asked, ended));
        if ended.is_ok() && self.plan.durability == Durability::EveryWrite && !self.may_be_off() {
            book.note_sure(key, self.media.events());
        }
    }

    /// Whether an answer may be one of RAM alone, given while the tier below is off.
    fn may_be_off(&self) -> bool {
        self.has_ram && (self.plan.odds.syncs > 0 || self.plan.odds.writes > 0 || self.plan.stalls > 0)
    }

    fn flush(&self) {
        let begun = self.media.events();
        let flushed = finish(self.store.flush(Exptime(0)));
        let (well, what) = (flushed.is_ok(), what("flush", &flushed));
        for book in self.books {
            let mut book = book.lock().expect("no thread panicked");
            for key in 0..book.keys() {
                book.note(key, None, Ended::Well, begun, what.clone());
                if well {
                    book.note_sure(key, self.media.events());
                }
            }
        }
    }
}

/// A request and its answer, in words.
fn what<T>(asked: &str, ended: &Result<T, StoreError>) -> String {
    match ended {
        Ok(_) => asked.into(),
        Err(error) => format!("{asked}, {:?}, {error}", error.kind()),
    }
}

/// A trailer says that the records before it are there, so it may only be written when a sync has followed them.
fn trailers_follow_syncs(mut replay: Replay, log: &[Event]) {
    for (number, event) in log.iter().enumerate() {
        if let Event::Write(offset, bytes) = event
            && bytes.len() >= 64
            && bytes[bytes.len() - 64..].starts_with(b"MONETATR")
        {
            let region = (offset - HEAD) / REGION;
            let unsynced = replay.cached_in(HEAD + region * REGION..HEAD + (region + 1) * REGION);
            // A trailer that is written again after a failed sync has only itself there.
            let others = unsynced.into_iter().filter(|at| at != offset).count();
            assert_eq!(others, 0, "event {number}: a trailer of region {region} before what it tells of is synced");
        }
        replay.apply(event);
    }
}

/// A time to live of every group of lifetimes; some end if the device is away for an hour.
fn lifetime(rng: &mut Rng) -> i64 {
    [0, 0, 0, 300, 7000, 80_000][rng.usize(0..6)]
}

/// When what was stored between these seconds dies.
fn dies(lifetime: i64, stored: Seconds) -> Seconds {
    match u32::try_from(lifetime) {
        Ok(0) | Err(_) => (u32::MAX, u32::MAX),
        Ok(seconds) => (stored.0 + seconds, stored.1 + seconds),
    }
}
