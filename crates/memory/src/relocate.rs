//! Moving an item to the young end of a log: because it earned to stay, or because its segment is cleaned.

use crate::log::{Cas, Draft, NoRoom};
use crate::record::{FRAGMENT_HEADER_BYTES, Fragment, Header, LARGE, NO_FRAGMENT, mark};
use crate::segments::{Location, Log};
use crate::shard::{Found, Shard, payload};

impl Shard {
    /// Moves an item to the young end of a log. False if there is no room for it there.
    pub(crate) fn relocate(&mut self, found: &Found, hash: u64, log: Log, hits: u64) -> bool {
        if found.header.value_length as usize > LARGE {
            return self.relocate_large(found, hash, log, hits);
        }
        let header = found.header;
        let stamp = self.stamp(found);
        let mut value = std::mem::take(&mut self.scratch);
        value.clear();
        // The key goes along: the draft cannot borrow from the segments that are about to change.
        value.extend_from_slice(self.key(found));
        self.copy_value(found, &mut value);
        let (key, bytes) = value.split_at(header.key_length as usize);
        let draft = Draft {
            key,
            hash,
            value_length: bytes.len(),
            marks: header.marks & (mark::FETCHED | mark::STALE | mark::TOKEN),
            cas: Cas::Lasting(stamp),
            expiry: header.expiry,
            flags: header.flags,
            last_access: header.last_access,
            all_fields: false,
        };
        let moved = match self.take_room(log, &draft) {
            Ok(room) => {
                self.fill(&room, bytes, &[]);
                self.index.replace(found.position, payload(room.location, hits));
                self.segments.kill(found.location);
                true
            }
            Err(_) => false,
        };
        self.scratch = value;
        moved
    }

    /// Moves a large item without copying most of it: segments that hold nothing but one of its fragments change their
    /// place in the log as they are. At most the first and the last part, less than a segment each, are copied.
    fn relocate_large(&mut self, found: &Found, hash: u64, log: Log, hits: u64) -> bool {
        let chain = self.chain(&found.header);
        let copied: Vec<bool> = chain.iter().map(|&location| !self.segments.holds_only(location)).collect();
        // Everything that can fail comes first: room for the parts to be copied.
        let Ok(head) = self.copy_run(log, found.location, found.header.size(), found) else { return false };
        let mut moved = Vec::with_capacity(chain.len());
        for (&location, &copy) in chain.iter().zip(&copied) {
            let size = self.segments.fragment(location).0.size();
            match if copy { self.copy_run(log, location, size, found) } else { Ok(location) } {
                Ok(location) => moved.push(location),
                Err(NoRoom) => {
                    self.abandon_copies(head, &found.header, &moved, &copied);
                    return false;
                }
            }
        }
        self.relink(head, &found.header, &moved, hash);
        self.index.replace(found.position, payload(head, hits));
        self.segments.bury(found.location, found.header.size());
        for (&location, &copy) in chain.iter().zip(&copied) {
            if copy {
                let size = self.segments.fragment(location).0.size();
                self.segments.bury(location, size);
            } else {
                self.segments.rejuvenate(location.segment(), log);
            }
        }
        // A CAS value kept as a distance counts from the segment it was written to; large items keep theirs in full.
        debug_assert!(found.header.is(mark::CAS_LONG));
        true
    }

    /// The fragments of a split item.
    fn chain(&self, header: &Header) -> Vec<Location> {
        let mut chain = Vec::new();
        let mut next = if header.split { header.next } else { NO_FRAGMENT };
        while next != NO_FRAGMENT {
            chain.push(Location(next));
            next = self.segments.fragment(Location(next)).0.next;
        }
        chain
    }

    /// Copies the record or fragment at `from` to the young end of a log as it is.
    fn copy_run(&mut self, log: Log, from: Location, size: usize, found: &Found) -> Result<Location, NoRoom> {
        if self.segments.room(log) < size {
            self.open_segment(log)?;
        }
        let to = self.segments.take(log, size, found.header.expiry);
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(self.segments.bytes(from, 0..size));
        self.segments.bytes_mut(to, 0, size).copy_from_slice(&bytes);
        self.scratch = bytes;
        Ok(to)
    }

    /// Points each part of a split item to the next.
    fn relink(&mut self, head: Location, header: &Header, fragments: &[Location], hash: u64) {
        let next_of = |at: usize| fragments.get(at).map_or(NO_FRAGMENT, |next| next.0);
        self.write_header(head, &Header { next: next_of(0), ..*header });
        for (at, &location) in fragments.iter().enumerate() {
            let fragment = Fragment { next: next_of(at + 1), hash, ..self.segments.fragment(location).0 };
            fragment.write(self.segments.bytes_mut(location, 0, FRAGMENT_HEADER_BYTES));
        }
    }

    fn abandon_copies(&mut self, head: Location, header: &Header, moved: &[Location], copied: &[bool]) {
        self.segments.bury(head, header.size());
        for (&location, _) in moved.iter().zip(copied).filter(|&(_, &copy)| copy) {
            let size = self.segments.fragment(location).0.size();
            self.segments.bury(location, size);
        }
    }
}
