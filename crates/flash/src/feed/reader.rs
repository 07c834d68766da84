//! A reader of the feed: merges the regions that it has not read, by stamp, up to a fence.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use moneta_store::feed::{Batch, Change, Entry, FeedPlace, Gap, GapCause, Reader, Recorded, Set, Wanted};
use moneta_store::{Key, StoreError, Version};

use super::ahead::ReadAhead;
use super::fence::Fence;
use super::stream::{Next, Stream};
use crate::index::location::Location;
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use moneta_device::format::record::{View, mark};
use moneta_device::format::stamp::millis_of;

/// Bytes of the log after which a reader that wants few of its changes says how far it has come.
const SCANNED_MAX: usize = 64 << 20;

/// Items that are looked up in the index together.
const LOOKUPS: usize = 32;

/// How far stamps may be ahead of the clock after a restart where it was not set back, in milliseconds, with some to spare: a
/// second run begins a second above the first one. Versions of other nodes bring them no further ahead than is accepted.
const STAMPS_AHEAD: u64 = 2000;

/// Reads the log from a place on.
pub(super) struct LogReader {
    inner: Arc<Inner>,
    wanted: Wanted,
    place: FeedPlace,
    /// Regions that are being read: a few, since each begins before the others end.
    streams: Vec<Stream>,
    read_ahead: ReadAhead,
    /// A region was read from its device to its end: what follows is begun early.
    goes_on: bool,
    /// Regions to read, by the base of their stamps, the next one last: base, sequence number, region.
    ahead: Vec<(u64, u64, usize)>,
    /// Regions below this sequence number are among them, or were read.
    seen: u64,
    events: VecDeque<(u64, Change)>,
    fence: Option<Fence>,
    /// Regions below this sequence number got no more appends when the fence was drawn: what is in them is before it.
    closed_below: u64,
    /// What was carried forward is told too.
    carried_too: bool,
    /// Changes up to this stamp are missing where it was read.
    lost: u64,
    /// The reader comes from the log of another tier, and has not been told of it yet.
    is_from_another: bool,
    /// It was told that the node was killed.
    told_lost: bool,
    watermark: u64,
}

/// Where the next change comes from.
enum Source {
    Stream(usize, u64),
    Event(u64),
}

impl LogReader {
    pub(super) fn new(inner: &Arc<Inner>, place: FeedPlace, wanted: Wanted) -> Self {
        Self {
            inner: Arc::clone(inner),
            wanted,
            place,
            streams: Vec::new(),
            read_ahead: ReadAhead::new(inner),
            goes_on: false,
            ahead: Vec::new(),
            seen: 1,
            events: VecDeque::new(),
            fence: None,
            closed_below: 0,
            carried_too: place.position == 0 || place.position < place.told,
            lost: 0,
            is_from_another: false,
            told_lost: false,
            watermark: 0,
        }
    }

    /// For a reader whose place is of another tier's log: it begins at `start`, of this one.
    pub(super) fn from_another(inner: &Arc<Inner>, start: FeedPlace, wanted: Wanted) -> Self {
        Self { is_from_another: true, ..Self::new(inner, start, wanted) }
    }

    /// Draws a fence, and adds the regions begun since the last one.
    fn draw_fence(&mut self) -> Fence {
        // Before the fence: a region that closes between both may get appends behind it.
        let end = self.inner.log.end();
        let open = self.inner.regions.iter().filter(|(_, region)| region.state() == RegionStage::Open);
        self.closed_below = open.map(|(_, region)| region.sequence()).min().unwrap_or(end).min(end);
        let fence = self.inner.fence();
        let position = self.place.position;
        if fence.end > self.seen {
            let (inner, carried_too) = (&self.inner, self.carried_too);
            let is_left = |number: usize, sequence: u64| {
                let region = inner.regions.get(number);
                // In this order: the state says whether the rest is final.
                let grows = region.state() == RegionStage::Open;
                let has_changes = carried_too || !region.is_carried();
                sequence >= inner.log.floor()
                    && (grows || has_changes && Version(region.summary().last).local() > position)
            };
            let found = inner
                .regions
                .iter()
                .map(|(number, region)| (number, region.sequence()))
                .filter(|(number, sequence)| (self.seen..fence.end).contains(sequence) && is_left(*number, *sequence))
                .map(|(number, sequence)| (Version(inner.regions.get(number).base()).local(), sequence, number));
            self.ahead.extend(found);
            self.ahead.sort_unstable_by(|one, other| other.cmp(one));
            self.seen = fence.end;
        }
        self.events = self.inner.telling.events(position, fence.stamp);
        self.fence = Some(fence);
        fence
    }

