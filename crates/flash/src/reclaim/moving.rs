//! Records that a device did not take: appended again to another region, from the RAM of theirs.
//!
//! Of each key only its last record in the region counts, and only if that touches a bad block. If the index still points to
//! it, the whole item goes elsewhere. If the index has nothing, the record may be what hides an older one, so a tombstone
//! takes its place. If the index points elsewhere, a newer record stands in.

use std::collections::HashSet;

use moneta_store::Key;

use crate::flusher::bad_blocks::BadBlocks;
use crate::inner::Inner;
use crate::log::sealed::Sealed;
use crate::log::writer::{CARRIED, GROUPS, Over};
use moneta_device::format::VERSION;
use moneta_device::format::footer;
use moneta_device::format::record::{Draft, View, mark};
use moneta_device::format::region::{HEADER_BYTES, TRAILER_BYTES};

impl Inner {
    /// Ends an open region, so that nothing more is appended to it.
    #[cold]
    pub(crate) fn seal(&self, region: usize) {
        let is_open = |group: &usize| self.log.with_open(*group, |open| open.is_some_and(|open| open.region == region));
        (0..GROUPS).filter(is_open).for_each(|group| self.log.rotate(group));
    }

    /// Appends the records of a full region again that touch bad blocks. False if there is no room for all of them; those that
    /// were appended before are not appended again.
    #[cold]
    pub(crate) fn move_out(&self, sealed: &Sealed, blocks: &BadBlocks) -> bool {
        let region = self.regions.get(sealed.region);
        if region.sequence() != sealed.sequence || sealed.buffer.is_discarded() {
            return true;
        }
        let footer = &sealed.tail[..sealed.tail.len() - TRAILER_BYTES];
        let (_, _, entries) = footer::decode_head(footer, VERSION).expect("it was written by this build");
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for entry in footer::entries(entries) {
            let start = ends.last().map_or(HEADER_BYTES, |(_, end)| *end);
            ends.push((start, start + entry.length as usize));
        }
        let mut met = HashSet::new();
        ends.iter().rev().all(|(start, end)| {
            let view = View::read(sealed.buffer.slice(*start..*end)).expect("a record is whole in RAM");
            let key = Key::new(view.key(), self.devices.key_hash());
            let is_last = met.insert(self.identities.identity(key.hash));
            !is_last || !blocks.touch(*start..*end) || self.move_record(&key, view, sealed.region, *start)
        })
    }

    /// False if there is no room.
    fn move_record(&self, key: &Key<'_>, view: View<'_>, region: usize, start: usize) -> bool {
        let block = self.regions.block_at(region, start);
        let meta = view.meta(self.regions.get(region).base(), false);
        let draft = Draft {
            key: key.bytes,
            value: [view.value(), &[]],
            marks: view.header.marks & (mark::STALE | mark::TOKEN | mark::FETCHED),
            expiry: meta.expiry,
            flags: meta.flags,
            cas: Some(meta.cas),
            unversioned: meta.unversioned,
        };
        let hash = draft.content_hash();
        let over = Over { block: Some(block), floor: self.log.floor() };
        let mut shard = self.shard(key.hash).lock();
        match self.find(&shard, key.hash) {
            Some((_, location)) if location.block() == block && !view.header.is(mark::TOMBSTONE) => {
                let Ok(appended) = self.log.append(&draft, key.hash, hash, CARRIED, over) else { return false };
                self.enter(&mut shard, key.hash, appended.location);
                true
            }
            Some(_) => true,
            None => {
                drop(shard);
                let is_delete = view.header.is(mark::TOMBSTONE) && !meta.unversioned;
                self.append_tombstone(key, is_delete.then(|| meta.version()))
            }
        }
    }
}
