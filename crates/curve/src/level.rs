//! A stack of sampled keys in order of their last use: where a key lies in it is its reuse distance.
//!
//! ```text
//!  slot   0                                      next     2 x keys
//!         +----+----+----+----+----+----+----+----+-----------+
//!  size   | 90 | -- | 40 | 70 | -- | -- | 55 | 90 |           |     --: the key was used again, or is gone
//!         +----+----+----+----+----+----+----+----+-----------+
//!         least recently used ──────────> most recently used
//!         └ block of 32 slots ┘  sums of a block, and of 16 blocks, are kept
//! ```
//!
//! A use takes the key's slot away and gives it the next one. When no slot is left the keys move to the front, in their order: once in
//! as many uses as there are keys at most.

use hashbrown::HashTable;

/// Slots for each key: with two, the moves to the front cost a use a few instructions.
const SLOTS_EACH: usize = 2;
/// Slots of a block, one bit each in a word.
const BLOCK: usize = 32;
/// Blocks of a group.
const GROUP: usize = 16;

/// A sampled key. Two keys that agree in the bits that are kept are taken for one: two in a million in a full level.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u32,
    slot: u32,
    /// Bytes of the item, 1 at least.
    size: u32,
    /// Unix second at which the item expires; 0: never.
    expires: u32,
}

/// What is known of a key in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    place: u16,
    /// Bytes of the item.
    pub(crate) size: u32,
    /// Unix second at which the item expires; 0: never.
    pub(crate) expires: u32,
}

/// Keys used since another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Above {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// The stack. It takes 35 bytes for each key that it may have, and no memory before the first key.
#[derive(Debug)]
pub(crate) struct Level {
    /// Most keys: a multiple of the slots of a group.
    most: usize,
    table: HashTable<u16>,
    entries: Vec<Entry>,
    /// The first entry that is in no use; its slot is the next one.
    free: Option<u16>,
    sizes: Vec<u32>,
    /// The entry of each slot.
    owners: Vec<u16>,
    /// Which slots of a block are taken.
    taken: Vec<u32>,
    block_keys: Vec<u32>,
    block_bytes: Vec<u64>,
    group_keys: Vec<u32>,
    group_bytes: Vec<u64>,
    next: usize,
    /// No slot before it is taken.
    oldest: usize,
    has_dropped: bool,
}