    /// Takes note of a gap between the place and what is there, if it is a new one.
    fn notice_gap(&mut self) -> Option<Gap> {
        let missing = self.missing();
        let is_new = missing > self.place.position.max(self.place.told);
        if is_new {
            self.place.told = missing;
        }
        is_new.then(|| self.gap(missing))
    }

    /// Changes up to this stamp may be missing.
    fn missing(&self) -> u64 {
        self.inner.telling.missing().max(self.lost)
    }

    /// The gap that ends at a stamp.
    fn gap(&mut self, missing: u64) -> Gap {
        let cause = match std::mem::take(&mut self.is_from_another) {
            true => GapCause::Start,
            false if missing == self.lost => GapCause::Lost,
            false => self.inner.telling.cause(missing),
        };
        // The change after it may be of the same millisecond.
        Gap { since: millis_of(missing) + 1, cause: Some(cause) }
    }

    /// Begins again to look for regions, with those that have carried records alone.
    fn include_carried(&mut self) {
        self.carried_too = true;
        (self.seen, self.fence) = (1, None);
        self.streams.clear();
        self.ahead.clear();
    }

    /// Where the change with the least stamp is, up to the fence. `is_short`: some are missing.
    fn source(&mut self, fence: Fence, is_short: &mut bool) -> Option<Source> {
        loop {
            let (inner, lost) = (&self.inner, &mut self.lost);
            let mut least: Option<(u64, usize)> = None;
            let mut number = 0;
            while number < self.streams.len() {
                match self.streams[number].next(inner, &self.read_ahead, fence.stamp) {
                    Next::Record(stamp) => {
                        if least.is_none_or(|(other, _)| stamp < other) {
                            least = Some((stamp, number));
                        }
                        number += 1;
                    }
                    Next::Later => number += 1,
                    Next::Lost(stamp) => {
                        *lost = (*lost).max(stamp.min(fence.stamp));
                        *is_short = true;
                    }
                    gone @ (Next::End | Next::Flushed | Next::Gone) => {
                        *is_short |= gone == Next::Gone;
                        self.goes_on |= self.streams.swap_remove(number).is_read();
                    }
                }
            }
            let bound = least.map_or(fence.stamp, |(stamp, _)| stamp);
            if self.ahead.last().is_some_and(|(base, ..)| *base <= bound) {
                self.open_next(is_short);
                continue;
            }
            return match (self.events.front(), least) {
                (Some((stamp, _)), _) if *stamp <= bound => Some(Source::Event(*stamp)),
                (_, Some((stamp, stream))) => Some(Source::Stream(stream, stamp)),
                (..) => None,
            };
        }
    }

    /// Opens the region that comes next, if there is one. `is_short`: it was emptied before.
    fn open_next(&mut self, is_short: &mut bool) {
        let Some((_, sequence, region)) = self.ahead.pop() else { return };
        match Stream::open(&self.inner, region, sequence, self.place.position, self.carried_too) {
            Some(mut stream) => {
                if self.goes_on {
                    stream.go_on(&self.inner, &self.read_ahead);
                }
                self.streams.push(stream);
            }
            None => *is_short |= sequence >= self.inner.log.floor(),
        }
    }

