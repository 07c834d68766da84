//! Walking all items: region by region, oldest first, showing what the index still means.
//!
//! A walk shows what lies in regions begun before it. An item that is carried forward meanwhile would be missed, or shown
//! twice: so records carried forward have regions of their own, of which a walk visits those begun before it, and nothing
//! is carried out of a region that a walk has yet to visit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use moneta_store::{Cursor, Key, Walked, Walking};
use parking_lot::Mutex;

use crate::attempt::pend;
use crate::buffer::Buffer;
use crate::counters::count;
use crate::engine::Inner;
use crate::format::BLOCK;
use crate::format::record::{Salt, View, mark};
use crate::format::region::HEADER_BYTES;
use crate::io::Aligned;
use crate::log::CARRIED;
use crate::lookup::find_record;

/// Records that a batch looks at.
const BATCH: usize = 512;

/// Walks under way, as far as reclaiming has to know.
#[derive(Default)]
pub(crate) struct Walks(
    // Held while a walk begins and while a record is carried forward, so that the one sees all of the other or nothing.
    Mutex<Vec<Weak<Progress>>>,
);

/// What is known of a walk outside it.
struct Progress {
    /// Regions with a lower sequence number have been visited.
    position: AtomicU64,
    /// Regions from this sequence number on are not visited.
    end: u64,
}

impl Walks {
    /// Carries a record out of a region, unless a walk has yet to visit it. No walk begins meanwhile.
    pub(crate) fn unless_needed<T>(&self, sequence: u64, carry: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut walks = self.0.lock();
        walks.retain(|walk| walk.strong_count() > 0);
        let is_needed = walks
            .iter()
            .filter_map(Weak::upgrade)
            .any(|walk| (walk.position.load(Ordering::Acquire)..walk.end).contains(&sequence));
        if is_needed { None } else { carry() }
    }
}

/// A walk.
struct Walk {
    progress: Arc<Progress>,
    /// Regions to visit, by sequence number.
    regions: VecDeque<(u64, usize)>,
    at: Option<Visit>,
    /// Where a read leaves a region's bytes.
    read: Arc<Mutex<Option<Aligned>>>,
}

/// A region being visited.
struct Visit {
    region: usize,
    sequence: u64,
    source: Option<Source>,
    offset: usize,
}

enum Source {
    Buffer(Arc<Buffer>),
    Device(Aligned),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer) => buffer.bytes(),
            Self::Device(bytes) => bytes,
        }
    }
}

impl Inner {
    fn begin_walk(&self) -> Walk {
        let mut walks = self.walks.0.lock();
        self.log.rotate(CARRIED, self.clock.now());
        let end = self.regions.upcoming_sequence();
        let progress = Arc::new(Progress { position: AtomicU64::new(0), end });
        walks.push(Arc::downgrade(&progress));
        drop(walks);
        let in_use = self.regions.iter().map(|(number, region)| (region.sequence(), number));
        let mut regions: Vec<_> = in_use.filter(|(sequence, _)| (1..end).contains(sequence)).collect();
        regions.sort_unstable();
        Walk { progress, regions: regions.into(), at: None, read: Arc::default() }
    }

    pub(crate) fn walk(self: &Arc<Self>, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.settle();
        if self.log.queue.is_off() {
            // What changes meanwhile is in the tier above alone: whoever walks both looks there.
            return Walking::End;
        }
        let token = cursor.token.take().and_then(|token| token.downcast::<Walk>().ok());
        let mut walk = token.unwrap_or_else(|| Box::new(self.begin_walk()));
        let walking = self.walk_on(&mut walk, show);
        if !matches!(walking, Walking::End) {
            cursor.token = Some(walk);
        }
        walking
    }

    fn walk_on(self: &Arc<Self>, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let visit = match &mut walk.at {
            Some(visit) => visit,
            None => {
                let Some((sequence, region)) = walk.regions.pop_front() else { return Walking::End };
                walk.progress.position.store(sequence, Ordering::Release);
                walk.at.insert(Visit { region, sequence, source: None, offset: HEADER_BYTES })
            }
        };
        let region = self.regions.get(visit.region);
        if visit.source.is_none() {
            visit.source = match (walk.read.lock().take(), region.resident.read().as_ref()) {
                (Some(bytes), _) => Some(Source::Device(bytes)),
                (None, Some(buffer)) => Some(Source::Buffer(Arc::clone(buffer))),
                (None, None) => None,
            };
        }
        if region.sequence() != visit.sequence {
            walk.at = None;
            return Walking::More;
        }
        let Some(source) = &visit.source else { return self.read_region(visit.region, Arc::clone(&walk.read)) };
        let end = (region.records_end() as usize).min(source.bytes().len());
        let next = self.show_batch(visit, source, end, show);
        match next {
            Some(offset) => visit.offset = offset,
            None => walk.at = None,
        }
        Walking::More
    }

    fn read_region(self: &Arc<Self>, region: usize, into: Arc<Mutex<Option<Aligned>>>) -> Walking {
        let (device, start) = self.devices.place(region);
        let bytes = (self.regions.get(region).records_end() as usize).next_multiple_of(BLOCK);
        let inner = Arc::clone(self);
        Walking::Wait(pend(async move {
            let read = inner.reader.read(device, start, bytes.max(BLOCK)).await;
            *into.lock() = Some(read.map_err(|error| {
                let reason = "the device cannot be read";
                moneta_store::StoreError::new(moneta_store::ErrorKind::Device, reason).with_source(error)
            })?);
            Ok(())
        }))
    }

    /// Shows records from where the visit stands; tells where it goes on, if it does.
    fn show_batch(
        &self,
        visit: &Visit,
        source: &Source,
        end: usize,
        show: &mut dyn FnMut(&Walked<'_>),
    ) -> Option<usize> {
        let bytes = source.bytes();
        let mut offset = visit.offset;
        for _ in 0..BATCH {
            let view = (offset < end).then(|| View::read(&bytes[offset..end]))?.filter(View::is_whole)?;
            if !view.header.is(mark::TOMBSTONE) {
                self.show_record(visit, source, offset, end, &view, show);
            }
            offset += view.header.len();
        }
        Some(offset)
    }

    fn show_record(
        &self,
        visit: &Visit,
        source: &Source,
        offset: usize,
        end: usize,
        view: &View<'_>,
        show: &mut dyn FnMut(&Walked<'_>),
    ) {
        let key = Key::new(view.key(), self.devices.seed());
        let block = self.regions.block_at(visit.region, offset);
        let shard = self.shard(key.hash).lock();
        let Some((_, location)) = shard.find(key.hash).filter(|(_, found)| found.block() == block) else { return };
        let Some(first) = self.regions.first_record(block) else { return };
        let block_end = end.min(self.regions.offset_of(block) + BLOCK);
        // Of several versions in the block the index means the last.
        if find_record(source.bytes(), 0, first, block_end, key.bytes) != Some(offset) {
            return;
        }
        let salt = Salt { key: self.regions.get(visit.region).salt(), offset: offset as u32 };
        if matches!(source, Source::Device(_)) && !view.is_sound(salt) {
            count(&self.counters.checksum_failures, 1);
            return;
        }
        let now = self.clock.now();
        let meta = view.meta(self.regions.get(visit.region).base(), location.hits() > 0);
        if !meta.expiry.is_dead(now) {
            let meta = moneta_store::ItemMeta { last_access: meta.last_access.min(now), ..meta };
            show(&Walked { key: key.bytes, meta, value_bytes: view.value().len(), size: view.header.len() });
        }
    }
}
