//! The search for the cheapest nodes.
//!
//! What each number of nodes costs follows from the curve of misses: without an SSD tier RAM has to hold all that is to be hit; with
//! one the SSD holds that, and RAM as much as it takes for the devices to keep up with the reads that are left. More nodes have more
//! devices and so need less RAM: numbers of nodes are tried from one on, until the nodes alone cost more than the best so far.

use moneta_curve::{Curve, Room};
use serde::Serialize;

use crate::costs::{
    GIB, NODE_MEMORY, NODE_RAM, NODE_SSD, RAM_ITEM, REGION, REGION_BUFFERS, SPARE_REGIONS, SSD_BYTE_RAM, SSD_ITEM,
    SSD_ITEM_RAM,
};

const SECONDS_A_DAY: f64 = 86_400.0;
/// Most nodes that are tried.
const NODES_MAX: u32 = 10_000;

/// What is asked of the cache.
#[derive(Clone, Debug)]
pub struct Load {
    /// Misses over RAM, with what an item takes there beside key and value.
    pub curve: Curve,
    /// Gets a second, at the peak.
    pub gets: f64,
    /// Sets a second, at the peak.
    pub sets: f64,
    /// Bytes of RAM of an item that is set, on average.
    pub item_bytes: f64,
    /// Seconds that an item shall stay on SSD though it is not read; 0: no longer than the hit rate needs.
    pub stay: f64,
}

/// What it is to reach.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The share of gets that are hits.
    pub hit_rate: f64,
    /// The share of gets that RAM answers, at least.
    pub ram_hit_rate: f64,
}

/// Prices, all for the same time.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Of a GiB of RAM.
    pub ram: f64,
    /// Of a GiB of SSD.
    pub ssd: f64,
    /// Of a node without RAM and SSD.
    pub node: f64,
}

/// What one node can have and do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of RAM.
    pub ram: f64,
    /// Bytes of SSD; 0: it has none.
    pub ssd: f64,
    /// Requests a second.
    pub requests: f64,
    /// Reads a second of its devices.
    pub ssd_reads: f64,
}

/// Where items are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// In RAM alone.
    Ram,
    /// All on SSD, the hot ones in RAM as well.
    RamOverSsd,
}

/// The cheapest nodes. Bytes are of one node.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Where items are.
    pub tier: Tier,
    /// Nodes, of one copy of the data.
    pub nodes: u32,
    /// For `-m`.
    pub memory: f64,
    /// All RAM.
    pub ram: f64,
    /// For `--flash`.
    pub ssd: f64,
    /// RAM for the index and the buffers of the SSD tier, of `ram`.
    pub ssd_ram: f64,
    /// The price of all nodes.
    pub cost: f64,
    /// The share of gets that are hits.
    pub hit_rate: f64,
    /// The share of gets that RAM answers.
    pub ram_hit_rate: f64,
    /// Items of all nodes.
    pub items: f64,
    /// Reads a second of the devices of a node.
    pub ssd_reads: f64,
    /// Bytes a day that are written to the devices of a node.
    pub ssd_written: f64,
    /// What asks for as many nodes, and as much of each.
    pub why: Vec<String>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Even if nothing left for want of room, fewer gets would be hits.
    #[error(
        "at most {reachable:.4} of the gets can be hits: the others ask for items that were not there before, or no more"
    )]
    Unreachable {
        /// The largest share.
        reachable: f64,
    },
    /// The nodes are too small.
    #[error("{NODES_MAX} nodes with these limits are too few")]
    TooSmall,
    /// There was nothing to go by.
    #[error("the curve has no gets yet")]
    Empty,
}

/// The cheapest nodes for a load, with each of the tiers that can serve it; the cheapest first.
///
/// # Errors
/// [`Error`] if there are none.
pub fn plans(load: &Load, wanted: &Wanted, prices: &Prices, limits: &Limits) -> Result<Vec<Plan>, Error> {
    if load.curve.by_bytes.len() < 2 {
        return Err(Error::Empty);
    }
    let reachable = 1.0 - load.curve.floor();
    let misses = 1.0 - wanted.hit_rate.max(wanted.ram_hit_rate);
    let (Some(bytes), Some(items)) = (load.curve.bytes_for(misses), load.curve.objects_for(misses)) else {
        return Err(Error::Unreachable { reachable });
    };
    let search = Search { load, wanted, prices, limits, room: All { bytes: bytes as f64, items: items as f64 } };
    let mut found: Vec<Plan> =
        [Tier::Ram, Tier::RamOverSsd].into_iter().filter_map(|tier| search.cheapest(tier)).collect();
    found.sort_by(|one, other| one.cost.total_cmp(&other.cost));
    if found.is_empty() { Err(Error::TooSmall) } else { Ok(found) }
}

/// Room of all nodes together.
#[derive(Clone, Copy)]
struct All {
    /// Bytes of RAM that would hold everything that is to be hit.
    bytes: f64,
    /// Items of that.
    items: f64,
}

struct Search<'a> {
    load: &'a Load,
    wanted: &'a Wanted,
    prices: &'a Prices,
    limits: &'a Limits,
    room: All,
}

