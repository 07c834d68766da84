//! The store of a node: a vertical list of layers, from what holds the data to what clients meet.
//!
//! Each line says why its layer stands where it stands; this list is the architecture of a node.

use std::sync::Arc;

use anyhow::Context;
use moneta_flash::{Flash, FlashConfig};
use moneta_layers::feed::Feed;
use moneta_layers::{Chunked, ChunkedConfig, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_net::Outward;
use moneta_options::report::{Refusal, Refused};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Calls as _, Clock, Key, KeyHash, Progress, Store};

use crate::options::sections::cluster::{self, CLUSTER};
use crate::options::sections::memory::{EVICTION, MAX_ITEM_SIZE, MEMORY, NO_EVICT};
use crate::options::sections::tiers::{Lower, Upper};
use crate::options::sections::workers::THREADS;
use crate::options::settings::Settings;
use crate::{engines, in_time, same_endpoint};

/// Assembles the store that all workers share; tiers in other processes are reached as `outward` says; a tier that has to be read first tells `recovery` how far it is.
/// A request enters the store through a pointer. What lies between there and a hit in RAM is put together at compile time for
/// the stacks that most nodes have; the others' requests pass a pointer to each tier, too.
///
/// # Errors
/// If a layer cannot be made, as when the system has no memory for it or a device is not fit; [`Refused`] if both tiers are one
/// server.
pub fn assemble(
    settings: &Settings,
    outward: &Outward,
    clock: &Arc<Clock>,
    recovery: &Arc<Progress>,
) -> anyhow::Result<Arc<dyn Store>> {
    let tiers = tiers(settings, outward, clock, recovery)?;
    if settings.get(&CLUSTER) {
        in_time::wait(&*tiers, clock);
    }
    Ok(match cluster::feed_bytes(settings) {
        None => tiers,
        // The log of the SSD tier is the feed: it has every change.
        Some(_) if tiers.parts().feed.is_some() => tiers,
        // Round everything, what tells other copies: it hears of every change, by whatever way it came, once it took effect.
        Some(bytes) => Arc::new(Feed::new(tiers, bytes, Arc::clone(clock))),
    })
}

fn tiers(
    settings: &Settings,
    outward: &Outward,
    clock: &Arc<Clock>,
    recovery: &Arc<Progress>,
) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match (&settings.stack.upper, &settings.stack.lower) {
        // RAM alone: it holds every item, and whatever it has is answered at once, without a wait or a copy between.
        (Upper::Memory, Lower::None) => Arc::new(ram(settings, random_hash()?, clock)?),
        (Upper::Memory, Lower::Flash(tier)) => {
            // At the bottom, SSD: it holds every item and outlives the process. First, as it says how keys are hashed.
            let ssd = flash(&tier.engine, settings, clock, recovery)?;
            // Over it, RAM: the hot items, answered at once. Hashed alike, so that a key is hashed once for both.
            let ram = ram_above(settings, &ssd, clock)?;
            both(ram, ssd, settings, clock)
        }
        (upper, lower) => {
            two_servers(upper, lower)?;
            // As above: the lower tier first.
            let lower = self::lower(lower, settings, outward, clock, recovery)?;
            match (self::upper(upper, lower.as_ref(), settings, outward, clock)?, lower) {
                (Some(upper), Some(lower)) => both(upper, lower, settings, clock),
                (one, other) => one.or(other).context("a node needs a tier")?,
            }
        }
    })
}

/// Two tiers as one store.
fn both<U, L>(upper: U, lower: L, settings: &Settings, clock: &Arc<Clock>) -> Arc<dyn Store>
where
    U: Store + 'static,
    L: Store + 'static,
{
    let between = &settings.stack.between;
    let config = TieredConfig {
        promotion: between.promotion,
        write_budget: between.write_budget,
        item_max: settings.get(&MAX_ITEM_SIZE),
        cluster: settings.get(&CLUSTER),
    };
    // Round both, what keeps them one store: below first, then above; what is read below comes up, if nothing newer did.
    Arc::new(Tiered::new(upper, lower, config, Arc::clone(clock)))
}

/// Refuses a server that would be both tiers: what the upper one keeps there, heads and pieces in its format, would be read as
/// items of the lower one. Addresses that are written alike are refused before; here names are looked up.
fn two_servers(upper: &Upper, lower: &Lower) -> Result<(), Refused> {
    let (Upper::Remote(upper, _), Lower::Remote(lower)) = (upper, lower) else { return Ok(()) };
    let (above, below) = (&upper.endpoint.address, &lower.endpoint.address);
    let Some(place) = same_endpoint::common_place(above, below) else { return Ok(()) };
    Err(Refused(vec![Refusal::sentence(format!(
        "l2: `remote:{below}` is refused: it must be another server than l1's, `remote:{above}`, but both are at {place}: its \
         items would be taken for those of the upper tier"
    ))]))
}

