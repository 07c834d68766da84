//! A device with a volatile cache: writes since the last sync may be lost, torn, or reordered.
//!
//! A write is not durable until a sync that began after it has succeeded. So after a power loss each sector written since then
//! holds its old contents or those of any one of the writes. A failed sync makes that choice at once: later syncs cover only
//! later writes.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::io::Media;

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;
/// Bytes that a device reads as a unit.
const BLOCK: u64 = 4096;

/// End of the superblocks, which do not wear.
const HEAD: u64 = 1 << 20;

/// Odds of failures: one in this many; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    /// Of reads that fail.
    pub reads: u32,
    /// Of writes that fail; some sectors of them may be written all the same.
    pub writes: u32,
    /// Of writes after the first MiB that meet a block which goes bad: it takes no write from then on.
    pub worn: u32,
    /// Of syncs that fail.
    pub syncs: u32,
    /// After a sync that failed reads show what is on the device, not what was in its cache.
    pub forgets: bool,
    /// How long a write or a sync takes at most.
    pub pause: Duration,
}

/// Something that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written there, into the cache.
    Write(u64, Vec<u8>),
    /// Everything before is on the device.
    Sync,
    /// A sync failed: of everything before, this is on the device, and the rest never will be.
    Lost(Vec<(u64, Vec<u8>)>),
}

/// The durable contents of a device, and its cache.
#[derive(Clone)]
pub struct Replay {
    image: Vec<u8>,
    /// Writes since the last sync, in order.
    cached: Vec<(u64, Vec<u8>)>,
}

impl Replay {
    /// A device whose durable contents are `image`.
    pub fn new(image: Vec<u8>) -> Self {
        Self { image, cached: Vec::new() }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Write(offset, bytes) => self.cached.push((*offset, bytes.clone())),
            Event::Sync => {
                let cached = std::mem::take(&mut self.cached);
                cached.iter().for_each(|(offset, bytes)| put(&mut self.image, *offset, bytes));
            }
            Event::Lost(kept) => {
                self.cached.clear();
                kept.iter().for_each(|(offset, bytes)| put(&mut self.image, *offset, bytes));
            }
        }
    }

    /// How many writes are only in the cache.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Offsets of the writes to a part of the device that are only in the cache.
    pub fn cached_in(&self, part: std::ops::Range<u64>) -> Vec<u64> {
        self.cached.iter().map(|(offset, _)| *offset).filter(|offset| part.contains(offset)).collect()
    }

    /// A possible state of the device after a power loss now.
    pub fn image(&self, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.image.clone();
        survivors(&self.cached, rng).iter().for_each(|(offset, bytes)| put(&mut image, *offset, bytes));
        image
    }
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    image[start..start + bytes.len()].copy_from_slice(bytes);
}

/// The writes of a cache that survive: each whole, in part, or not at all, and an earlier one may overwrite a later one.
fn survivors(cached: &[(u64, Vec<u8>)], rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
    let mut order: Vec<usize> = (0..cached.len()).collect();
    if rng.bool() {
        rng.shuffle(&mut order);
    }
    // Devices differ: some lose nearly all writes, some nearly none, some a single one.
    let (lost, torn) = [(2, 1), (8, 1), (1, 0), (5, 3), (9, 1)][rng.usize(0..5)];
    let one = rng.usize(0..4 * cached.len().max(1));
    let mut kept = Vec::new();
    for number in order {
        let (offset, bytes) = &cached[number];
        let fate = rng.u8(0..10);
        if number == one || fate < lost {
            continue;
        }
        if fate >= lost + torn {
            kept.push((*offset, bytes.clone()));
            continue;
        }
        let of = rng.u8(1..10);
        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
            if rng.u8(0..10) < of {
                kept.push((offset + (sector * SECTOR) as u64, bytes.to_vec()));
            }
        }
    }
    kept
}

/// A device in RAM that records all events and fails at random.
pub struct VolatileMedia {
    bytes: u64,
    before: Vec<u8>,
    // Held for an event, so that the order of the log is the order on the device.
    state: Mutex<VolatileState>,
    answers: Condvar,
}

