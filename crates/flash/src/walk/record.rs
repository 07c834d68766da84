//! The records that a walk meets: each is shown, or replaced by its key's newest version, or passed over because the walk will
//! meet that version later.

use moneta_store::{ItemMeta, Key, OwnedKey, Walked};

use super::log::{LogReader, Piece, Stand};
use super::owed::Owed;
use crate::counters::count;
use crate::inner::Inner;
use crate::operations::lookup::{Look, Present, find_record};
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Salt, View, mark};
use moneta_device::format::stamp::second_before;

/// Records in a batch.
const BATCH: usize = 512;

/// Most bytes of a key.
const KEY_MAX: usize = 250;

/// What to do with a record.
enum Met {
    /// Show it: it is the newest version.
    Newest,
    /// Pass over it: its key has no item, or the walk will meet the newest version later.
    Passed,
    /// Show the newest version now: the walk will not reach it.
    Elsewhere,
}

impl Inner {
    /// Shows a piece's records; returns how far it came.
    ///
    /// Finds each block's first record by the table of regions, so that a damaged record hides only the rest of its block.
    pub(super) fn show_piece(
        &self,
        piece: &Piece,
        reader: &LogReader,
        owed: &mut Owed,
        show: &mut dyn FnMut(&Walked<'_>),
    ) -> Stand {
        let (start, end) = (piece.start(), (piece.start() + piece.bytes().len()).min(piece.stop));
        let mut at = piece.offset;
        for _ in 0..BATCH {
            let Some((first, block_end)) = self.next_record(piece, at) else {
                return Stand { offset: piece.stop, wanted: 0 };
            };
            at = at.max(first);
            let block_start = at / BLOCK * BLOCK;
            let here = |wanted: usize| Stand { offset: at, wanted };
            // The block's last record of a key can be found only if one more block is available.
            if end < piece.stop && end < block_start + 2 * BLOCK {
                return here(2 * BLOCK);
            }
            let view = piece.bytes().get(at - start..end - start).and_then(View::read);
            // A record that does not fit into the region is damaged.
            let view = view.filter(|view| at + view.header.len() <= piece.stop);
            let Some(view) = view else {
                at = block_end;
                continue;
            };
            let next = at + view.header.len();
            if next > end {
                return here(next - block_start);
            }
            if !view.header.is(mark::TOMBSTONE)
                && let Some(key) = self.show_record(piece, at, &view, reader, show)
            {
                owed.add(key);
            }
            at = next.min(block_end);
            if owed.is_full() {
                break;
            }
        }
        Stand { offset: at, wanted: 0 }
    }

    /// The first record at or after `at` that is the first of its block, and the end of that block.
    fn next_record(&self, piece: &Piece, at: usize) -> Option<(usize, usize)> {
        let blocks = at / BLOCK..piece.stop.div_ceil(BLOCK);
        let first = |block: usize| self.regions.first_record(self.regions.block_at(piece.region, block * BLOCK));
        let found = blocks.into_iter().find_map(|block| first(block).map(|first| (first, (block + 1) * BLOCK)));
        found.filter(|(first, _)| at.max(*first) < piece.stop)
    }

    /// Shows a record's key if this is the place to do so. Returns the key if its newest version has to be read first.
    fn show_record(
        &self,
        piece: &Piece,
        at: usize,
        view: &View<'_>,
        reader: &LogReader,
        show: &mut dyn FnMut(&Walked<'_>),
    ) -> Option<OwnedKey> {
        if view.key().len() > KEY_MAX {
            return None;
        }
        let key = Key::new(view.key(), self.devices.key_hash());
        let shard = self.shard(key.hash).lock();
        let (_, location) = self.find(&shard, key.hash)?;
        let met = self.meet(piece, at, key.bytes, location.block(), reader);
        let salt = Salt { key: piece.salt, offset: at as u32 };
        let is_sound = matches!(met, Met::Passed) || !piece.is_from_device() || view.is_sound(salt);
        match met {
            Met::Passed => {}
            Met::Newest if !is_sound => count(&self.counters.checksum_failures, 1),
            Met::Newest => {
                let now = self.clock.now();
                let meta = view.meta(piece.base, location.hits() > 0);
                if self.is_below_floor(meta.version()) {
                    return None;
                }
                let meta = ItemMeta { last_access: second_before(now, meta.last_access), ..meta };
                show_item(now, key.bytes, meta, view, show);
            }
            Met::Elsewhere if !is_sound => {}
            Met::Elsewhere => match self.look(&shard, &key, None) {
                Look::Absent | Look::Foreign => {}
                Look::Present(present) => self.show_present(&key, &present, show),
                Look::On(_) => return Some(OwnedKey::of(&key)),
            },
        }
        None
    }

    /// Compares a record with its key's index entry, under the lock of the key's shard.
    fn meet(&self, piece: &Piece, at: usize, key: &[u8], block: usize, reader: &LogReader) -> Met {
        let region = self.regions.region_of(block);
        if region != piece.region {
            return if reader.is_ahead(self.regions.get(region).sequence()) { Met::Passed } else { Met::Elsewhere };
        }
        let block_start = self.regions.offset_of(block);
        if block_start + BLOCK <= piece.stop && block_start / BLOCK != at / BLOCK {
            return if block_start > at { Met::Passed } else { Met::Elsewhere };
        }
        // Of several versions in the block, the index entry stands for the last.
        let (bytes, start) = (piece.bytes(), piece.start());
        let block_end = (start + bytes.len()).min(block_start + BLOCK);
        let first = self.regions.first_record(block).filter(|first| *first >= start);
        let last = first.and_then(|first| find_record(bytes, start, first, block_end, key)).map(|last| start + last);
        match last {
            Some(last) if last == at => Met::Newest,
            Some(last) if last < piece.stop => Met::Passed,
            Some(_) => Met::Elsewhere,
            // The entry belongs to another key with the same identity.
            None => Met::Passed,
        }
    }

    /// Shows a key's item if it has not expired.
    pub(super) fn show_present(&self, key: &Key<'_>, present: &Present<'_>, show: &mut dyn FnMut(&Walked<'_>)) {
        let now = self.clock.now();
        show_item(now, key.bytes, present.meta(now), &present.view(), show);
    }
}

fn show_item(now: u32, key: &[u8], meta: ItemMeta, view: &View<'_>, show: &mut dyn FnMut(&Walked<'_>)) {
    if !meta.expiry.is_dead(now) {
        show(&Walked { key, meta, value_bytes: view.value().len(), size: view.header.len() });
    }
}
