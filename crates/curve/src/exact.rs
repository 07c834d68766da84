//! Reuse distances of all keys, in memory that grows with their number.

use std::collections::HashMap;

use crate::curve::Curve;
use crate::histogram::Counts;

/// Reuse distances of all keys of a trace.
#[derive(Debug, Default)]
pub struct Exact {
    /// Slot and size.
    keys: HashMap<u64, (usize, u64)>,
    /// Sums of a binary indexed tree over slots: keys and bytes.
    tree: Vec<(u64, u64)>,
    next: usize,
    total: u64,
    objects: Counts,
    bytes: Counts,
    gets: u64,
    cold: u64,
}

impl Exact {
    /// A get, with a set after it if it misses. The room in bytes with which it is a hit; `None`: none is enough.
    pub fn read(&mut self, key: u64, size: u64) -> Option<u64> {
        self.gets += 1;
        let needed = self.keys.get(&key).copied().map(|(slot, old)| {
            let (keys, bytes) = self.up_to(slot);
            self.objects.add(self.keys.len() as u64 - keys + 1);
            self.total - bytes + old
        });
        match needed {
            Some(bytes) => self.bytes.add(bytes),
            None => self.cold += 1,
        }
        self.write(key, size);
        needed
    }

    /// A set.
    pub fn write(&mut self, key: u64, size: u64) {
        if self.next == self.tree.len() {
            self.compact();
        }
        let slot = self.next;
        self.next += 1;
        if let Some((old_slot, old_size)) = self.keys.insert(key, (slot, size)) {
            self.add(old_slot, u64::MAX, old_size.wrapping_neg());
        }
        self.add(slot, 1, size);
    }

    /// A delete.
    pub fn delete(&mut self, key: u64) {
        if let Some((slot, size)) = self.keys.remove(&key) {
            self.add(slot, u64::MAX, size.wrapping_neg());
        }
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        Curve::new(self.gets as f64, self.cold as f64, &(&self.objects).into(), &(&self.bytes).into())
    }

    /// Keys, and bytes of their items.
    pub fn footprint(&self) -> (u64, u64) {
        (self.keys.len() as u64, self.total)
    }

    fn add(&mut self, slot: usize, keys: u64, bytes: u64) {
        self.total = self.total.wrapping_add(bytes);
        let mut at = slot + 1;
        while at <= self.tree.len() {
            let sum = &mut self.tree[at - 1];
            *sum = (sum.0.wrapping_add(keys), sum.1.wrapping_add(bytes));
            at += at & at.wrapping_neg();
        }
    }

    /// Keys and bytes in slots up to one.
    fn up_to(&self, slot: usize) -> (u64, u64) {
        let (mut keys, mut bytes) = (0u64, 0u64);
        let mut at = slot + 1;
        while at > 0 {
            keys = keys.wrapping_add(self.tree[at - 1].0);
            bytes = bytes.wrapping_add(self.tree[at - 1].1);
            at &= at - 1;
        }
        (keys, bytes)
    }

    fn compact(&mut self) {
        let mut order: Vec<_> = self.keys.iter().map(|(key, &(slot, size))| (slot, *key, size)).collect();
        order.sort_unstable();
        self.tree = vec![(0, 0); (2 * order.len()).max(1 << 12)];
        (self.next, self.total) = (0, 0);
        for (_, key, size) in order {
            let slot = self.next;
            self.next += 1;
            self.keys.insert(key, (slot, size));
            self.add(slot, 1, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Room;

    /// Hits of a cache of so many bytes that keeps what was used last.
    fn hits(requests: &[(u64, u64)], room: u64) -> u64 {
        let (mut order, mut hits) = (Vec::<(u64, u64)>::new(), 0);
        for &(key, size) in requests {
            if let Some(place) = order.iter().position(|(known, _)| *known == key) {
                // What lies above it, and itself, was never more than the room: else it would have left.
                hits += 1;
                order.remove(place);
            }
            order.push((key, size));
            while order.iter().map(|(_, size)| size).sum::<u64>() > room {
                order.remove(0);
            }
        }
        hits
    }

    #[test]
    fn it_tells_what_caches_of_each_size_would_have_missed() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let requests: Vec<(u64, u64)> = (0..20_000)
            .map(|_| {
                let key = next(300).min(next(300)).min(next(300));
                (key, 1 + key % 7)
            })
            .collect();
        let mut exact = Exact::default();
        for &(key, size) in &requests {
            exact.read(key, size);
        }
        let curve = exact.curve();
        // Ends of buckets, where nothing has to be interpolated.
        for room in [15, 31, 63, 127, 255, 511, 1023] {
            let misses = 1.0 - hits(&requests, room) as f64 / requests.len() as f64;
            assert!((curve.miss_ratio(Room::Bytes(room)) - misses).abs() < 1e-9, "{room}: {misses}");
        }
        for key in 0..300 {
            exact.delete(key);
        }
        assert_eq!(exact.footprint(), (0, 0));
    }
}
