//! Which node of a replica has a key.
//!
//! A ring is made once for a topology and asked for each request. It places slots, not addresses: a node that takes over the slot
//! of another takes over its keys, and no others move. `docs/topology.md` says which ring places what as which other clients do.

mod ketama;
mod points;
mod slots;

use md5::{Digest, Md5};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::topology::{Node, RingKind, TopologyError, check_nodes};
use points::Points;
use slots::Buckets;

/// What the hash of a key in [`RingKind::Slots`] begins with: any number that no other hash of the same keys uses. It stays, or
/// every key moves.
const SLOTS_SEED: u64 = u64::from_le_bytes(*b"mn.slots");

/// How the keys of one replica are divided among its nodes.
#[derive(Clone, Debug)]
pub struct Ring {
    kind: RingKind,
    places: Places,
}

#[derive(Clone, Debug)]
enum Places {
    /// A circle of points, each of which belongs to a node.
    Points(Points),
    /// A fixed number of buckets, each of which belongs to a node.
    Buckets(Buckets),
}

impl Ring {
    /// The ring of `nodes`. Their addresses do not matter to it, and their order only where two points of a ketama ring fall on
    /// one place (one pair of points in 4 billion).
    ///
    /// Takes about a millisecond for a node in [`RingKind::Slots`], and 20 µs in the other ones: a thread that answers requests
    /// should not make large rings.
    ///
    /// # Errors
    /// No nodes, more than [`MAX_NODES`](crate::topology::MAX_NODES), two with one slot, or a weight that the ring cannot have.
    pub fn new(kind: RingKind, nodes: &[Node]) -> Result<Self, TopologyError> {
        check_nodes(kind, nodes)?;
        let places = match kind {
            RingKind::Slots => Places::Buckets(Buckets::of(nodes)),
            RingKind::Evcache => Places::Points(ketama::evcache(nodes)),
            RingKind::Libketama => Places::Points(ketama::libketama(nodes)),
        };
        Ok(Self { kind, places })
    }

    /// The kind it was made of.
    pub fn kind(&self) -> RingKind {
        self.kind
    }

    /// The node that has `key`: its index among the nodes the ring was made of.
    #[inline]
    pub fn node(&self, key: &[u8]) -> usize {
        self.node_of_hash(self.kind.hash(key))
    }

    /// Hashes of which at least one lies in each stretch of hashes that belong to one node: two rings of a kind that say the same
    /// of the edges of both say the same of all keys.
    pub(crate) fn edges(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match &self.places {
            Places::Points(points) => Box::new(points.places().map(u64::from)),
            Places::Buckets(_) => Box::new(Buckets::firsts()),
        }
    }

    /// The node that has the key whose [`RingKind::hash`] is `hash`, for callers that ask several rings of one kind about one
    /// key.
    #[inline]
    pub fn node_of_hash(&self, hash: u64) -> usize {
        match &self.places {
            // The hash of a ketama ring has 32 bits.
            Places::Points(points) => points.owner(hash as u32),
            Places::Buckets(buckets) => buckets.owner(hash),
        }
    }
}

impl RingKind {
    /// A key's hash in rings of this kind.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u64 {
        match self {
            Self::Slots => xxh3_64_with_seed(key, SLOTS_SEED),
            Self::Evcache | Self::Libketama => u64::from(words(&Md5::digest(key).into())[0]),
        }
    }
}

/// The four little-endian numbers of an MD5.
fn words(digest: &[u8; 16]) -> [u32; 4] {
    std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| digest[word * 4 + byte])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::MAX_NODES;

    fn nodes(slots: &[&str]) -> Vec<Node> {
        slots.iter().map(|slot| node(slot, 1)).collect()
    }

    fn node(slot: &str, weight: u32) -> Node {
        Node { slot: slot.into(), address: "127.0.0.1:11211".parse().unwrap(), admin: None, weight }
    }

    /// Seen from EVCache's client itself, two nodes, keys `pfx:key0` to `pfx:key11`.
    const EVCACHE: [usize; 12] = [0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0];

    #[test]
    fn evcache_places_keys_as_its_own_client_does() {
        let ring = Ring::new(RingKind::Evcache, &nodes(&["n1/127.0.0.1", "n2/127.0.0.1"])).unwrap();
        let placed: Vec<usize> = (0..12).map(|key| ring.node(format!("pfx:key{key}").as_bytes())).collect();
        assert_eq!(placed, EVCACHE);
    }

    #[test]
    fn libketama_by_the_names_that_spymemcached_gives_is_spymemcached() {
        // EVCache's client is spymemcached with a name format of another kind; with that format's names both are one.
        let ring = Ring::new(RingKind::Libketama, &nodes(&["n1/127.0.0.1:11211", "n2/127.0.0.1:11211"])).unwrap();
        let placed: Vec<usize> = (0..12).map(|key| ring.node(format!("pfx:key{key}").as_bytes())).collect();
        assert_eq!(placed, EVCACHE);
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let refused = |kind, nodes: &[Node]| Ring::new(kind, nodes).map(|_| ()).unwrap_err().to_string();
        for kind in [RingKind::Slots, RingKind::Evcache, RingKind::Libketama] {
            assert_eq!(refused(kind, &[]), "a replica has no nodes");
            assert_eq!(refused(kind, &nodes(&["a", "b", "a"])), "two nodes of a replica have the slot \"a\"");
            assert_eq!(refused(kind, &[node("a", 0)]), "node \"a\" has weight 0: the least is 1");
            let many: Vec<Node> = (0..=MAX_NODES).map(|slot| node(&slot.to_string(), 1)).collect();
            assert_eq!(refused(kind, &many), "a replica has 65536 nodes: at most 65535 fit a ring");
        }
        let weighted = refused(RingKind::Evcache, &[node("a", 2)]);
        assert_eq!(weighted, "node \"a\" has weight 2: the ring \"evcache\" has no weights");
    }

    #[test]
    fn the_hash_of_a_key_stays_what_it_is() {
        assert_eq!(RingKind::Evcache.hash(b""), 0xd98c_1dd4, "MD5 of nothing is d41d8cd98f00b204…");
        assert_eq!(RingKind::Libketama.hash(b"abc"), 0x9850_0190, "MD5 of abc is 900150983cd24fb0…");
        assert_eq!(RingKind::Slots.hash(b"key0"), 0x1d39_141e_f734_523d, "another number moves every key");
    }

    #[test]
    fn slots_keep_the_keys_they_have() {
        let nodes: Vec<Node> = (0..6).map(|slot| node(&format!("a{slot}"), 1 + slot % 3)).collect();
        let ring = Ring::new(RingKind::Slots, &nodes).unwrap();
        let placed: Vec<usize> = (0..24).map(|key| ring.node(format!("key{key}").as_bytes())).collect();
        assert_eq!(placed, [2, 0, 5, 3, 1, 5, 2, 2, 5, 2, 4, 5, 2, 2, 2, 4, 1, 4, 1, 1, 2, 1, 2, 1]);
        // All buckets: a change in any is a key that moves with an upgrade.
        let buckets = (0..1u64 << 16).map(|bucket| ring.node_of_hash(bucket << 48) as u8).collect::<Vec<u8>>();
        assert_eq!(xxh3_64_with_seed(&buckets, 0), 10_949_551_735_233_808_816);
    }
}
