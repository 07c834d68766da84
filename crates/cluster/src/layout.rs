//! A topology with the nodes that stand behind it: immutable, and replaced as a whole.

use std::sync::Arc;

use moneta_store::StoreStats;

use crate::node::Node;
use crate::ring::Ring;

/// Samples of keys, as a power of two.
const BITS: u32 = 12;

/// Where the copies of each key are.
pub(crate) struct Layout {
    pub(crate) epoch: u64,
    /// Grows with every layout of this process.
    pub(crate) generation: u64,
    pub(crate) replicas: Vec<Replica>,
    /// Of all replicas.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Replicas that answer reads, those of the near zone first.
    pub(crate) readable: Vec<usize>,
    /// How many of [`Layout::readable`] are near.
    pub(crate) near: usize,
}

/// One full copy.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) write_only: bool,
    pub(crate) ring: Ring,
    /// Where its nodes begin in [`Layout::nodes`].
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Replica {
    /// The index of the node that holds a key, in [`Layout::nodes`].
    #[inline]
    pub(crate) fn node_of(&self, key: &[u8]) -> usize {
        self.first + self.ring.node(key)
    }

    /// Whether this is one of its nodes.
    #[inline]
    pub(crate) fn holds(&self, node: usize) -> bool {
        (self.first..self.first + self.count).contains(&node)
    }

    /// A number that orders the replicas for one key, the same in every process.
    fn rank(&self, key: &[u8]) -> u64 {
        let seed = xxhash_rust::xxh3::xxh3_64(self.name.as_bytes());
        xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
    }
}

impl Layout {
    /// Copies that count for acknowledgements.
    pub(crate) fn copies(&self) -> usize {
        self.readable.len()
    }

    /// Copies of which some node is asked.
    pub(crate) fn reached(&self) -> usize {
        let readable = self.readable.iter().map(|&replica| &self.replicas[replica]);
        let nodes = |replica: &Replica| &self.nodes[replica.first..replica.first + replica.count];
        readable.filter(|replica| nodes(replica).iter().any(|node| !node.health.is_ejected())).count()
    }

    /// Whether all nodes of a replica are asked.
    pub(crate) fn is_whole(&self, replica: &Replica) -> bool {
        self.nodes[replica.first..replica.first + replica.count].iter().all(|node| !node.health.is_ejected())
    }

    /// Adds up what the nodes of the nearest copy hold all of whose nodes told it: a server tells its limit on memory, which is
    /// not 0. `told` is by node.
    pub(crate) fn held(&self, told: &[StoreStats], sum: &mut StoreStats) {
        let copies = self.readable.iter().map(|&replica| &self.replicas[replica]);
        let mut told = copies.filter(|copy| self.is_whole(copy)).map(|copy| &told[copy.first..copy.first + copy.count]);
        if let Some(copy) = told.find(|copy| copy.iter().all(|node| node.limit > 0)) {
            copy.iter().for_each(|node| sum.add(node));
        }
    }

    /// Whether a node belongs to a copy that reads go to first.
    pub(crate) fn is_near(&self, node: usize) -> bool {
        let near = self.readable[..self.near].iter().map(|&replica| &self.replicas[replica]);
        near.into_iter().any(|replica| replica.holds(node))
    }

    /// Whether a node belongs to a copy that counts for acknowledgements.
    pub(crate) fn counts(&self, node: usize) -> bool {
        self.replicas.iter().any(|replica| !replica.write_only && replica.holds(node))
    }

    /// Whether each key of a node has another copy that answers reads and is asked: by samples.
    pub(crate) fn can_lose(&self, node: usize) -> bool {
        self.unasked(|other| other == node) == self.unasked(|_| false)
    }

    /// Of how many keys no copy that answers reads is asked, as a share of all: by samples.
    pub(crate) fn lost(&self) -> f64 {
        self.unasked(|_| false) as f64 / f64::from(1u32 << BITS)
    }

    /// Of how many samples of keys no copy is asked if these nodes are not either.
    fn unasked(&self, is_left_out: impl Fn(usize) -> bool) -> usize {
        // All rings of a topology hash alike: those of slots go by the highest bits, ketama by the lower 32.
        let is_asked = |replica: &Replica, hash: u64| {
            let node = replica.first + replica.ring.node_of_hash(hash);
            !self.nodes[node].health.is_ejected() && !is_left_out(node)
        };
        let readable = || self.readable.iter().map(|&replica| &self.replicas[replica]);
        let samples = (0..1u64 << BITS).map(|sample| sample << (64 - BITS) | sample << (32 - BITS));
        samples.filter(|&hash| !readable().any(|replica| is_asked(replica, hash))).count()
    }

    /// The replicas that may decide on changes of a key, the key's home first. All processes with this topology have the same
    /// order.
    pub(crate) fn homes(&self, key: &[u8]) -> Vec<usize> {
        let mut homes = self.readable.clone();
        homes.sort_unstable();
        homes.sort_by_key(|&replica| std::cmp::Reverse(self.replicas[replica].rank(key)));
        homes
    }
}