    /// Opens the next region when the device has nothing more to do for one that is being read.
    fn open_early(&mut self, is_short: &mut bool) {
        let ending = self.streams.iter().filter(|stream| stream.is_all_begun(&self.inner)).count();
        let fresh = self.streams.iter().filter(|stream| stream.is_fresh()).count();
        if ending > fresh {
            self.goes_on = true;
            self.open_next(is_short);
        }
    }
}

impl Reader for LogReader {
    fn read(&mut self, limit: usize, bytes: usize) -> Result<Batch, StoreError> {
        let now = self.inner.settle();
        let began = self.place.position;
        let mut fence = self.fence.unwrap_or_else(|| self.draw_fence());
        // Behind the look at the regions: one that was emptied before it is counted among what is missing.
        let mut gap = self.notice_gap();
        if gap.is_some() && !self.carried_too {
            self.include_carried();
            fence = self.draw_fence();
            gap = self.notice_gap().or(gap);
        }
        let (mut entries, mut size, mut scanned) = (Vec::new(), 0, 0);
        let mut told_items = Vec::new();
        let lost = self.inner.telling.lost();
        if lost > began && !std::mem::replace(&mut self.told_lost, true) {
            entries
                .push(Entry { recorded: Recorded::Whole(Change::Lost { until: millis_of(lost) }), next: self.place });
        }
        let (mut is_short, mut is_end) = (false, false);
        self.open_early(&mut is_short);
        while entries.len() < limit && size < bytes && scanned < SCANNED_MAX {
            let change = match self.source(fence, &mut is_short) {
                None => {
                    is_end = true;
                    break;
                }
                Some(Source::Event(stamp)) => {
                    self.place.position = stamp;
                    self.events.pop_front().map(|(_, event)| event)
                }
                Some(Source::Stream(number, stamp)) => {
                    let stream = &mut self.streams[number];
                    let (base, block, sequence) = (stream.base(), stream.block(&self.inner), stream.sequence());
                    let Some((view, bytes)) = stream.take() else { continue };
                    scanned += view.header.len();
                    if stamp <= self.place.position {
                        continue;
                    }
                    let change = describe(&self.inner, &self.wanted, &Record { view, bytes, base }, now);
                    self.place.position = stamp;
                    if let Some(Change::Set(set)) = &change {
                        let hash = Key::new(&set.key, self.inner.devices.key_hash()).hash;
                        told_items.push(ToldItem { entry: entries.len(), hash, block, sequence, stamp });
                    }
                    change
                }
            };
            if let Some(change) = change.filter(|change| self.wants(change)) {
                size += change.size();
                entries.push(Entry { recorded: Recorded::Whole(change), next: self.place });
            }
        }
        let replaced = note_replaced(&self.inner, &told_items, &mut entries);
        if self.wanted.current {
            leave_out(&self.inner, self.closed_below, &replaced, &mut entries);
        }
        let watermark = if is_end {
            self.place.position = self.place.position.max(self.inner.behind(fence));
            self.fence = None;
            self.read_ahead.rest();
            fence.millis.saturating_sub(1)
        } else {
            // What follows has greater stamps, but the clock may have been less when it was appended.
            millis_of(self.place.position).saturating_sub(STAMPS_AHEAD + self.inner.config.versioning.skew_max)
        };
        self.watermark = self.watermark.max(watermark);
        if is_short {
            // Compared with where this batch began: what is missing may lie anywhere in it.
            let missing = self.missing();
            if missing > began.max(self.place.told) {
                self.place.told = missing;
                gap = Some(self.gap(missing));
                entries.iter_mut().for_each(|entry| entry.next.told = missing);
            }
        }
        if self.place.told <= self.place.position {
            self.place.told = 0;
        }
        Ok(Batch { gap, entries, next: self.place, watermark: self.watermark, is_end })
    }

    fn held(&self) -> usize {
        self.read_ahead.held()
    }
}

impl LogReader {
    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Flush(floor) => self.wanted.has_version(floor.version),
            Change::Set(_) | Change::Delete { .. } | Change::Lost { .. } | Change::Gap(_) => true,
        }
    }
}

