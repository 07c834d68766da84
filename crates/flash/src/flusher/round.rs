//! The flusher's thread: what a round writes, and what follows from its success or failure.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::queue::{FlushQueue, Round, Stop};
use super::strays::Strays;
use super::tails::{Stage, Tails};
use super::unsynced::Unsynced;
use super::writing::{Snapshot, Writer};
use crate::counters::{FlashCounters, count};
use crate::log::sealed::Sealed;
use crate::log::writer::{GROUPS, Log};
use moneta_device::devices::Devices;

/// Delay before devices are tried again after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Delay before the next round if there was no room for owed tombstones.
const PAY_AGAIN: Duration = Duration::from_millis(20);
/// Rounds that a stop takes at most until copies of what a device did not take are durable.
const LAST_ROUNDS: u32 = 8;

/// The thread that writes.
pub(crate) struct Flusher {
    log: Arc<Log>,
    writer: Writer,
    counters: Arc<FlashCounters>,
    interval: Duration,
    engine: Box<dyn Engine>,
    /// Full regions whose records are not all written.
    sealed: VecDeque<Sealed>,
    tails: Tails,
    strays: Strays,
    unsynced: Unsynced,
    /// Owed tombstones are left for want of room.
    unpaid: bool,
}

/// Wakes all waiting requests when the flusher's thread ends, also by a panic.
struct End(Arc<FlushQueue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Flusher {
    pub(crate) fn new(
        log: Arc<Log>,
        devices: Arc<Devices>,
        counters: Arc<FlashCounters>,
        interval: Duration,
        engine: Box<dyn Engine>,
    ) -> Self {
        let writer = Writer { log: Arc::clone(&log), devices: Arc::clone(&devices), counters: Arc::clone(&counters) };
        let (tails, unsynced) = (Tails::default(), Unsynced::new(&devices));
        let (sealed, strays) = (VecDeque::new(), Strays::default());
        Self { log, writer, counters, interval, engine, sealed, tails, strays, unsynced, unpaid: false }
    }

    pub(crate) fn run(mut self) {
        let queue = Arc::clone(&self.log.queue);
        let _end = End(Arc::clone(&queue));
        let mut next_tick = Instant::now() + self.interval;
        let mut last_rounds = LAST_ROUNDS;
        loop {
            if queue.is_off() {
                next_tick = next_tick.min(Instant::now() + RETRY);
            } else if self.unpaid || !self.strays.is_empty() {
                next_tick = next_tick.min(Instant::now() + PAY_AGAIN);
            }
            let round = queue.next_round(next_tick);
            if round.stop == Stop::Now {
                return;
            }
            if round.tick {
                next_tick = Instant::now() + if queue.is_off() { RETRY } else { self.interval };
            }
            if let Err(error) = self.round(round) {
                count(&self.counters.io_errors, 1);
                queue.turn_off(&error);
            }
            // A buffer may have come back.
            queue.note_room();
            if round.stop == Stop::AfterFlush {
                last_rounds -= 1;
                if self.strays.is_empty() || queue.is_off() {
                    return;
                }
                if last_rounds == 0 {
                    queue.turn_off(&io::Error::other("there is no room for what a device does not take"));
                    return;
                }
            }
        }
    }

    fn round(&mut self, round: Round) -> io::Result<()> {
        self.allow_more()?;
        let number = self.log.appended();
        // After the number, which counts owed tombstones, and before the snapshot of the open regions.
        self.unpaid = !self.engine.pay();
        let open = if round.commit || round.eager { self.snapshots() } else { Vec::new() };
        let (sealed, jobs) = self.log.queue.take();
        self.sealed.extend(sealed);
        // Before the writes: a job may record a flush, and the records that the writes make durable may be newer than it.
        jobs.into_iter().for_each(|job| job());
        self.unsynced.prune();
        self.strays.prune();
        self.unsynced.restore(&self.writer, &mut self.tails)?;
        self.write_sealed()?;
        let mut wrote = false;
        for open in &open {
            let mut bad = self.strays.blocks(&open.buffer);
            let written = self.writer.write_open(open, round.commit, &mut self.unsynced, &mut bad);
            self.strays.note(&self.writer, open.region, &open.buffer, bad)?;
            wrote |= written?;
        }
        self.strays.write(&self.writer, &mut self.unsynced)?;
        self.strays.move_out(&self.writer, &*self.engine);
        let is_owed = wrote || !self.tails.is_empty() || self.log.queue.durable() < number;
        if round.commit && is_owed {
            self.sync()?;
        }
        if round.commit {
            self.committed(number)?;
        }
        self.strays.release(&self.writer, &mut self.unsynced, &mut self.tails);
        self.tails.write(&self.writer)?;
        if round.stop == Stop::AfterFlush && !self.tails.is_empty() {
            self.sync()?;
        }
        Ok(())
    }

    /// Has superblocks allow more sequence numbers of regions, and counted stamps, before the last ones are given out: what a
    /// crash leaves of a region whose number was given out again would pass for what the later one holds.
    fn allow_more(&self) -> io::Result<()> {
        let (regions, stamps) = (self.log.regions.wanted_limit(), self.log.sequence.wanted_floor());
        if regions.is_none() && stamps.is_none() {
            return Ok(());
        }
        let devices = &self.writer.devices;
        let mut state = devices.state();
        state.region_floor = regions.unwrap_or(state.region_floor);
        state.sequence_floor = stamps.unwrap_or(state.sequence_floor);
        self.log.queue.health.watch(|| devices.save_twice(&state))?;
        regions.into_iter().for_each(|limit| self.log.regions.allow_sequences(limit));
        stamps.into_iter().for_each(|floor| self.log.sequence.allow(floor));
        Ok(())
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let open = |group| {
            let snapshot = |open: &mut crate::log::writer::Open| Snapshot {
                region: open.region,
                buffer: Arc::clone(&open.buffer),
                end: open.end,
            };
            self.log.with_open(group, |open| open.map(snapshot))
        };
        (0..GROUPS).filter_map(open).collect()
    }

    /// Writes the records of full regions and releases their buffers.
    fn write_sealed(&mut self) -> io::Result<()> {
        while let Some(first) = self.sealed.front() {
            let is_behind = self.sealed.len() > 1;
            let mut bad = self.strays.blocks(&first.buffer);
            let written = self.writer.write_sealed(first, is_behind, &mut self.unsynced, &mut bad);
            self.strays.note(&self.writer, first.region, &first.buffer, bad)?;
            written?;
            let sealed = self.sealed.pop_front();
            if let Some(sealed) = sealed.and_then(|sealed| self.strays.take(sealed)) {
                self.unsynced.forget(&sealed.buffer);
                self.tails.take(&self.writer, sealed, Stage::Unsynced);
            }
            self.log.queue.note_room();
            if self.tails.are_many() {
                self.sync()?;
                self.tails.write(&self.writer)?;
            }
        }
        Ok(())
    }

    /// Returns when everything written so far is on the devices.
    fn sync(&mut self) -> io::Result<()> {
        let synced = self.unsynced.sync(&self.writer);
        match &synced {
            Ok(()) => self.tails.note_synced(),
            Err(_) => self.tails.distrust(&self.writer),
        }
        synced
    }

    /// A round that writes everything has succeeded.
    fn committed(&self, number: u64) -> io::Result<()> {
        let queue = &self.log.queue;
        if queue.is_off() || queue.health.is_outdated() {
            // Before writes are accepted again or anything is declared durable: this flushes the stale versions.
            self.engine.came_back();
            queue.take_jobs().into_iter().for_each(|job| job());
            if queue.health.is_outdated() {
                return Err(io::Error::other("what has to go cannot be written to the superblocks"));
            }
            queue.health.watch(|| self.engine.save_untold())?;
            if queue.health.turn_on() {
                tracing::warn!("the devices of the SSD tier answer again");
            }
        }
        // What came until the tier was on again.
        queue.health.watch(|| self.engine.save_untold())?;
        if !self.unpaid && self.strays.allow(number) {
            queue.note_durable(number);
        }
        Ok(())
    }
}
