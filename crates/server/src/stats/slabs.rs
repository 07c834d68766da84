//! `stats items` and `stats slabs`: memcached's statistics by slab class. There is one class, number 1.
//!
//! Tools calculate with these numbers (`memcached-tool display`, phpMemcachedAdmin), so they must be consistent: the chunk size
//! is the average size of an item, rounded up, and pages of memcached's size cover all memory for items. All pages are shown as
//! allocated from the start, so their number does not grow with the items.

use moneta_store::StoreStats;

use super::lister::Lister;
use crate::node::Node;

/// Bytes of a slab page in memcached.
const PAGE: u64 = 1 << 20;

/// Class 1 as memcached would have it.
struct Class {
    chunk_size: u64,
    chunks_per_page: u64,
    pages: u64,
    used_chunks: u64,
}

impl Class {
    /// `upper` has the statistics of the RAM tier, including `bytes`; `items` is the total of all tiers.
    fn of(upper: &StoreStats, items: u64, memory: u64) -> Self {
        let room = [upper.limit, upper.device_bytes].into_iter().find(|bytes| *bytes > 0).unwrap_or(memory);
        let chunk_size = upper.bytes.checked_div(upper.items).unwrap_or(0) + 1;
        Self {
            chunk_size,
            chunks_per_page: (PAGE / chunk_size).max(1),
            pages: room.div_ceil(PAGE).max(1),
            used_chunks: items,
        }
    }

    fn total_chunks(&self) -> u64 {
        (self.pages * self.chunks_per_page).max(self.used_chunks)
    }
}

/// Whether class 1 has ever had an item.
fn is_used(store: &StoreStats) -> bool {
    store.together().items > 0 || store.total_items > 0
}

/// `stats items` of a store with these statistics.
pub(super) fn items(node: &Node, store: &StoreStats, lister: &mut Lister<'_>) {
    let all = store.together();
    if !is_used(store) {
        return;
    }
    // Items leave the SSD with their region, so none is older than the oldest region.
    let now = u64::from(node.clock.now());
    let by_region = store.oldest_second.map(|second| if second == 0 { 0 } else { now.saturating_sub(second) });
    let evicted_time = match by_region {
        Some(age) if all.evictions > 0 => age,
        Some(_) => 0,
        None => store.evicted_idle,
    };
    lister.put("items:1:number", all.items);
    lister.put("items:1:age", by_region.unwrap_or(store.tail_idle));
    lister.put("items:1:mem_requested", store.bytes);
    lister.put("items:1:evicted", all.evictions);
    lister.put("items:1:evicted_time", evicted_time);
    lister.put("items:1:outofmemory", store.out_of_memory);
    lister.put("items:1:reclaimed", store.reclaimed);
    lister.put("items:1:expired_unfetched", store.expired_unfetched);
    lister.put("items:1:evicted_unfetched", all.evicted_unfetched);
}

/// `stats slabs` of a store with these statistics.
pub(super) fn slabs(node: &Node, upper: &StoreStats, lister: &mut Lister<'_>) {
    let counters = node.registry.since_reset();
    let class = Class::of(upper, upper.together().items, node.settings.memory);
    let is_used = is_used(upper);
    if is_used {
        lister.put("1:chunk_size", class.chunk_size);
        lister.put("1:chunks_per_page", class.chunks_per_page);
        lister.put("1:total_pages", class.pages);
        lister.put("1:total_chunks", class.total_chunks());
        lister.put("1:used_chunks", class.used_chunks);
        lister.put("1:free_chunks", class.total_chunks() - class.used_chunks);
        lister.put("1:free_chunks_end", 0);
        lister.put("1:get_hits", counters.get_hits);
        lister.put("1:cmd_set", counters.cmd_set);
        lister.put("1:delete_hits", counters.delete_hits);
        lister.put("1:incr_hits", counters.incr_hits);
        lister.put("1:decr_hits", counters.decr_hits);
        lister.put("1:cas_hits", counters.cas_hits);
        lister.put("1:cas_badval", counters.cas_badval);
        lister.put("1:touch_hits", counters.touch_hits);
    }
    lister.put("active_slabs", u8::from(is_used));
    lister.put("total_malloced", class.pages * PAGE);
}