/// The tier that has the hot items, hashed as in the one below, if there is one that has all.
fn upper(
    tier: &Upper,
    below: Option<&Arc<dyn Store>>,
    settings: &Settings,
    outward: &Outward,
    clock: &Arc<Clock>,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    Ok(match tier {
        Upper::None => None,
        Upper::Memory => Some(Arc::new(match below {
            Some(below) => ram_above(settings, below, clock)?,
            None => ram(settings, random_hash()?, clock)?,
        })),
        Upper::Remote(config, piece) => {
            let seed = below.map_or_else(random_hash, |below| Ok(below.seed()))?;
            // An entry is a piece with what is known of it: its longest is not the longest value.
            let entries = RemoteConfig { item_max: *piece as usize + ENTRY_EXTRA, ..RemoteConfig::clone(config) };
            let server = remote(&entries, outward, seed, clock)?;
            // Round it, what makes any server fit for a tier: it brings back what was stored, whole and newest, or nothing.
            let config = ChunkedConfig {
                piece_bytes: *piece,
                whole_max: *piece as usize,
                item_max: settings.get(&MAX_ITEM_SIZE),
            };
            // Alone it makes the versions; above another tier it has those of that.
            let versioning = match below {
                Some(below) => versioning_above(settings, below)?,
                None => versioning(settings)?,
            };
            Some(Arc::new(Chunked::versioned(server, config, &versioning, Arc::clone(clock))))
        }
    })
}

/// The tier that has every item.
fn lower(
    tier: &Lower,
    settings: &Settings,
    outward: &Outward,
    clock: &Arc<Clock>,
    recovery: &Arc<Progress>,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    Ok(match tier {
        Lower::None => None,
        Lower::Flash(tier) => Some(Arc::new(flash(&tier.engine, settings, clock, recovery)?)),
        Lower::Rocks(tier) => Some(engines::rocks(tier, settings.get(&MAX_ITEM_SIZE), versioning(settings)?, clock)?),
        Lower::Lmdb(tier) => Some(engines::lmdb(tier, settings.get(&MAX_ITEM_SIZE), versioning(settings)?, clock)?),
        // As it is, so that others can read it too.
        Lower::Remote(config) => Some(Arc::new(remote(config, outward, random_hash()?, clock)?)),
        // Its apps make up its store.
        Lower::Cluster => None,
    })
}

/// What an entry of a remote L1 has beside the bytes of its piece, at most.
const ENTRY_EXTRA: usize = 64;

fn remote(config: &RemoteConfig, outward: &Outward, seed: KeyHash, clock: &Arc<Clock>) -> anyhow::Result<Remote> {
    let config = RemoteConfig { endpoint: outward.over(config.endpoint.clone()), seed, ..config.clone() };
    Remote::new(config, Arc::clone(clock)).context("the remote tier cannot start")
}

fn flash(
    config: &FlashConfig,
    settings: &Settings,
    clock: &Arc<Clock>,
    recovery: &Arc<Progress>,
) -> anyhow::Result<Flash> {
    let versioning = versioning(settings)?;
    // What a write budget keeps above is not in the log.
    let feed = cluster::feed_bytes(settings).is_some() && settings.stack.between.write_budget.is_none();
    let config = FlashConfig { progress: Arc::clone(recovery), versioning, feed, ..config.clone() };
    Flash::open(&config, Arc::clone(clock)).context("the SSD tier cannot start")
}

/// RAM that holds every item.
fn ram(settings: &Settings, seed: KeyHash, clock: &Arc<Clock>) -> anyhow::Result<Memory> {
    ram_with(settings, versioning(settings)?, seed, clock)
}

/// RAM over a tier that makes the versions and remembers the deletes.
fn ram_above(settings: &Settings, below: &dyn Store, clock: &Arc<Clock>) -> anyhow::Result<Memory> {
    ram_with(settings, versioning_above(settings, below)?, below.seed(), clock)
}

/// Where CAS values are counted in a tier whose items have those of a tier below: what it stores while that gives none has
/// others. Programs that keep them in floating-point numbers have 53 bits.
const COUNT_ABOVE: u64 = 1 << 52;

/// How a tier above another makes the CAS values that it does not get from there.
fn versioning_above(settings: &Settings, below: &dyn Store) -> anyhow::Result<Versioning> {
    let versioning = versioning(settings)?;
    // A tier that has kept versions goes on with them.
    let counts = versioning.counts_from.is_some() && below.next_cas(&Key::new(b"", below.seed())) < COUNT_ABOVE;
    Ok(Versioning { cluster: false, counts_from: counts.then_some(COUNT_ABOVE), ..versioning })
}

fn ram_with(settings: &Settings, versioning: Versioning, seed: KeyHash, clock: &Arc<Clock>) -> anyhow::Result<Memory> {
    let config = MemoryConfig {
        limit: settings.get(&MEMORY),
        item_max: settings.get(&MAX_ITEM_SIZE),
        evict: !settings.get(&NO_EVICT),
        threads: settings.get(&THREADS),
        shards: None,
        seed,
        versioning,
    };
    let memory = Memory::new(&config, Arc::clone(clock)).context("the memory engine cannot start")?;
    Ok(memory.with_eviction(settings.get(&EVICTION)))
}

/// How the engines make versions. Counters begin elsewhere in every process.
fn versioning(settings: &Settings) -> anyhow::Result<Versioning> {
    Ok(cluster::versioning(settings, getrandom::u64().context("the system has no randomness")?))
}

/// Another function in every process, so that no client can choose keys that share a bucket.
fn random_hash() -> anyhow::Result<KeyHash> {
    KeyHash::random().context("the system has no randomness to draw a secret from")
}
