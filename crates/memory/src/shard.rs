//! One shard: an index over two logs, and everything that happens under its lock.
//!
//! This file holds the state, how a key is found, and the small steps all commands share. Commands are in `read`, `write`,
//! `arithmetic` and `large`, memory in `log` and `reclaim`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use moneta_index::{Index, Position, Walk};
use moneta_pages::PagePool;
use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::versions::{Floors, Tombstones, Versioning};
use moneta_store::{Clock, ItemMeta, Key, KeyHash, StoreStats, Version};

use crate::ghosts::Ghosts;
use crate::hash_bits::{HIT_BITS, TAG_BITS};
use crate::numbers::{Block, Numbers};
use crate::probation::Probation;
use crate::record::{CasBase, Header, Stamp, mark};
use crate::report::MemoryStats;
use crate::segments::{Location, Log, Segments};

/// Hits counted per item; more do not matter (S3-FIFO caps at 3).
const HITS_MAX: u64 = (1 << HIT_BITS) - 1;
const LOCATION_MASK: u64 = (1 << Location::BITS) - 1;

/// What all shards of a store have in common.
#[derive(Debug)]
pub(crate) struct ShardsShared {
    pub(crate) pool: Arc<PagePool>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) seed: KeyHash,
    pub(crate) versioning: Versioning,
    /// The last CAS value that a shard took, where they are counted.
    pub(crate) count: CachePadded<AtomicU64>,
    pub(crate) item_max: usize,
    pub(crate) evict: bool,
}

/// A shard's state; the engine keeps it in a lock.
pub(crate) struct Shard {
    pub(crate) shared: Arc<ShardsShared>,
    /// Pages this shard may use for index, logs and ghosts together.
    pub(crate) quota: usize,
    pub(crate) index: Index<TAG_BITS>,
    pub(crate) segments: Segments,
    pub(crate) ghosts: Ghosts,
    /// What the small log may take.
    pub(crate) probation: Probation,
    /// Makes the CAS values of what is written here.
    cas_values: Numbers,
    /// Deletes that are remembered.
    pub(crate) tombstones: Tombstones,
    /// The flushes that are known.
    pub(crate) floors: Floors,
    /// The moment a delayed flush takes effect; `u32::MAX` if none waits.
    pub(crate) flush_at: u32,
    /// Sweeps out what a flush from elsewhere has taken; until its end, such items may be in the index.
    pub(crate) sweep: Option<Walk>,
    pub(crate) stats: StoreStats,
    pub(crate) numbers: MemoryStats,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Where the search for segments worth cleaning goes on.
    pub(crate) clean_next: u32,
    /// Sweeps left that may free nothing until eviction has advanced by a segment, and how far it has advanced.
    pub(crate) vain_sweeps: u32,
    pub(crate) scanned_since_tidying: usize,
    /// The second and the number of items at which tidying all gained nothing.
    pub(crate) tidied_in_vain: (u32, usize),
    /// Times everything was dropped.
    pub(crate) flushes: u64,
    /// Versions that were refused because they are ahead of the clock.
    pub(crate) refused_ahead: u64,
    /// Values on their way from one place to another.
    pub(crate) scratch: Vec<u8>,
}

/// A live item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) position: Position,
    pub(crate) location: Location,
    pub(crate) hits: u64,
    pub(crate) header: Header,
}

/// Why there is no live item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) expired: bool,
}

pub(crate) fn payload(location: Location, hits: u64) -> u64 {
    location.0 | hits << Location::BITS
}

pub(crate) fn location_of(payload: u64) -> Location {
    Location(payload & LOCATION_MASK)
}

pub(crate) fn hits_of(payload: u64) -> u64 {
    payload >> Location::BITS
}

impl Shard {
    /// An empty shard, number `number` of `shards`, of at most `quota` pages.
    pub(crate) fn new(shared: Arc<ShardsShared>, (number, shards): (u64, u64), quota: usize) -> std::io::Result<Self> {
        let index = Index::new(shared.pool.take()?);
        let cas_values = match shared.versioning.counts_from {
            None => Numbers::Versions(shared.versioning.clock(number, shards)),
            Some(_) => Numbers::Counted(Block::default()),
        };
        let tombstones = Tombstones::of_shard(&shared.versioning, shards, shared.clock.millis());
        Ok(Self {
            shared,
            quota,
            index,
            segments: Segments::new(),
            ghosts: Ghosts::default(),
            probation: Probation::new(),
            cas_values,
            tombstones,
            floors: Floors::default(),
            flush_at: u32::MAX,
            sweep: None,
            stats: StoreStats::default(),
            numbers: MemoryStats::default(),
            observer: None,
            clean_next: 0,
            vain_sweeps: 1,
            scanned_since_tidying: 0,
            tidied_in_vain: (0, 0),
            flushes: 0,
            refused_ahead: 0,
            scratch: Vec::new(),
        })
    }

