//! The second part of an overtaken walk: finds, through the index, items in regions begun after the walk.
//!
//! A walk over the index meets each lasting entry wherever its record moves, so it ends however fast the log is overwritten.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::join_all;
use moneta_store::{Cx, Key, OwnedKey, Walking};
use parking_lot::Mutex;

use super::owed::Owed;
use super::unreadable::unreadable;
use crate::index::location::Location;
use crate::inner::Inner;
use crate::operations::attempt::pend;
use moneta_device::format::BLOCK;
use moneta_device::format::record::{View, mark};
use moneta_device::io::Aligned;

/// Blocks whose keys are collected at once.
const SPOTS: usize = 32;
/// Most classes of the index in a batch.
const CLASSES: usize = 256;
/// Blocks to read at a spot: keys begin in the first block and end in the second at the latest.
const READ_BLOCKS: usize = 2;

/// A walk through the index.
pub(super) struct Sweep {
    /// Regions with a lower sequence number have been walked.
    from: u64,
    shard: usize,
    walk: Option<moneta_index::Walk>,
    /// The shard is done.
    is_through: bool,
    /// The blocks that reads have delivered.
    read: Arc<Mutex<Vec<(Spot, Aligned)>>>,
}

/// A block that an index entry points to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spot {
    region: usize,
    sequence: u64,
    block: usize,
}

impl Sweep {
    /// A walk of the items in regions from that sequence number on.
    pub(super) fn from(from: u64) -> Self {
        Self { from, shard: 0, walk: None, is_through: false, read: Arc::default() }
    }

    /// Continues the walk, and adds keys to `owed`.
    pub(super) fn step(&mut self, inner: &Arc<Inner>, cx: &Cx, owed: &mut Owed) -> Walking {
        let read = std::mem::take(&mut *self.read.lock());
        let taken = read.into_iter().try_for_each(|(spot, bytes)| self.take_keys(inner, spot, &bytes, owed));
        if taken.is_break() {
            // The region was reused; its items are elsewhere, unknown where: walk the shard again.
            (self.walk, self.is_through) = (None, false);
            return Walking::More;
        }
        if self.is_through {
            (self.walk, self.is_through) = (None, false);
            self.shard += 1;
        }
        if !owed.is_empty() {
            return Walking::More;
        }
        let Some(shard) = inner.shards().nth(self.shard) else { return Walking::End };
        let mut spots = Vec::new();
        {
            let mut shard = shard.lock();
            let walk = &*self.walk.get_or_insert_with(|| shard.index.begin_walk());
            for _ in 0..CLASSES {
                self.is_through = !shard.index.walk(walk, |_, location| {
                    let spot = Spot::of(inner, Location(location));
                    if spot.sequence >= self.from && !spots.contains(&spot) {
                        spots.push(spot);
                    }
                });
                if self.is_through || spots.len() >= SPOTS {
                    break;
                }
            }
        }
        if spots.is_empty() { Walking::More } else { Walking::Wait(self.read(inner, cx, spots)) }
    }

    /// Reads blocks: from a region's buffer, or from its device.
    fn read(&self, inner: &Arc<Inner>, cx: &Cx, spots: Vec<Spot>) -> moneta_store::Pending<()> {
        let (inner, cx, into) = (Arc::clone(inner), cx.clone(), Arc::clone(&self.read));
        pend(async move {
            let reads = spots.into_iter().map(|spot| {
                let (inner, cx) = (&inner, &cx);
                async move {
                    let start = inner.regions.offset_of(spot.block);
                    let bytes = (READ_BLOCKS * BLOCK).min(inner.devices.region_bytes() - start);
                    if let Some(buffer) = inner.regions.get(spot.region).resident.read().as_ref() {
                        let all = buffer.bytes();
                        let part = &all[start.min(all.len())..(start + bytes).min(all.len())];
                        let mut copy = Aligned::zeroed(bytes);
                        copy[..part.len()].copy_from_slice(part);
                        return Ok((spot, copy));
                    }
                    let (device, region_start) = inner.devices.place(spot.region);
                    let read = inner.reader.read(cx, device, region_start + start as u64, bytes).await;
                    read.map(|bytes| (spot, bytes)).map_err(unreadable)
                }
            });
            let read: Result<Vec<_>, _> = join_all(reads).await.into_iter().collect();
            *into.lock() = read?;
            Ok(())
        })
    }

    /// Collects the keys of this shard that have a record in a block; breaks if the region has been reused.
    fn take_keys(&self, inner: &Inner, spot: Spot, bytes: &[u8], owed: &mut Owed) -> ControlFlow<()> {
        let region = inner.regions.get(spot.region);
        let start = inner.regions.offset_of(spot.block);
        let end = (start + BLOCK).min(region.records_end() as usize);
        let first = inner.regions.first_record(spot.block);
        if region.sequence() != spot.sequence {
            return ControlFlow::Break(());
        }
        let mut at = first.unwrap_or(end);
        while at < end {
            let Some(view) = bytes.get(at - start..).and_then(View::read) else { break };
            let key = Key::new(view.key(), inner.devices.key_hash());
            if !view.header.is(mark::TOMBSTONE) && inner.identities.number(key.hash) == self.shard {
                owed.add(OwnedKey::of(&key));
            }
            at += view.header.len();
        }
        ControlFlow::Continue(())
    }
}

impl Spot {
    /// The spot an entry points to. The caller holds the shard's lock.
    fn of(inner: &Inner, location: Location) -> Self {
        let region = inner.regions.region_of(location.block());
        Self { region, sequence: inner.regions.get(region).sequence(), block: location.block() }
    }
}