impl Search<'_> {
    /// The cheapest nodes with these tiers.
    fn cheapest(&self, tier: Tier) -> Option<Plan> {
        let mut best: Option<Plan> = None;
        for nodes in 1..=NODES_MAX {
            if best.as_ref().is_some_and(|best| best.cost <= self.prices.node * f64::from(nodes)) {
                break;
            }
            let Some(plan) = self.with(tier, nodes) else { continue };
            // More nodes than these take as much RAM and SSD, and more of what each node takes.
            let is_last = plan.memory <= NODE_MEMORY || tier == Tier::Ram;
            if best.as_ref().is_none_or(|best| plan.cost < best.cost) {
                best = Some(plan);
            }
            if is_last {
                break;
            }
        }
        best
    }

    /// So many nodes, with as little of all else as will do; `None` if these are too few.
    fn with(&self, tier: Tier, nodes: u32) -> Option<Plan> {
        let each = f64::from(nodes);
        if (self.load.gets + self.load.sets) / each > self.limits.requests {
            return None;
        }
        let (memory, ssd, ssd_ram) = match tier {
            Tier::Ram => ((self.room.bytes / each).max(NODE_MEMORY), 0.0, 0.0),
            Tier::RamOverSsd => {
                let ssd = self.log() / each + SPARE_REGIONS * REGION;
                let index = self.room.items / each * SSD_ITEM_RAM;
                ((self.hot(each)? / each).max(NODE_MEMORY), ssd, index + ssd * SSD_BYTE_RAM + REGION_BUFFERS * REGION)
            }
        };
        let ram = memory + ssd_ram + NODE_RAM;
        if ram > self.limits.ram || ssd > self.limits.ssd.min(NODE_SSD) {
            return None;
        }
        let ram_hit_rate = 1.0 - self.load.curve.miss_ratio(Room::Bytes((memory * each) as u64));
        let hit_rate = match tier {
            Tier::Ram => ram_hit_rate,
            Tier::RamOverSsd => ram_hit_rate.max(self.wanted.hit_rate),
        };
        let plan = Plan {
            tier,
            nodes,
            memory,
            ram,
            ssd,
            ssd_ram,
            cost: each * (self.prices.node + (self.prices.ram * ram + self.prices.ssd * ssd) / GIB),
            hit_rate,
            ram_hit_rate,
            items: self.room.items,
            ssd_reads: (hit_rate - ram_hit_rate) * self.load.gets / each,
            ssd_written: if tier == Tier::Ram { 0.0 } else { self.load.sets * self.record() * SECONDS_A_DAY / each },
            why: Vec::new(),
        };
        Some(Plan { why: self.why(&plan), ..plan })
    }

    /// Bytes on SSD of an item that is set.
    fn record(&self) -> f64 {
        self.load.item_bytes - RAM_ITEM + SSD_ITEM
    }

    /// Bytes of the logs of all nodes: what is to be hit, or what is written while an item is to stay, whichever is more.
    fn log(&self) -> f64 {
        let held = self.room.bytes + self.room.items * (SSD_ITEM - RAM_ITEM);
        held.max(self.load.sets * self.record() * self.load.stay)
    }

    /// Bytes of RAM that leave the devices of so many nodes no more reads than they can do, and reach the share that RAM is to answer.
    fn hot(&self, nodes: f64) -> Option<f64> {
        let for_devices = 1.0 - self.wanted.hit_rate + nodes * self.limits.ssd_reads / self.load.gets.max(1.0);
        let misses = for_devices.min(1.0 - self.wanted.ram_hit_rate);
        self.load.curve.bytes_for(misses).map(|bytes| bytes as f64)
    }

    /// What a plan follows from.
    fn why(&self, plan: &Plan) -> Vec<String> {
        let each = f64::from(plan.nodes);
        let of_limit = |used: f64, limit: f64| format!("{:.0} % of what a node can", 100.0 * used / limit);
        let requests = (self.load.gets + self.load.sets) / each;
        let mut why = vec![
            format!("requests: {requests:.0} a second a node, {}", of_limit(requests, self.limits.requests)),
            format!("RAM: {:.1} GiB a node, {} have", plan.ram / GIB, of_limit(plan.ram, self.limits.ram)),
        ];
        if plan.tier == Tier::Ram {
            why.push(format!(
                "memory: {:.1} GiB of items, so that {:.2} % of gets are hits",
                self.room.bytes / GIB,
                100.0 * plan.hit_rate
            ));
            return why;
        }
        let log = self.log();
        let held = self.room.bytes + self.room.items * (SSD_ITEM - RAM_ITEM);
        why.push(if log > held {
            format!("SSD: all that is written in {:.0} s, in which items stay unread", self.load.stay)
        } else {
            format!("SSD: {:.0} items, so that {:.2} % of gets are hits", self.room.items, 100.0 * plan.hit_rate)
        });
        why.push(format!("SSD: {:.1} GiB a node, {} have", plan.ssd / GIB, of_limit(plan.ssd, self.limits.ssd)));
        why.push(if plan.memory <= NODE_MEMORY {
            "memory: the least a node works with".to_owned()
        } else if self.hot(each) == self.hot(NODES_MAX.into()) {
            format!("memory: so that RAM answers {:.2} % of gets", 100.0 * self.wanted.ram_hit_rate)
        } else {
            format!("memory: so that the devices keep up with the rest, {:.0} reads a second a node", plan.ssd_reads)
        });
        why.push(format!(
            "RAM for the SSD tier: {:.2} GiB a node, of which {SSD_ITEM_RAM:.0} bytes an item",
            plan.ssd_ram / GIB
        ));
        why
    }
}