/// A record as it was read.
struct Record<'b> {
    view: View<'b>,
    /// What it lies in.
    bytes: &'b Bytes,
    /// Base of its region's stamps.
    base: u64,
}

/// Where the item of a change was found.
struct ToldItem {
    /// Its place in the batch.
    entry: usize,
    hash: u64,
    /// The block in which its record begins.
    block: usize,
    /// The sequence number of its region.
    sequence: u64,
    stamp: u64,
}

/// The change that a record is, if it is one and wanted.
fn describe(inner: &Inner, wanted: &Wanted, record: &Record<'_>, now: u32) -> Option<Change> {
    let Record { view, bytes, base } = *record;
    let version = view.version(base);
    // Without a version it is what hides an older record here alone, or a client chose its CAS value.
    if version == Version::ZERO || !wanted.has_key(view.key()) {
        return None;
    }
    // What was touched keeps its version, and lives longer wherever that was done.
    if !wanted.has_version(version) && (view.header.is(mark::TOMBSTONE) || !view.header.is(mark::FETCHED)) {
        return None;
    }
    if inner.is_below_floor(version) {
        return None;
    }
    if view.header.is(mark::TOMBSTONE) {
        return Some(Change::Delete { key: bytes.slice_ref(view.key()), version });
    }
    if view.expiry().is_dead(now) {
        // Nothing older may be there. The same with a longer life may.
        return Some(Change::Delete { key: bytes.slice_ref(view.key()), version: version.just_below() });
    }
    let value = wanted.values.then(|| bytes.slice_ref(view.value()));
    Some(Change::Set(Set { key: bytes.slice_ref(view.key()), meta: view.meta(base, false), value, as_of: None }))
}

/// Notes in `entries` which of their items the index does not point to any more; tells these, each with where it points instead.
fn note_replaced<'i>(
    inner: &Inner,
    items: &'i [ToldItem],
    entries: &mut [Entry],
) -> Vec<(&'i ToldItem, Option<Location>)> {
    let mut replaced = Vec::new();
    for group in items.chunks(LOOKUPS) {
        // Their lines of the index are on their way at the same time.
        group.iter().for_each(|item| inner.shard(item.hash).lock().index.prefetch(item.hash));
        for item in group {
            let shard = inner.shard(item.hash).lock();
            let found = inner.find(&shard, item.hash).map(|(_, location)| location);
            let is_current = found.is_some_and(|location| location.block() == item.block);
            // Overwritten, deleted or evicted since: what is after it in the log says which, or nothing does.
            if !is_current && let Recorded::Whole(Change::Set(set)) = &mut entries[item.entry].recorded {
                set.as_of = Some(millis_of(item.stamp));
                replaced.push((item, found));
            }
        }
    }
    replaced
}

/// Takes those out of `entries` that are gone, or of which something later is told before the fence. What is told behind that a reader
/// which ends there would miss; and one that was carried forward is told nowhere else.
fn leave_out(inner: &Inner, closed_below: u64, replaced: &[(&ToldItem, Option<Location>)], entries: &mut Vec<Entry>) {
    let is_left_out = |item: &ToldItem, found: Option<Location>| {
        let own = inner.regions.get(inner.regions.region_of(item.block));
        let is_settled = |state| {
            matches!(state, RegionStage::Open | RegionStage::Sealed | RegionStage::Written | RegionStage::Closed)
        };
        // Looked at after the index: what is carried forward leaves a region that is being emptied.
        let was_carried = !is_settled(own.state()) || own.sequence() != item.sequence;
        let is_before =
            |location: Location| inner.regions.get(inner.regions.region_of(location.block())).sequence() < closed_below;
        !was_carried && found.is_none_or(is_before)
    };
    let left_out: Vec<usize> =
        replaced.iter().filter(|(item, found)| is_left_out(item, *found)).map(|(item, _)| item.entry).collect();
    let mut number = 0;
    entries.retain(|_| {
        number += 1;
        left_out.binary_search(&(number - 1)).is_err()
    });
}