struct VolatileState {
    /// What reads show.
    view: Vec<u8>,
    log: Vec<Event>,
    now: Replay,
    odds: Odds,
    rng: Rng,
    failed: u64,
    /// Blocks that cannot be read, by their offsets.
    bad: Vec<u64>,
    /// Blocks that take no writes.
    worn: Vec<u64>,
    /// Writes and syncs wait.
    stalls: bool,
}

impl VolatileMedia {
    /// A device whose durable contents are `image`; `seed` determines its failures.
    pub fn of(image: Vec<u8>, seed: u64) -> Arc<Self> {
        let state = VolatileState {
            view: image.clone(),
            log: Vec::new(),
            now: Replay::new(image.clone()),
            odds: Odds::default(),
            rng: Rng::with_seed(seed),
            failed: 0,
            bad: Vec::new(),
            worn: Vec::new(),
            stalls: false,
        };
        let (bytes, state) = (image.len() as u64, Mutex::new(state));
        Arc::new(Self { bytes, before: image, state, answers: Condvar::new() })
    }

    /// From now on reads that include one of these blocks fail.
    pub fn spoil(&self, blocks: &[u64]) {
        self.state.lock().bad = blocks.to_vec();
    }

    /// Blocks that fail every write by now.
    pub fn worn(&self) -> Vec<u64> {
        self.state.lock().worn.clone()
    }

    /// Makes writes and syncs wait, or lets them continue; those in progress are not stopped.
    pub fn stall(&self, stalls: bool) {
        self.state.lock().stalls = stalls;
        self.answers.notify_all();
    }

    /// Sets the odds of failures.
    pub fn set(&self, odds: Odds) {
        self.state.lock().odds = odds;
    }

    /// How many events there are.
    pub fn events(&self) -> usize {
        self.state.lock().log.len()
    }

    /// Reads, writes and syncs that were made to fail so far.
    pub fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// Everything that happened.
    pub fn log(&self) -> Vec<Event> {
        self.state.lock().log.clone()
    }

    /// The device as it was before anything happened.
    pub fn replay(&self) -> Replay {
        Replay::new(self.before.clone())
    }

    /// Sleeps for as long as the device needs.
    fn pause(&self) {
        let pause = {
            let mut state = self.state.lock();
            while state.stalls {
                self.answers.wait(&mut state);
            }
            let most = state.odds.pause.as_micros() as u64;
            state.rng.u64(0..=most)
        };
        std::thread::sleep(Duration::from_micros(pause));
    }
}

impl VolatileState {
    fn fails(&mut self, one_in: u32) -> bool {
        let fails = one_in > 0 && self.rng.u32(0..one_in) == 0;
        self.failed += u64::from(fails);
        fails
    }

    fn happen(&mut self, event: Event) {
        if let Event::Write(offset, bytes) = &event {
            put(&mut self.view, *offset, bytes);
        }
        self.now.apply(&event);
        self.log.push(event);
    }
}

