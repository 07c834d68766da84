//! The engine's metrics and statistics.

use std::sync::atomic::Ordering;

use moneta_store::{FlashStats, StoreStats};

use crate::counters::read;
use crate::engine::Inner;
use crate::regions::State;
use crate::sequence::second_of;

impl Inner {
    pub(crate) fn stats(&self) -> StoreStats {
        let mut flash = FlashStats {
            region_bytes: self.devices.region_bytes() as u64,
            device_bytes: self.regions.len() as u64 * self.devices.region_bytes() as u64,
            buffer_bytes: (self.log.buffers.memory() + self.regions.memory()) as u64,
            index_limit_bytes: self.config.index_bytes,
            ..FlashStats::default()
        };
        for shard in self.shards() {
            let mut shard = shard.lock();
            shard.note_floor(self.log.floor());
            flash.items += shard.items();
            flash.index_bytes += shard.memory();
        }
        self.count_regions(&mut flash);
        self.add_counters(&mut flash);
        StoreStats {
            kind: "ssd",
            items: flash.items,
            total_items: read(&self.counters.total_items),
            index_bytes: flash.index_bytes,
            evictions: flash.evictions,
            evicted_unfetched: flash.evicted_unfetched,
            reclaimed: flash.expired,
            expired_unfetched: read(&self.counters.expired_unfetched),
            flash: Some(flash),
            ..StoreStats::default()
        }
    }

    fn count_regions(&self, flash: &mut FlashStats) {
        let mut oldest = None;
        for (_, region) in self.regions.iter() {
            match region.state() {
                State::Free => flash.regions_free += 1,
                State::Open => flash.regions_open += 1,
                State::Sealed => flash.regions_sealed += 1,
                State::Written | State::Closed => flash.regions_closed += 1,
                State::Reclaiming => flash.regions_reclaiming += 1,
                State::Retired => flash.regions_retired += 1,
            }
            if region.sequence() != 0 && oldest.is_none_or(|base| region.base() < base) {
                oldest = Some(region.base());
            }
        }
        flash.oldest_second = oldest.map_or(0, |base| u64::from(second_of(base)));
    }

    fn add_counters(&self, flash: &mut FlashStats) {
        let (counters, reads) = (&self.counters, &self.reads);
        flash.stored_items = read(&counters.total_items);
        flash.regions_emptied = read(&counters.regions_emptied);
        flash.reads_in_flight = read(&reads.in_flight);
        flash.lookups = read(&counters.lookups);
        flash.buffer_reads = read(&counters.buffer_reads);
        flash.device_reads = read(&reads.reads);
        flash.device_read_bytes = read(&reads.bytes);
        flash.read_latency = reads.latency();
        flash.item_bytes_written = read(&counters.item_bytes);
        flash.carried_bytes = read(&counters.carried_bytes);
        flash.carried_items = read(&counters.carried_items);
        flash.tombstone_bytes = read(&counters.tombstone_bytes);
        flash.device_written_bytes = read(&counters.device_bytes);
        flash.evictions = read(&counters.evictions);
        flash.evicted_unfetched = read(&counters.evicted_unfetched);
        flash.index_evictions = read(&counters.index_evictions);
        flash.expired = read(&counters.expired);
        flash.false_matches = read(&counters.false_matches);
        flash.checksum_failures = read(&counters.checksum_failures);
        flash.io_errors = read(&counters.io_errors) + read(&reads.errors);
        flash.off = self.log.queue.is_off();
        flash.devices_gone = self.presence.gone() as u64;
        flash.recovery_microseconds = read(&counters.recovery_microseconds);
        flash.recovered_items = read(&counters.recovered_items);
        flash.recovered_regions = read(&counters.recovered_regions);
        flash.recovery_read_bytes = read(&counters.recovery_bytes);
        flash.from_snapshot = self.from_snapshot.load(Ordering::Relaxed);
    }
}
