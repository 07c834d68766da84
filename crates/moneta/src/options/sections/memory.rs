//! Memory: for items, and for what clients have not sent whole or not read.

use std::sync::Arc;

use anyhow::ensure;
use moneta_memory::{Eviction, MemoryConfig};
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Size, Switch};
use moneta_options::kinds::units::{Bytes, GIB, KIB, MIB, TIB};
use moneta_options::kinds::words::Choice;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::subscribers::{Effect, Subscribers};
use moneta_options::values::Values;
use moneta_remote::ValueMemory;
use moneta_server::node::{Node, NodeSettings};
use moneta_store::Store;

section! {
    "Memory";

    /// Memory for items with all their bookkeeping; a number without a suffix is in MiB.
    MEMORY: Size<u64> = Opt::new("memory", Size::in_mebibytes(8 * MIB, 16 * TIB), || 64 * MIB)
        .short('m')
        .alias("memory-limit")
        .live()
        .when("Always in production (operating.md).");

    /// Memory for what clients have not sent whole or not read, and reads from SSD under way; for values over 32 MiB, the default
    /// is eight times --max-item-size.
    CLIENT_MEMORY: Size<usize> = Opt::new("client_memory", Size::in_mebibytes(16 * MIB, TIB), || 256 << 20)
        .live()
        .adjusted(|options, default| default.max(options.get(&MAX_ITEM_SIZE).saturating_mul(CLIENT_MEMORY_ITEMS)))
        .when("Higher for very many clients with large values (operating.md).");

    /// When full, refuse to store rather than evict.
    NO_EVICT: Switch = Opt::new("no_evict", Switch, || false)
        .short('M')
        .alias("disable-evictions")
        .when("When losing an item is worse than failing to store one.");

    /// What goes first when RAM is full: what the traffic says, or S3-FIFO with a tenth of memory for new items.
    EVICTION: Choice<Eviction> = Opt::new(
        "eviction",
        Choice(&[("adaptive", Eviction::Adaptive), ("s3-fifo", Eviction::S3Fifo)]),
        || Eviction::Adaptive,
    )
        .when("To compare.");

    /// Largest value; a number without a suffix is in bytes.
    MAX_ITEM_SIZE: Size<usize> = Opt::new("max_item_size", Size::in_bytes(KIB, GIB), || 1 << 20)
        .short('I')
        .when("When values are over 1 MiB. Two of them have to fit into --memory.");
}

/// Least of the client memory, in largest values: a request is admitted if it takes half of what is left up to seven eighths.
const CLIENT_MEMORY_ITEMS_MIN: usize = 4;
/// Client memory in largest values, where it is not set and the values are large.
const CLIENT_MEMORY_ITEMS: usize = 8;

/// Tells sessions what they may store and hold.
pub fn configure(options: &Values, node: &mut NodeSettings) {
    node.item_max = options.get(&MAX_ITEM_SIZE);
    node.memory = options.get(&MEMORY);
    node.client_memory = options.get(&CLIENT_MEMORY);
    node.evictions = !options.get(&NO_EVICT);
}

/// What cannot be had together; `in_ram`: whether items are held in RAM of this process.
pub fn contradictions(options: &Values, in_ram: bool) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let item_max = options.get(&MAX_ITEM_SIZE);
    let needed = MemoryConfig::limit_min(item_max);
    if in_ram && needed > options.get(&MEMORY) {
        let range = format!(
            "so that two such values and their bookkeeping, {}, fit into memory, which is {} ({})",
            Bytes(needed.next_multiple_of(MIB)),
            Bytes(options.get(&MEMORY)),
            options.origin(&MEMORY)
        );
        refusals.push(options.refuse(&MAX_ITEM_SIZE, &range));
    }
    let needed = item_max.saturating_mul(CLIENT_MEMORY_ITEMS_MIN);
    if options.get(&CLIENT_MEMORY) < needed {
        let range = format!(
            "at least four times --max-item-size, {}, so that a request with such a value can be waited for",
            Bytes((needed as u64).next_multiple_of(MIB))
        );
        refusals.push(options.refuse(&CLIENT_MEMORY, &range));
    }
    refusals
}

/// Lets a reload change how much is kept, and how much is held for clients: by sessions, and by a proxy (`values`) on its way
/// from and to nodes.
pub fn subscribe(
    subscribers: &mut Subscribers,
    store: &Arc<dyn Store>,
    node: &Arc<Node>,
    values: Option<Arc<ValueMemory>>,
) {
    let (store, node) = (Arc::clone(store), Arc::clone(node));
    subscribers.set(&CLIENT_MEMORY, move |limit| {
        node.client_memory.set_limit(limit);
        values.iter().for_each(|values| values.set_limit(limit));
    });
    subscribers.on(&MEMORY, move |change| {
        // Where the option is the same, what a client has set by `cache_memlimit` stays.
        if change.from == change.to {
            return Ok(Effect::None);
        }
        let Some(resize) = store.parts().resize else { return Ok(Effect::AfterRestart) };
        ensure!(resize.fits(change.to), "memory: the store cannot take {}", Bytes(change.to));
        let store = Arc::clone(&store);
        Ok(Effect::now(move || {
            // It fits, as was asked before.
            store.parts().resize.map(|resize| resize.resize(change.to));
        }))
    });
}
