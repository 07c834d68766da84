//! Weighted rendezvous by slot name, decided beforehand for each of 65,536 buckets of keys.
//!
//! Each slot draws a number for each bucket from its name and the bucket's alone, and the least number wins the bucket: with
//! weights, a draw from an exponential distribution of that rate (Thaler and Ravishankar 1998; weights as in Resch, "New Hashing
//! Algorithms for Data Storage", 2015). A slot that comes takes from the others just what it wins, one that goes leaves just what
//! it had, and a change of weight moves keys only to the slot that gained or from the one that lost.
//!
//! Ketama by names was the alternative. Its shares differ by 8 % (one standard deviation, 160 points a node); those of the
//! buckets by 1 % with 6 nodes and 4 % with 100, and a lookup is one load from 128 KiB instead of a search.

use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64;

use crate::topology::Node;

/// Leading bits of a key's hash that name its bucket. They stay, or most keys move.
const BITS: u32 = 16;

/// The owner of each bucket.
#[derive(Clone, Debug)]
pub(super) struct Buckets(Box<[u16; 1 << BITS]>);

impl Buckets {
    /// The buckets of `nodes`, at least one, whose weights are not zero.
    pub(super) fn of(nodes: &[Node]) -> Self {
        let slots: Vec<u64> = nodes.iter().map(|node| xxh3_64(node.slot.as_bytes())).collect();
        // The logarithm costs ten times the rest, and does not change the order where all weights are the same.
        let alike = nodes.iter().all(|node| node.weight == nodes[0].weight);
        let cost = |node: usize, bucket: u64| {
            let unit = unit(slots[node], bucket);
            // libm's logarithm is the same on all processors, so proxies on different ones agree.
            if alike { -unit } else { -libm::log(unit) / f64::from(nodes[node].weight) }
        };
        let owner = |bucket: u64| {
            let mut best = (cost(0, bucket), 0);
            for node in 1..nodes.len() {
                let cost = cost(node, bucket);
                // Of two equal draws the lesser name wins: the order of the list must not matter.
                let order = cost.total_cmp(&best.0).then_with(|| nodes[node].slot.cmp(&nodes[best.1].slot));
                if order == Ordering::Less {
                    best = (cost, node);
                }
            }
            best.1 as u16
        };
        let owners: Vec<u16> = (0..1 << BITS).map(owner).collect();
        Self(owners.into_boxed_slice().try_into().expect("as many as there are buckets"))
    }

    /// The first hash of each bucket.
    pub(super) fn firsts() -> impl Iterator<Item = u64> {
        (0..1u64 << BITS).map(|bucket| bucket << (64 - BITS))
    }

    /// The owner of the bucket of `hash`.
    #[inline]
    pub(super) fn owner(&self, hash: u64) -> usize {
        usize::from(self.0[(hash >> (u64::BITS - BITS)) as usize])
    }
}

/// What `slot` draws for `bucket`, above 0 and at most 1: number `bucket` of the sequence of SplitMix64 (Steele and others, 2014)
/// from `slot`.
fn unit(slot: u64, bucket: u64) -> f64 {
    let mut bits = slot.wrapping_add((bucket + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // The leading 53 bits are what an f64 holds exactly.
    ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
}
