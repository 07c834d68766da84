//! Which slot of a replica has which keys, and from when on.
//!
//! A node keeps the keys that it had before its replica got other slots, and is told of no delete and no newer write of theirs. So a
//! restore takes of each slot only what was its own by the ring that was in force.
//!
//! `rings/SINCE-REPLICA.json` is a ring of a replica. It is in force at a moment once each of its slots has a restore point that was
//! made since, at or before that moment; until then the one before it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};
use std::sync::Arc;

use moneta_cluster::{Node, Ring, RingKind};
use moneta_net::Address;
use moneta_segments::Archive;
use serde::{Deserialize, Serialize};

use crate::error::BackupError;
use crate::layout::{Slot, slot_name};
use crate::owner::Owner;
use crate::point::{Point, find};

/// The folder of all rings.
pub const RINGS: &str = "rings";
/// The largest record, in bytes: a replica has thousands of slots.
const RECORD_MAX: u64 = 4 << 20;

/// A slot of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSlot {
    /// Its name, by which the ring places it.
    pub slot: String,
    /// Its share.
    pub weight: u32,
}

/// A ring of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRecord {
    /// The replica.
    pub replica: String,
    /// Restore points from then on are of it, Unix milliseconds.
    pub since: u64,
    /// Its kind.
    pub ring: RingKind,
    /// Its slots.
    pub slots: Vec<RingSlot>,
}

/// Writes down that a replica is divided so, unless it was before: its slots are about to be backed up.
///
/// # Errors
/// If the archive does not answer.
pub fn note(archive: &Arc<dyn Archive>, replica: &str, ring: RingKind, nodes: &[Node]) -> Result<(), BackupError> {
    let slots: Vec<RingSlot> =
        nodes.iter().map(|node| RingSlot { slot: node.slot.clone(), weight: node.weight }).collect();
    let last = all(&**archive)?.remove(replica).and_then(|mut records| records.pop());
    if last.as_ref().is_some_and(|last| last.ring == ring && last.slots == slots) {
        return Ok(());
    }
    let mut newest = last.map_or(0, |last| last.since);
    for slot in &slots {
        let point = find(&Slot::open(archive, &slot_name(&slot.slot))?, u64::MAX)?;
        newest = newest.max(point.map_or(0, |point| point.watermark));
    }
    let record = RingRecord { replica: replica.to_owned(), since: newest.saturating_add(1), ring, slots };
    let name = format!("{RINGS}/{:013}-{}.json", record.since, slot_name(replica));
    let text = serde_json::to_vec(&record).map_err(|error| BackupError::archive(&name, error.into()))?;
    archive.create(&name, &text).map_err(|error| BackupError::archive(&name, error))?;
    Ok(())
}

/// The rings of each replica, the oldest first.
fn all(archive: &dyn Archive) -> Result<BTreeMap<String, Vec<RingRecord>>, BackupError> {
    let mut rings: BTreeMap<String, Vec<RingRecord>> = BTreeMap::new();
    for name in archive.list(RINGS).map_err(|error| BackupError::archive(RINGS, error))? {
        let read = || -> io::Result<RingRecord> {
            let mut text = Vec::new();
            archive.open(&name)?.take(RECORD_MAX).read_to_end(&mut text)?;
            Ok(serde_json::from_slice(&text)?)
        };
        let record = read().map_err(|error| BackupError::archive(&name, error))?;
        rings.entry(record.replica.clone()).or_default().push(record);
    }
    rings.values_mut().for_each(|records| records.sort_by_key(|record| record.since));
    Ok(rings)
}

/// The names of the slots that have left: those that rings had, and that the last ring of no replica has.
///
/// # Errors
/// If the archive does not answer, or a ring is none.
pub(crate) fn left(archive: &dyn Archive) -> Result<BTreeSet<String>, BackupError> {
    let (mut before, mut now) = (BTreeSet::new(), BTreeSet::new());
    let names = |record: &RingRecord| record.slots.iter().map(|slot| slot_name(&slot.slot)).collect::<Vec<_>>();
    for records in all(archive)?.into_values() {
        before.extend(records.iter().flat_map(names));
        now.extend(records.last().into_iter().flat_map(names));
    }
    before.retain(|slot| !now.contains(slot));
    Ok(before)
}

/// What of an archive is restored: points of slots with the keys that are theirs. A slot that the ring in force does not have is left
/// out. `found`: the restore point of each slot.
///
/// # Errors
/// If the archive does not answer, a ring is none, or a slot has no restore point.
pub(crate) fn chosen(archive: &dyn Archive, found: Vec<(String, Option<Point>)>) -> Result<Vec<Point>, BackupError> {
    let watermark: HashMap<String, u64> =
        found.iter().filter_map(|(name, point)| Some((name.clone(), point.as_ref()?.watermark))).collect();
    // Of each slot: since when the ring is that says so, and the keys; `None`: it has left.
    let mut says: HashMap<String, (u64, Option<Owner>)> = HashMap::new();
    for records in all(archive)?.into_values() {
        let is_whole = |slot: &RingSlot, since| watermark.get(&slot_name(&slot.slot)).is_some_and(|at| *at >= since);
        let in_force = records.iter().rfind(|one| one.slots.iter().all(|slot| is_whole(slot, one.since)));
        let Some(in_force) = in_force else { continue };
        let ring = Arc::new(ring_of(in_force)?);
        let mut say = |slot: &str, owner: Option<Owner>| {
            let said = says.entry(slot_name(slot)).or_insert_with(|| (0, None));
            if in_force.since >= said.0 {
                *said = (in_force.since, owner);
            }
        };
        records.iter().flat_map(|record| &record.slots).for_each(|slot| say(&slot.slot, None));
        for (place, slot) in in_force.slots.iter().enumerate() {
            say(&slot.slot, Some(Owner::new(Arc::clone(&ring), place)));
        }
    }
    let mut points = Vec::new();
    for (name, point) in found {
        let owner = match says.remove(&name) {
            Some((_, None)) => continue,
            Some((_, owner)) => owner,
            None => None,
        };
        let lacks = || BackupError::Refused(format!("{name} has no restore point at or before then"));
        let mut point = point.ok_or_else(lacks)?;
        point.owner = owner;
        points.push(point);
    }
    Ok(points)
}

fn ring_of(record: &RingRecord) -> Result<Ring, BackupError> {
    let wrong = |error: String| BackupError::Refused(format!("the ring of {} is none: {error}", record.replica));
    // Where nodes are does not matter to a ring: any addresses will do that differ.
    let node = |(number, slot): (usize, &RingSlot)| {
        let address: Address = format!("/{number}").parse().map_err(|_| wrong("no address".to_owned()))?;
        Ok(Node { slot: slot.slot.clone(), address, admin: None, weight: slot.weight })
    };
    let nodes = record.slots.iter().enumerate().map(node).collect::<Result<Vec<_>, BackupError>>()?;
    Ring::new(record.ring, &nodes).map_err(|error| wrong(error.to_string()))
}
