//! The store of a node: a vertical list of layers, from what holds the data to what clients meet.
//!
//! Each line says why its layer stands where it stands; this list is the architecture of a node.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Context;
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::{Clock, Store};

use crate::options::settings::Settings;

/// Assembles the store that all workers share.
///
/// # Errors
/// If a layer cannot be made, as when the system has no memory for it.
pub fn assemble(
    settings: &Settings,
    clock: &Arc<Clock>,
) -> anyhow::Result<impl Store + Clone + Send + Sync + use<> + 'static> {
    // At the bottom, RAM: it holds every item, and whatever it has is answered at once, without a wait or a copy between.
    let store = Memory::new(&memory(settings), Arc::clone(clock)).context("the memory engine cannot start")?;
    Ok(store)
}

fn memory(settings: &Settings) -> MemoryConfig {
    MemoryConfig {
        limit: settings.memory,
        item_max: settings.max_item_size,
        evict: settings.evictions,
        threads: settings.threads,
        shards: None,
        // Another one in every process, so that no client can choose keys that share a bucket. The standard library draws
        // the state of its hashers from the system's randomness.
        seed: RandomState::new().hash_one(()),
    }
}
