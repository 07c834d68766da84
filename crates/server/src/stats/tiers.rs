//! `stats` of a store with items on SSD.
//!
//! Statistics with a counterpart in memcached's extstore have its names; its pages are regions. Others begin with `flash_` and
//! `tier_`. Extstore statistics without a counterpart here (such as `extstore_bytes_fragmented`) are omitted, since a zero would
//! be misleading.

use moneta_store::{Figure, FlashStats, StoreStats, TierStats};

use super::Lister;

/// Statistics of all tiers combined, where memcached has one name for them: the lower tier has all items, and only its evictions
/// lose items.
pub(super) fn together(store: &StoreStats) -> StoreStats {
    let (items, evictions, evicted_unfetched) = match (&store.flash, &store.tiers) {
        (Some(flash), _) => (flash.items, flash.evictions, flash.evicted_unfetched),
        (None, Some(tiers)) => (tiers.lower_items, tiers.lower_evictions, tiers.lower_evicted_unfetched),
        (None, None) => return *store,
    };
    StoreStats { items, evictions, evicted_unfetched, ..*store }
}

/// Appends all statistics of tiers; none for a store in RAM alone.
pub(super) fn list(store: &StoreStats, lister: &mut Lister<'_>) {
    if let Some(tiers) = &store.tiers {
        lister.put(&format!("{}_items", tiers.upper), store.items);
        lister.put(&format!("{}_evictions", tiers.upper), store.evictions);
        list_between(tiers, lister);
    }
    if let Some(flash) = &store.flash {
        list_extstore(flash, lister);
        list_flash(flash, lister);
    }
}

/// Appends metrics that the store's engines name; those with the same name are distinguished by their label values.
pub(super) fn list_figures(figures: &[Figure], lister: &mut Lister<'_>) {
    for figure in figures {
        let mut name = figure.name.to_owned();
        figure.labels.iter().for_each(|(_, value)| name.extend([":", value.as_str()]));
        name.retain(|letter| !letter.is_whitespace());
        lister.put(&name, figure.value);
    }
}

fn list_between(tiers: &TierStats, lister: &mut Lister<'_>) {
    lister.put("get_extstore", tiers.lower_hits);
    lister.put("recache_from_extstore", tiers.promotions);
    lister.put(&format!("tier_{}_hits", tiers.upper), tiers.upper_hits);
    lister.put(&format!("tier_{}_hits", tiers.lower), tiers.lower_hits);
    lister.put("tier_misses", tiers.misses);
    lister.put("tier_promotions_overtaken", tiers.promotions_overtaken);
    lister.put("tier_promotions_declined", tiers.promotions_declined);
    lister.put("tier_writes_withheld", tiers.writes_withheld);
    lister.put("tier_write_failures", tiers.lower_failures);
    lister.put("tier_key_waits", tiers.key_waits);
}

fn list_extstore(flash: &FlashStats, lister: &mut Lister<'_>) {
    lister.put("miss_from_extstore", flash.false_matches);
    lister.put("badcrc_from_extstore", flash.checksum_failures);
    lister.put("extstore_compact_rescues", flash.carried_items);
    let used = flash.regions_open + flash.regions_sealed + flash.regions_closed + flash.regions_reclaiming;
    lister.put("extstore_page_evictions", flash.regions_emptied);
    lister.put("extstore_pages_free", flash.regions_free);
    lister.put("extstore_pages_used", used);
    lister.put("extstore_objects_evicted", flash.evictions);
    lister.put("extstore_objects_written", flash.stored_items + flash.carried_items);
    lister.put("extstore_objects_read", flash.device_reads);
    lister.put("extstore_objects_used", flash.items);
    lister.put("extstore_bytes_written", flash.device_written_bytes);
    lister.put("extstore_bytes_read", flash.device_read_bytes);
    lister.put("extstore_bytes_used", used * flash.region_bytes);
    lister.put("extstore_io_queue", flash.reads_in_flight);
    lister.put("extstore_limit_maxbytes", flash.device_bytes);
}

fn list_flash(flash: &FlashStats, lister: &mut Lister<'_>) {
    lister.put("flash_index_bytes", flash.index_bytes);
    lister.put("flash_buffer_bytes", flash.buffer_bytes);
    lister.put("flash_region_bytes", flash.region_bytes);
    lister.put("flash_regions_open", flash.regions_open);
    lister.put("flash_regions_sealed", flash.regions_sealed);
    lister.put("flash_regions_closed", flash.regions_closed);
    lister.put("flash_regions_reclaiming", flash.regions_reclaiming);
    lister.put("flash_regions_retired", flash.regions_retired);
    lister.put("flash_oldest_second", flash.oldest_second);
    lister.put("flash_lookups", flash.lookups);
    lister.put("flash_buffer_reads", flash.buffer_reads);
    lister.put("flash_read_microseconds", flash.read_latency.sum_microseconds);
    lister.put("flash_item_bytes_written", flash.item_bytes_written);
    lister.put("flash_carried_bytes", flash.carried_bytes);
    lister.put("flash_tombstone_bytes", flash.tombstone_bytes);
    lister.put("flash_expired", flash.expired);
    lister.put("flash_io_errors", flash.io_errors);
    lister.put("flash_off", u8::from(flash.off));
    lister.put("flash_devices_gone", flash.devices_gone);
    lister.put("flash_recovery_microseconds", flash.recovery_microseconds);
    lister.put("flash_recovered_items", flash.recovered_items);
    lister.put("flash_recovered_regions", flash.recovered_regions);
    lister.put("flash_recovery_read_bytes", flash.recovery_read_bytes);
    lister.put("flash_recovery_from_snapshot", u8::from(flash.from_snapshot));
}
