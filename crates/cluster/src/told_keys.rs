//! What feeds tell of the keys of a span, in a bounded table.

use std::collections::HashMap;

use moneta_store::Version;
use moneta_store::feed::Buckets;
use smallvec::SmallVec;

/// Memory of what feeds tell, in bytes: some 200,000 keys. Where there are more, feeds are read again, for a part of the keys
/// each.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// What a key takes beside itself.
const EXTRA: usize = 96;

/// What feeds tell of a key: the newest version on each copy, and whether it is a delete.
pub(crate) type Told = SmallVec<[(Version, bool); 4]>;

/// What feeds tell of keys in a range of buckets.
pub(crate) struct Table {
    from: u64,
    first: u16,
    pub(crate) last: u16,
    pub(crate) keys: HashMap<Box<[u8]>, Told>,
    bytes: usize,
}

impl Table {
    pub(crate) fn new(from: u64, first: u16) -> Self {
        Self { from, first, last: u16::MAX, keys: HashMap::new(), bytes: 0 }
    }

    pub(crate) fn buckets(&self) -> Option<Buckets> {
        let is_all = (self.first, self.last) == (0, u16::MAX);
        if is_all { None } else { format!("{}-{}", self.first, self.last).parse().ok() }
    }

    fn has(&self, key: &[u8]) -> bool {
        (self.first..=self.last).contains(&Buckets::of(key))
    }

    /// Takes what a feed has told of a key of `copy`, one of `copies`.
    pub(crate) fn note(&mut self, key: &[u8], version: Version, deleted: bool, copy: usize, copies: usize) {
        if version.millis() < self.from || !self.has(key) {
            return;
        }
        if !self.keys.contains_key(key) {
            self.bytes += key.len() + EXTRA;
            self.keys.insert(key.into(), SmallVec::from_elem((Version::ZERO, false), copies));
            while self.bytes > BYTES_MAX && self.last > self.first {
                self.last = self.first + (self.last - self.first) / 2;
                let last = self.last;
                self.keys.retain(|key, _| Buckets::of(key) <= last);
                self.bytes = self.keys.keys().map(|key| key.len() + EXTRA).sum();
            }
        }
        if let Some(told) = self.keys.get_mut(key).map(|told| &mut told[copy]) {
            *told = (*told).max((version, deleted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: u64 = 1_790_000_000_000;

    fn at(millis: u64) -> Version {
        Version::at(millis)
    }

    #[test]
    fn the_newest_that_each_copy_tells_is_kept_and_what_is_older_than_the_span_is_not() {
        let mut table = Table::new(FROM, 0);
        table.note(b"old", at(FROM - 1), false, 0, 3);
        table.note(b"key", at(FROM), false, 0, 3);
        table.note(b"key", at(FROM + 2), true, 2, 3);
        table.note(b"key", at(FROM + 1), false, 2, 3);
        let expected = [(at(FROM), false), (Version::ZERO, false), (at(FROM + 2), true)];
        assert_eq!(table.keys.keys().map(|key| &**key).collect::<Vec<_>>(), [b"key"]);
        assert_eq!(table.keys[&b"key"[..]].as_slice(), expected);
    }

    /// Passes over the feeds, each for as many keys as there is room for.
    #[test]
    fn more_keys_than_there_is_room_for_take_several_passes_that_have_each_of_them_once() {
        let key = |number: u32| [&[b'k'; 240][..], &number.to_le_bytes()].concat();
        let (mut first, mut passes, mut seen) = (0, 0, 0);
        loop {
            let mut table = Table::new(FROM, first);
            for number in 0..150_000 {
                table.note(&key(number), at(FROM), false, 0, 3);
                assert!(table.bytes <= BYTES_MAX);
            }
            let keys = table.keys.keys();
            assert!(keys.clone().all(|key| (first..=table.last).contains(&Buckets::of(key))));
            assert_eq!(table.bytes, keys.map(|key| key.len() + EXTRA).sum::<usize>());
            let told = table.buckets();
            assert!(
                told.is_none_or(|told| (0..150_000).all(|number| told.has(&key(number)) == table.has(&key(number))))
            );
            (seen, passes) = (seen + table.keys.len(), passes + 1);
            match table.last.checked_add(1) {
                Some(next) => first = next,
                None => break,
            }
        }
        assert_eq!(seen, 150_000);
        assert!(passes > 1);
    }
}
