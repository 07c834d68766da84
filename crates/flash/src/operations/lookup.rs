//! Lookup of a key's record: in the index, in the buffer of a region being filled or written, on a device.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use moneta_index::Position;
use moneta_store::{Cx, ErrorKind, ItemMeta, Key, StoreError, Value, Version};

use crate::counters::count;
use crate::index::location::{Location, SIZE_MAX};
use crate::index::shard::Shard;
use crate::inner::Inner;
use crate::log::buffer::Buffer;
use crate::log::regions::Begins;
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Header, Salt, View, mark};
use moneta_device::format::stamp::second_before;
use moneta_device::io::Aligned;

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;

/// The place of a record on a device, valid while its region keeps its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) region: usize,
    /// The region's sequence number.
    pub(crate) sequence: u64,
    pub(crate) block: usize,
    pub(crate) blocks: usize,
}

impl RecordPlace {
    /// Bytes to read; `usize::MAX` for a record that may be larger than its index entry can express.
    pub(crate) fn bytes(&self) -> usize {
        if self.blocks < SIZE_MAX { self.blocks * BLOCK } else { usize::MAX }
    }
}

/// The bytes read from a place.
pub(crate) struct Fetched {
    pub(crate) place: RecordPlace,
    bytes: Aligned,
    base: u64,
    salt: u64,
    found: Result<usize, NotFound>,
}

impl Fetched {
    /// The range of the fetched bytes that a value occupies, if it is part of them.
    pub(crate) fn range_of(&self, value: &Value<'_>) -> Option<Range<usize>> {
        let value = value.as_slice()?;
        let start = (value.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let range = start..start.checked_add(value.len())?;
        (range.end <= self.bytes.len()).then_some(range)
    }

    /// The bytes that were read.
    pub(crate) fn into_bytes(self) -> Aligned {
        self.bytes
    }
}

/// Why the record was not found at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotFound {
    /// The records there belong to other keys.
    Other,
    /// The record is damaged.
    Damaged,
}

/// The result of a lookup.
pub(crate) enum Look<'f> {
    /// Nothing.
    Absent,
    /// An entry of another key with the same identity.
    Foreign,
    /// Its record.
    Present(Present<'f>),
    /// Probably its record, on a device.
    On(RecordPlace),
}

/// A key's record.
pub(crate) struct Present<'f> {
    pub(crate) position: Position,
    pub(crate) location: Location,
    source: Source<'f>,
    /// Where the record begins in the source.
    start: usize,
    base: u64,
}

enum Source<'f> {
    Buffer(Arc<Buffer>),
    Fetched(&'f Fetched),
}

impl Present<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        let bytes = match &self.source {
            Source::Buffer(buffer) => buffer.bytes(),
            Source::Fetched(fetched) => &fetched.bytes,
        };
        View::read(&bytes[self.start..]).expect("it was read before")
    }

    /// The item's meta data as of `now`.
    pub(crate) fn meta(&self, now: u32) -> ItemMeta {
        let meta = self.view().meta(self.base, self.location.hits() > 0);
        ItemMeta { last_access: second_before(now, meta.last_access), ..meta }
    }
}

/// The first record of `key` that begins in the part of a region from `first` to `end`. `bytes` begins at `start`.
fn find_first(bytes: &[u8], start: usize, first: usize, end: usize, key: &[u8]) -> Option<usize> {
    let mut at = first - start;
    while at < end - start {
        let view = View::read(bytes.get(at..)?)?;
        if view.key() == key {
            return (!view.header.is(mark::TOMBSTONE)).then_some(at);
        }
        at += view.header.len();
    }
    None
}

/// The last record of `key` that begins in the part of a region from `first` to `end`. `bytes` begins at `start`.
pub(crate) fn find_record(bytes: &[u8], start: usize, first: usize, end: usize, key: &[u8]) -> Option<usize> {
    let mut at = first;
    let mut found = None;
    while at < end {
        let Some(view) = bytes.get(at - start..).and_then(View::read) else { break };
        if view.key() == key {
            found = (!view.header.is(mark::TOMBSTONE)).then_some(at - start);
        }
        at += view.header.len();
    }
    found
}

impl Inner {
    /// Looks a key up, under the lock of its shard. Uses what was fetched from a device before if the index entry still points
    /// there.
    pub(crate) fn look<'f>(&self, shard: &Shard, key: &Key<'_>, fetched: Option<&'f Fetched>) -> Look<'f> {
        match self.look_for_record(shard, key, fetched) {
            Look::Present(present) if self.is_below_floor(present.view().version(present.base)) => Look::Absent,
            look => look,
        }
    }

    /// Whether a flush from another copy has taken a version; one of this node takes whole regions.
    #[inline]
    pub(crate) fn is_below_floor(&self, version: Version) -> bool {
        self.config.versioning.cluster && version < self.floors.bound()
    }

    fn look_for_record<'f>(&self, shard: &Shard, key: &Key<'_>, fetched: Option<&'f Fetched>) -> Look<'f> {
        let Some((position, location)) = shard.find(key.hash) else { return Look::Absent };
        let block = location.block();
        let number = self.regions.region_of(block);
        // A region is not reused while an entry points to it.
        let region = self.regions.get(number);
        if self.log.is_flushed(region) {
            return Look::Absent;
        }
        if let Some(buffer) = region.resident.read().as_ref() {
            count(&self.counters.buffer_reads, 1);
            let Some(first) = self.regions.first_record(block) else { return Look::Foreign };
            let bytes = buffer.bytes();
            let end = bytes.len().min(self.regions.offset_of(block) + BLOCK);
            let Some(start) = find_record(bytes, 0, first, end, key.bytes) else { return Look::Foreign };
            let source = Source::Buffer(Arc::clone(buffer));
            return Look::Present(Present { position, location, source, start, base: region.base() });
        }
        let place = RecordPlace { region: number, sequence: region.sequence(), block, blocks: location.blocks() };
        match fetched.filter(|fetched| fetched.place == place) {
            None => Look::On(place),
            Some(fetched) => match fetched.found {
                Ok(start) => {
                    let source = Source::Fetched(fetched);
                    Look::Present(Present { position, location, source, start, base: fetched.base })
                }
                Err(NotFound::Other | NotFound::Damaged) => Look::Foreign,
            },
        }
    }