impl Media for VolatileMedia {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let one_in = state.odds.reads;
        let end = offset + buffer.len() as u64;
        let is_bad = state.bad.iter().any(|block| *block < end && offset < block + BLOCK);
        state.failed += u64::from(is_bad);
        if is_bad || state.fails(one_in) {
            return Err(Errno::IO.into());
        }
        let start = offset as usize;
        let found = state.view.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.pause();
        let mut state = self.state.lock();
        let Odds { writes, worn, .. } = state.odds;
        if offset >= HEAD && state.fails(worn) {
            let block = state.rng.u64(0..bytes.len() as u64 / BLOCK);
            state.worn.push(offset + block * BLOCK);
        }
        let end = offset + bytes.len() as u64;
        let is_worn = state.worn.iter().any(|block| *block < end && offset < block + BLOCK);
        let fails = is_worn || state.fails(writes);
        let part = if fails { state.rng.usize(0..=bytes.len() / SECTOR) * SECTOR } else { bytes.len() };
        state.happen(Event::Write(offset, bytes[..part].to_vec()));
        if fails { Err(Errno::IO.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.pause();
        let mut state = self.state.lock();
        let one_in = state.odds.syncs;
        if !state.fails(one_in) {
            state.happen(Event::Sync);
            return Ok(());
        }
        let VolatileState { now, rng, .. } = &mut *state;
        let kept = survivors(&now.cached, rng);
        state.happen(Event::Lost(kept));
        if state.odds.forgets {
            state.view = state.now.image.clone();
        }
        Err(Errno::IO.into())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Aligned;

    fn block(of: u8) -> Aligned {
        let mut block = Aligned::zeroed(4096);
        block.fill(of);
        block
    }

    #[test]
    fn what_is_synced_stays_and_what_is_not_may_go_in_any_way() {
        let media = VolatileMedia::of(vec![0; 3 * 4096], 1);
        media.write_at(&block(1), 0).unwrap();
        media.sync().unwrap();
        media.write_at(&block(2), 0).unwrap();
        media.write_at(&block(3), 4096).unwrap();
        let mut replay = media.replay();
        media.log().iter().for_each(|event| replay.apply(event));
        assert_eq!(replay.cached(), 2);
        let mut seen = std::collections::HashSet::new();
        let mut rng = Rng::with_seed(2);
        for _ in 0..5000 {
            let image = replay.image(&mut rng);
            assert!(image[..4096].iter().all(|&byte| byte == 1 || byte == 2));
            assert!(image[8192..].iter().all(|&byte| byte == 0));
            seen.insert((image[0], image[512], image[4096]));
        }
        assert_eq!(seen.len(), 8, "each sector goes or stays by itself");
    }

    #[test]
    fn a_bad_block_fails_the_reads_that_take_it_in_and_no_others() {
        let media = VolatileMedia::of(vec![7; 3 * 4096], 1);
        media.spoil(&[4096]);
        let mut bytes = Aligned::zeroed(2 * 4096);
        assert!(media.read_at(&mut bytes, 0).is_err() && media.read_at(&mut bytes, 4096).is_err());
        assert!(media.read_at(&mut bytes[..4096], 4096).is_err());
        media.read_at(&mut bytes[..4096], 0).unwrap();
        media.read_at(&mut bytes[4096..], 8192).unwrap();
        assert_eq!((media.failed(), &bytes[..]), (3, &[7; 8192][..]));
    }

    #[test]
    fn a_worn_block_fails_the_writes_that_take_it_in_and_no_others() {
        let media = VolatileMedia::of(vec![0; HEAD as usize + 3 * 4096], 1);
        media.set(Odds { worn: 1, ..Odds::default() });
        media.write_at(&block(1), 0).unwrap();
        media.write_at(&block(1), HEAD + 4096).unwrap_err();
        media.set(Odds::default());
        assert_eq!(media.worn(), [HEAD + 4096]);
        let mut two = Aligned::zeroed(2 * 4096);
        media.write_at(&two, HEAD).unwrap_err();
        media.write_at(&block(1), HEAD + 4096).unwrap_err();
        media.write_at(&block(1), HEAD + 8192).unwrap();
        media.read_at(&mut two, HEAD).unwrap();
    }

    #[test]
    fn what_stalls_happens_when_the_device_answers_again() {
        let media = VolatileMedia::of(vec![0; 4096], 1);
        media.stall(true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| media.write_at(&block(1), 0));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!((media.events(), writer.is_finished()), (0, false));
            media.stall(false);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(media.events(), 1);
    }

    #[test]
    fn what_a_failed_sync_lost_no_later_one_brings_back() {
        for forgets in [false, true] {
            let mut lost = 0;
            for seed in 0..50 {
                let media = VolatileMedia::of(vec![0; 4096], seed);
                media.set(Odds { syncs: 1, forgets, ..Odds::default() });
                media.write_at(&block(1), 0).unwrap();
                media.sync().unwrap_err();
                media.set(Odds::default());
                media.sync().unwrap();
                let mut replay = media.replay();
                media.log().iter().for_each(|event| replay.apply(event));
                let image = replay.image(&mut Rng::with_seed(seed));
                lost += usize::from(image[0] == 0);
                let mut shown = block(9);
                media.read_at(&mut shown, 0).unwrap();
                assert_eq!(shown[0], if forgets { image[0] } else { 1 });
            }
            assert!((5..45).contains(&lost), "{lost} of 50 lost");
        }
    }
}
