//! The store of a node: a vertical list of layers, from what holds the data to what clients meet.
//!
//! Each line says why its layer stands where it stands; this list is the architecture of a node.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Context;
use moneta_flash::Flash;
use moneta_memory::{Memory, MemoryConfig};
use moneta_server::ByPolicy;
use moneta_store::{Clock, Store, Tiered, TieredConfig};

use crate::options::flash::FlashSettings;
use crate::options::settings::Settings;

/// The store of a node. Which of the two it is decides at compile time what a request runs through, so that a node in RAM
/// alone pays nothing for the other kind.
pub enum Stack {
    /// RAM alone, for both policies.
    Ram(ByPolicy<Memory>),
    /// RAM over SSD.
    Tiered(ByPolicy<Tiered<Memory, Flash>>),
}

/// Assembles the store that all workers share.
///
/// # Errors
/// If a layer cannot be made, as when the system has no memory for it or a device is not fit.
pub fn assemble(settings: &Settings, clock: &Arc<Clock>) -> anyhow::Result<Stack> {
    let Some(tier) = &settings.flash else {
        // RAM alone: it holds every item, and whatever it has is answered at once, without a wait or a copy between.
        let ram = Memory::new(&memory(settings, random_seed()), Arc::clone(clock)).context(NO_MEMORY)?;
        return Ok(Stack::Ram(ByPolicy::same(ram)));
    };
    // At the bottom, SSD: it holds every item and outlives the process. First, as it says how keys are hashed.
    let ssd = Flash::open(&tier.engine, Arc::clone(clock)).context("the SSD tier cannot start")?;
    // Over it, RAM: the hot items, answered at once. Hashed alike, so that a key is hashed once for both.
    let ram = Memory::new(&memory(settings, ssd.seed()), Arc::clone(clock)).context(NO_MEMORY)?;
    // Round both, what keeps them one store: below first, then above; what is read below comes up, if nothing newer did.
    let online = Tiered::new(ram, ssd, tiering(settings, tier), Arc::clone(clock));
    // On top, a handle for each policy: bulk traffic brings nothing up.
    Ok(Stack::Tiered(ByPolicy { batch: online.batch(), online }))
}

/// What was being done when the memory engine failed.
const NO_MEMORY: &str = "the memory engine cannot start";

fn memory(settings: &Settings, seed: u64) -> MemoryConfig {
    MemoryConfig {
        limit: settings.memory,
        item_max: settings.max_item_size,
        evict: settings.evictions,
        threads: settings.threads,
        shards: None,
        seed,
    }
}

fn tiering(settings: &Settings, tier: &FlashSettings) -> TieredConfig {
    TieredConfig { promotion: tier.promotion, write_budget: tier.write_budget, item_max: settings.max_item_size }
}

/// Another seed in every process, so that no client can choose keys that share a bucket. The standard library draws the
/// state of its hashers from the system's randomness.
fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}