    /// Reads `place` and looks for `key` in it.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) async fn fetch(&self, cx: &Cx, place: RecordPlace, key: &[u8]) -> Result<Fetched, StoreError> {
        let region = self.regions.get(place.region);
        let (base, salt) = (region.base(), region.salt());
        let start = self.regions.offset_of(place.block);
        let bytes = self.read(cx, &place, place.blocks * BLOCK).await?;
        let end = (start + BLOCK).min(region.records_end() as usize);
        let begins = self.regions.begins(place.block);
        let is_current = || region.sequence() == place.sequence;
        let mut fetched = Fetched { place, bytes, base, salt, found: Err(NotFound::Other) };
        let Some(Begins { first, distinct }) = begins.filter(|_| is_current()) else { return Ok(fetched) };
        let find = if distinct { find_first } else { find_record };
        let found = find(&fetched.bytes, start, first, end, key);
        if let Some(at) = found {
            let length = at + View::read(&fetched.bytes[at..]).map_or(0, |view| view.header.len());
            if length > fetched.bytes.len() && start + length <= self.devices.region_bytes() {
                fetched.bytes = self.read(cx, &place, length.next_multiple_of(BLOCK)).await?;
            }
        }
        fetched.found = match found {
            Some(at) if distinct && is_sound(&fetched, at, start) => Ok(at),
            // Check the rest of the block too: a damaged record there may be a newer version of the key.
            Some(at) if self.is_undamaged(&fetched, start + at, start, end) => Ok(at),
            None if self.is_undamaged(&fetched, first, start, end) => Err(NotFound::Other),
            _ => Err(NotFound::Damaged),
        };
        // If the region was reused during the read, the bytes mean nothing.
        if is_current() {
            match fetched.found {
                Ok(_) => {}
                Err(NotFound::Other) => count(&self.counters.false_matches, 1),
                Err(NotFound::Damaged) => {
                    count(&self.counters.checksum_failures, 1);
                    tracing::warn!(region = place.region, block = place.block, "a record is damaged: it is a miss");
                }
            }
        }
        Ok(fetched)
    }

    /// Whether all records that begin between `from` and `end` are sound. The fetched bytes may end within the last record; that
    /// record must then end where the table of regions has another one begin, or where records end.
    ///
    /// A region that was open when the node ended may end in torn records. They were never synced, so they do not count as
    /// damage.
    fn is_undamaged(&self, fetched: &Fetched, from: usize, start: usize, end: usize) -> bool {
        let was_filling = self.regions.get(fetched.place.region).span().ended == 0;
        let mut at = from;
        while at < end {
            let Some(header) = fetched.bytes.get(at - start..).and_then(Header::read) else { return true };
            let next = at + header.len();
            if next - start > fetched.bytes.len() {
                return self.is_boundary(fetched.place.region, next) || at > from && was_filling;
            }
            if !is_sound(fetched, at - start, start) {
                return at > from && was_filling && is_torn(fetched, at - start);
            }
            at = next;
        }
        true
    }

    /// Whether a record begins at an offset of a region, after one that began in an earlier block, or records end there.
    fn is_boundary(&self, region: usize, offset: usize) -> bool {
        offset == self.regions.get(region).records_end() as usize
            || offset < self.devices.region_bytes()
                && self.regions.first_record(self.regions.block_at(region, offset)) == Some(offset)
    }

    async fn read(&self, cx: &Cx, place: &RecordPlace, bytes: usize) -> Result<Aligned, StoreError> {
        let (device, region_start) = self.devices.place(place.region);
        let start = self.regions.offset_of(place.block);
        let bytes = bytes.min(self.devices.region_bytes() - start);
        self.reader.read(cx, device, region_start + start as u64, bytes).await.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
                // The read timed out. The log already says that the device does not answer.
                return StoreError::new(ErrorKind::Timeout, "the device of the SSD tier does not answer")
                    .with_source(error);
            }
            tracing::error!(%error, region = place.region, "cannot read from a device");
            StoreError::new(ErrorKind::Device, "the device cannot be read").with_source(error)
        })
    }
}

fn is_sound(fetched: &Fetched, at: usize, start: usize) -> bool {
    let salt = Salt { key: fetched.salt, offset: (start + at) as u32 };
    View::read(&fetched.bytes[at..]).is_some_and(|view| view.is_whole() && view.is_sound(salt))
}

/// Whether an unsound record of a region that was open when the node ended is torn: one of its sectors was not written. When
/// the record was written, the block held the synced records and zeros after them; each sector is either as before the
/// write or as after it. The records before a torn one are then intact, and no newer version is lost.
fn is_torn(fetched: &Fetched, at: usize) -> bool {
    let block = &fetched.bytes[..BLOCK.min(fetched.bytes.len())];
    let is_zero = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
    let end = View::read(&fetched.bytes[at..]).map_or(block.len(), |view| at + view.header.len());
    let first = at.next_multiple_of(SECTOR);
    let missing = |start: usize| block.get(start..start + SECTOR).is_some_and(is_zero);
    block.get(at..first).is_some_and(is_zero) || (first..end).step_by(SECTOR).any(missing)
}