/// The table's hash of a key.
#[inline]
fn table_hash(hash: u32) -> u64 {
    // Spreads the bits over the word, by 2^64 over the golden ratio.
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Level {
    /// An empty one of at most so many keys.
    pub(crate) fn new(most: usize) -> Self {
        debug_assert!(
            most.is_multiple_of(BLOCK * GROUP) && most <= 1 << 16,
            "groups are whole, and places fit 16 bits"
        );
        Self {
            most,
            table: HashTable::new(),
            entries: Vec::new(),
            free: None,
            sizes: Vec::new(),
            owners: Vec::new(),
            taken: Vec::new(),
            block_keys: Vec::new(),
            block_bytes: Vec::new(),
            group_keys: Vec::new(),
            group_bytes: Vec::new(),
            next: 0,
            oldest: 0,
            has_dropped: false,
        }
    }

    /// Takes its memory.
    fn begin(&mut self) {
        let slots = SLOTS_EACH * self.most;
        self.table.reserve(self.most, |_| 0);
        self.entries.reserve_exact(self.most);
        self.sizes = vec![0; slots];
        self.owners = vec![0; slots];
        self.taken = vec![0; slots / BLOCK];
        self.block_keys = vec![0; slots / BLOCK];
        self.block_bytes = vec![0; slots / BLOCK];
        self.group_keys = vec![0; slots / BLOCK / GROUP];
        self.group_bytes = vec![0; slots / BLOCK / GROUP];
    }

    /// Bytes of memory that it has taken.
    pub(crate) fn memory(&self) -> usize {
        self.table.allocation_size()
            + self.entries.capacity() * size_of::<Entry>()
            + self.owners.capacity() * size_of::<u16>()
            + (self.sizes.capacity() + self.taken.capacity() + self.block_keys.capacity() + self.group_keys.capacity())
                * size_of::<u32>()
            + (self.block_bytes.capacity() + self.group_bytes.capacity()) * size_of::<u64>()
    }

    /// Keys in the stack.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the next key that is inserted drops another one.
    pub(crate) fn is_full(&self) -> bool {
        self.len() == self.most
    }

    /// Bytes of all items in the stack.
    pub(crate) fn bytes(&self) -> u64 {
        self.group_bytes.iter().sum()
    }

    /// The key with this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<Found> {
        let hash = hash as u32;
        let place = *self.table.find(table_hash(hash), |&place| self.entries[place as usize].hash == hash)?;
        let Entry { size, expires, .. } = self.entries[place as usize];
        Some(Found { place, size, expires })
    }

    /// What was used since the key was.
    pub(crate) fn above(&self, found: Found) -> Above {
        let slot = self.entries[found.place as usize].slot as usize;
        let block = slot / BLOCK;
        let group = block / GROUP;
        // Two shifts, since a shift by all bits of a word is none.
        let later = self.taken[block] >> (slot % BLOCK) >> 1;
        let mut keys = u64::from(later.count_ones());
        let mut bytes: u64 = self.sizes[slot + 1..(block + 1) * BLOCK].iter().map(|&size| u64::from(size)).sum();
        let rest = block + 1..(group + 1) * GROUP;
        let used = ..=(self.next - 1) / (BLOCK * GROUP);
        keys += u64::from(self.block_keys[rest.clone()].iter().sum::<u32>());
        bytes += self.block_bytes[rest].iter().sum::<u64>();
        keys += u64::from(self.group_keys[used][group + 1..].iter().sum::<u32>());
        bytes += self.group_bytes[used][group + 1..].iter().sum::<u64>();
        Above { keys, bytes }
    }

    /// The key is used: its item has so many bytes now.
    pub(crate) fn touch(&mut self, found: Found, size: u32, expires: u32) {
        let place = found.place as usize;
        self.leave(self.entries[place].slot as usize);
        self.entries[place].size = size.max(1);
        self.entries[place].expires = expires;
        self.enter(found.place);
    }

    /// A key that is not in the stack is used. The least recently used one leaves, if the stack is full.
    pub(crate) fn insert(&mut self, hash: u64, size: u32, expires: u32) {
        if self.sizes.is_empty() {
            self.begin();
        }
        if self.is_full() {
            self.drop_oldest();
        }
        let entry = Entry { hash: hash as u32, slot: 0, size: size.max(1), expires };
        let place = match self.free {
            Some(place) => {
                self.free = u16::try_from(self.entries[place as usize].slot).ok();
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u16
            }
        };
        let Self { table, entries, .. } = self;
        table.insert_unique(table_hash(hash as u32), place, |&place| table_hash(entries[place as usize].hash));
        self.enter(place);
    }

    /// The key's item is gone.
    pub(crate) fn remove(&mut self, found: Found) {
        let Entry { hash, slot, .. } = self.entries[found.place as usize];
        self.leave(slot as usize);
        if let Ok(entry) = self.table.find_entry(table_hash(hash), |&place| place == found.place) {
            entry.remove();
        }
        self.entries[found.place as usize].slot = self.free.map_or(u32::MAX, u32::from);
        self.free = Some(found.place);
    }

    /// Forgets all keys, and gives its memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// Whether a key ever left for want of room.
    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    fn drop_oldest(&mut self) {
        self.has_dropped = true;
        let mut block = self.oldest / BLOCK;
        while self.taken[block] == 0 {
            block += 1;
        }
        self.oldest = block * BLOCK + self.taken[block].trailing_zeros() as usize;
        let place = self.owners[self.oldest];
        let Entry { size, expires, .. } = self.entries[place as usize];
        self.remove(Found { place, size, expires });
    }

    fn enter(&mut self, place: u16) {
        if self.next == self.sizes.len() {
            self.move_to_front();
        }
        self.put(place, self.next);
        self.next += 1;
    }

    fn put(&mut self, place: u16, slot: usize) {
        let entry = &mut self.entries[place as usize];
        entry.slot = slot as u32;
        let size = entry.size;
        self.sizes[slot] = size;
        self.owners[slot] = place;
        self.taken[slot / BLOCK] |= 1 << (slot % BLOCK);
        self.block_keys[slot / BLOCK] += 1;
        self.block_bytes[slot / BLOCK] += u64::from(size);
        self.group_keys[slot / BLOCK / GROUP] += 1;
        self.group_bytes[slot / BLOCK / GROUP] += u64::from(size);
    }

    fn leave(&mut self, slot: usize) {
        let size = u64::from(std::mem::take(&mut self.sizes[slot]));
        self.taken[slot / BLOCK] &= !(1 << (slot % BLOCK));
        self.block_keys[slot / BLOCK] -= 1;
        self.block_bytes[slot / BLOCK] -= size;
        self.group_keys[slot / BLOCK / GROUP] -= 1;
        self.group_bytes[slot / BLOCK / GROUP] -= size;
    }

    #[cold]
    fn move_to_front(&mut self) {
        let mut to = 0;
        for block in 0..self.taken.len() {
            let mut left = self.taken[block];
            while left != 0 {
                let slot = block * BLOCK + left.trailing_zeros() as usize;
                left &= left - 1;
                let place = self.owners[slot];
                self.leave(slot);
                self.put(place, to);
                to += 1;
            }
        }
        self.next = to;
        self.oldest = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys in order of use, the last one used last.
    type Model = Vec<(u64, u32)>;

    #[derive(Clone, Debug)]
    enum Op {
        Use(u64, u32),
        Remove(u64),
        Clear,
    }

    /// Twice as many keys as there is room for, and enough operations for several moves to the front.
    const MOST: usize = BLOCK * GROUP;

    fn op() -> impl Strategy<Value = Op> {
        let key = 0..2 * MOST as u64;
        prop_oneof![
            2000 => (key.clone(), 1..5000_u32).prop_map(|(key, size)| Op::Use(key, size)),
            400 => key.prop_map(Op::Remove),
            1 => Just(Op::Clear),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn it_orders_keys_as_a_list_does(ops in prop::collection::vec(op(), 1..6000)) {
            let (mut level, mut model) = (Level::new(MOST), Model::new());
            for op in ops {
                match op {
                    Op::Use(key, size) => {
                        let place = model.iter().position(|(known, _)| *known == key);
                        let found = level.find(key);
                        prop_assert_eq!(found.map(|found| found.size), place.map(|place| model[place].1));
                        match (found, place) {
                            (Some(found), Some(place)) => {
                                let later = &model[place + 1..];
                                let bytes = later.iter().map(|(_, size)| u64::from(*size)).sum();
                                prop_assert_eq!(level.above(found), Above { keys: later.len() as u64, bytes });
                                model.remove(place);
                                level.touch(found, size, 0);
                            }
                            _ => level.insert(key, size, 0),
                        }
                        model.push((key, size));
                        if model.len() > MOST {
                            model.remove(0);
                            prop_assert!(level.has_dropped());
                        }
                    }
                    Op::Remove(key) => {
                        if let Some(found) = level.find(key) {
                            level.remove(found);
                        }
                        model.retain(|(known, _)| *known != key);
                    }
                    Op::Clear => {
                        level.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!(level.len(), model.len());
                prop_assert_eq!(level.bytes(), model.iter().map(|(_, size)| u64::from(*size)).sum::<u64>());
                prop_assert!(level.memory() <= MOST * 36);
            }
        }
    }
}