    /// Brings the shard to the present: a flush whose moment has come happens now. Every command begins here.
    #[inline]
    pub(crate) fn settle(&mut self) -> u32 {
        let now = self.shared.clock.now();
        if now >= self.flush_at {
            self.fall(now);
        }
        now
    }

    pub(crate) fn clear(&mut self) {
        self.sweep = None;
        self.flushes += 1;
        self.index.clear();
        self.segments.clear();
        self.ghosts.clear();
    }

    /// The item under a key. One whose time is up is taken out on the way.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key<'_>, now: u32) -> Result<Found, Missing> {
        let segments = &self.segments;
        let found = self.index.find(key.hash, |payload| segments.key(location_of(payload)) == key.bytes);
        let Some((position, payload)) = found else { return Err(Missing { expired: false }) };
        let location = location_of(payload);
        let header = self.segments.header(location);
        let found = Found { position, location, hits: hits_of(payload), header };
        if self.sweep.is_some() && self.is_flushed(&found) {
            self.remove(&found);
            return Err(Missing { expired: false });
        }
        if header.expiry.is_dead(now) {
            self.expire(&found);
            return Err(Missing { expired: true });
        }
        Ok(found)
    }

    /// Asks for the cache lines of the records that may be a key's.
    pub(crate) fn prefetch_record(&self, hash: u64) {
        let segments = &self.segments;
        self.index.find(hash, |payload| {
            segments.prefetch(location_of(payload));
            false
        });
    }

    /// Takes out an item whose time is up.
    pub(crate) fn expire(&mut self, found: &Found) {
        self.stats.reclaimed += 1;
        self.stats.expired_unfetched += u64::from(!found.header.is(mark::FETCHED));
        self.tell_removal(found.location, &found.header, RemovalCause::Expired);
        if self.shared.versioning.cluster {
            self.remember_expired(found);
        }
        self.remove(found);
    }

    /// Takes out an item to make room.
    pub(crate) fn evict(&mut self, found: &Found) {
        self.note_eviction(found.location, &found.header);
        self.remove(found);
    }

    /// Takes out an item that the index has no room for any more.
    pub(crate) fn evict_unindexed(&mut self, location: Location) {
        let header = self.segments.header(location);
        self.note_eviction(location, &header);
        self.segments.kill(location);
    }

    fn note_eviction(&mut self, location: Location, header: &Header) {
        self.stats.evictions += 1;
        self.stats.evicted_unfetched += u64::from(!header.is(mark::FETCHED));
        self.numbers.evicted_small += u64::from(self.segments.log(location) == Log::Small);
        self.stats.evicted_idle = self.shared.clock.now().saturating_sub(header.last_access).into();
        self.tell_removal(location, header, RemovalCause::Evicted);
    }

    /// Takes out an item.
    #[inline]
    pub(crate) fn remove(&mut self, found: &Found) {
        self.index.remove(found.position);
        self.segments.kill(found.location);
    }

    fn tell_removal(&self, location: Location, header: &Header, cause: RemovalCause) {
        let Some(observer) = &self.observer else { return };
        observer.removed(&Removed {
            key: self.key_at(location, header),
            meta: self.meta_at(location, header),
            value_bytes: header.value_length as usize,
            cause,
        });
    }

    /// The key of an item.
    pub(crate) fn key(&self, found: &Found) -> &[u8] {
        self.key_at(found.location, &found.header)
    }

    fn key_at(&self, location: Location, header: &Header) -> &[u8] {
        let start = header.bytes();
        self.segments.bytes(location, start..start + header.key_length as usize)
    }

    /// Counts a read: hit bits, last access, fetched.
    #[inline]
    pub(crate) fn bump(&mut self, found: &Found, now: u32) {
        if found.hits < HITS_MAX {
            self.index.replace(found.position, payload(found.location, found.hits + 1));
        }
        if found.header.last_access != now || !found.header.is(mark::FETCHED) {
            let bytes = self.segments.bytes_mut(found.location, 0, 8);
            bytes[0] |= mark::FETCHED;
            bytes[4..8].copy_from_slice(&now.to_le_bytes());
        }
    }

    /// What is known of an item besides key and value, as no request has touched it.
    #[inline]
    pub(crate) fn meta(&self, found: &Found) -> ItemMeta {
        self.meta_at(found.location, &found.header)
    }

    #[inline]
    fn meta_at(&self, location: Location, header: &Header) -> ItemMeta {
        ItemMeta {
            flags: header.flags,
            cas: self.cas_at(location, header),
            unversioned: self.is_unversioned(header),
            expiry: header.expiry,
            expiry_before: header.expiry,
            last_access: header.last_access,
            fetched: header.is(mark::FETCHED),
            stale: header.is(mark::STALE),
            token_sent: header.is(mark::TOKEN),
            won: false,
        }
    }

    /// An item's CAS value.
    #[inline]
    pub(crate) fn cas(&self, found: &Found) -> u64 {
        self.cas_at(found.location, &found.header)
    }

    #[inline]
    fn cas_at(&self, location: Location, header: &Header) -> u64 {
        self.segments.base(location).decode(header)
    }

    /// Whether an item's CAS value is no version: a client chose it, or it is counted.
    #[inline]
    fn is_unversioned(&self, header: &Header) -> bool {
        header.is_unversioned() || self.shared.versioning.counts_from.is_some()
    }

    /// What orders an item among all writes of its key.
    #[inline]
    pub(crate) fn version(&self, found: &Found) -> Version {
        if self.is_unversioned(&found.header) { Version::ZERO } else { Version(self.cas(found)) }
    }

    /// An item's CAS value, as what it is.
    pub(crate) fn stamp(&self, found: &Found) -> Stamp {
        let cas = self.cas(found);
        if self.is_unversioned(&found.header) { Stamp::Chosen(cas) } else { Stamp::Version(Version(cas)) }
    }

    /// The CAS value of a write that happens now: its version, where they are versions.
    #[inline]
    pub(crate) fn next_version(&mut self) -> Version {
        match &mut self.cas_values {
            Numbers::Versions(clock) => clock.next(self.shared.clock.millis()),
            Numbers::Counted(block) => Version(block.next(&self.shared.count)),
        }
    }

    /// At least every version made or seen here.
    pub(crate) fn newest_version(&self) -> Version {
        self.cas_values.newest_version()
    }

    /// Makes all further versions greater than one that came from elsewhere.
    #[inline]
    pub(crate) fn note_version(&mut self, version: Version) {
        self.cas_values.note_version(version);
    }

    /// What the CAS distances of a segment that is opened now count from.
    pub(crate) fn cas_base(&self) -> CasBase {
        self.cas_values.base()
    }

    /// The CAS value of what is stored now: that which it comes with, or the next version.
    #[inline]
    pub(crate) fn new_stamp(&mut self, given: Option<Stamp>) -> Stamp {
        match given {
            None => Stamp::Version(self.next_version()),
            Some(stamp) => {
                if let Stamp::Version(version) = stamp {
                    self.note_given(version);
                }
                stamp
            }
        }
    }

    /// A CAS value that a tier below made. A version from far ahead must not take the clock along.
    fn note_given(&mut self, version: Version) {
        match &mut self.cas_values {
            Numbers::Counted(block) => block.note(version.0),
            Numbers::Versions(clock) => {
                if !self.shared.versioning.is_ahead(version, self.shared.clock.millis()) {
                    clock.note(version);
                }
            }
        }
    }

    /// Gives an item another CAS value where it lies, if its record can hold it. The caller writes the header.
    pub(crate) fn restamp(&self, found: &Found, header: &mut Header, stamp: Stamp) -> bool {
        let Some((form, field)) = self.segments.base(found.location).refit(header.marks, stamp) else { return false };
        header.marks = header.marks & !mark::CAS | form;
        header.cas_field = field;
        true
    }

    /// Rewrites the header of an item where it lies; its form must not have changed.
    pub(crate) fn write_header(&mut self, location: Location, header: &Header) {
        let length = header.bytes();
        header.write(self.segments.bytes_mut(location, 0, length));
    }

    /// The value of an item that is short enough to lie whole in its record, or a copy put together in `scratch`.
    pub(crate) fn copy_value(&self, found: &Found, into: &mut Vec<u8>) {
        let start = found.header.value_start();
        into.extend_from_slice(self.segments.bytes(found.location, start..start + found.header.first_length as usize));
        let mut next = found.header.next;
        while found.header.split && next != crate::record::NO_FRAGMENT {
            let (fragment, payload) = self.segments.fragment(Location(next));
            into.extend_from_slice(payload);
            next = fragment.next;
        }
    }
}
