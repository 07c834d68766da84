//! What an archive has, as numbers for people and alerts.

use std::fmt::Write as _;
use std::sync::Arc;

use moneta_segments::{Archive, Chain, Counts};
use serde::Serialize;

use crate::error::BackupError;
use crate::layout::{BaseRecord, Slot, slots};
use crate::moment::millis;
use crate::rings::left;
use crate::verify::{Verified, last};

/// A part of the changes, as it is.
#[derive(Clone, Debug, Serialize)]
pub struct PartStatus {
    /// Its number.
    pub number: u64,
    /// The part that it goes on from.
    pub follows: Option<u64>,
    /// How many segments it has.
    pub segments: u64,
    /// No more comes.
    pub done: bool,
    /// The watermarks of its first and its last segment, Unix milliseconds.
    pub from: u64,
    /// As above.
    pub to: u64,
    /// Changes in it.
    pub changes: u64,
    /// Bytes of its segments, before they are encrypted.
    pub bytes: u64,
}

/// What a slot has.
#[derive(Clone, Debug, Serialize)]
pub struct SlotStatus {
    /// Its name.
    pub slot: String,
    /// It has left its replica: no new restore points come, and none is missing.
    pub left: bool,
    /// Its bases.
    pub bases: Vec<BaseRecord>,
    /// The parts of its changes.
    pub parts: Vec<PartStatus>,
    /// The oldest and the newest restore point, Unix milliseconds; 0: there is none.
    pub oldest: u64,
    /// As above.
    pub newest: u64,
    /// Bytes of all segments, before they are encrypted.
    pub bytes: u64,
}

/// What an archive has.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Slots.
    pub slots: Vec<SlotStatus>,
    /// What was verified last.
    pub verified: Option<Verified>,
    /// Seconds since that ended; `None`: nothing was ever verified.
    pub verified_age: Option<f64>,
    /// Seconds since the newest restore point of all slots together; `None`: there is none.
    pub restore_point_age: Option<f64>,
}

/// Looks what an archive has. Reads records, and no segments.
///
/// # Errors
/// If it does not answer, or has a hole.
pub fn status(archive: &Arc<dyn Archive>) -> Result<Status, BackupError> {
    let left = left(&**archive)?;
    let slots: Vec<SlotStatus> = slots(&**archive)?
        .iter()
        .map(|name| of_slot(&Slot::open(archive, name)?, left.contains(name)))
        .collect::<Result<_, _>>()?;
    let verified = last(&**archive)?;
    let age = |at: u64| millis().saturating_sub(at) as f64 / 1000.0;
    let newest = slots.iter().filter(|slot| !slot.left).map(|slot| slot.newest).min().filter(|newest| *newest > 0);
    Ok(Status {
        verified_age: verified.as_ref().map(|verified| age(verified.verified)),
        restore_point_age: newest.map(age),
        slots,
        verified,
    })
}

/// Bytes of its segments, as their records say.
fn length(chain: &Chain) -> u64 {
    chain.segments().iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.length))
}

fn of_slot(slot: &Slot, left: bool) -> Result<SlotStatus, BackupError> {
    let mut status = SlotStatus {
        slot: slot.name.clone(),
        left,
        bases: slot.bases.clone(),
        parts: Vec::new(),
        oldest: 0,
        newest: 0,
        bytes: 0,
    };
    for base in &slot.bases {
        status.bytes = status.bytes.saturating_add(length(&slot.base_chain(base.number)?));
    }
    let mut marks: Vec<u64> = slot.bases.iter().filter(|base| base.is_point).map(|base| base.complete).collect();
    for part in &slot.parts {
        let chain = slot.part_chain(part)?;
        let segments = chain.segments();
        let counts = segments.iter().fold(Counts::default(), |sum, segment| sum.and(segment.footer.counts));
        let of = PartStatus {
            number: part.number,
            follows: part.follows,
            segments: segments.len() as u64,
            done: chain.done().is_some(),
            from: segments.first().map_or(0, |segment| segment.footer.watermark),
            to: segments.last().map_or(0, |segment| segment.footer.watermark),
            changes: counts.sets.saturating_add(counts.deletes).saturating_add(counts.others),
            bytes: length(&chain),
        };
        status.bytes = status.bytes.saturating_add(of.bytes);
        let first = slot.bases.iter().map(|base| base.complete).min();
        if slot.has_base(part.number) && first.is_some() {
            let is_point = |watermark: &u64| first.is_some_and(|first| *watermark >= first);
            marks.extend(segments.iter().map(|segment| segment.footer.watermark).filter(is_point));
        }
        status.parts.push(of);
    }
    status.oldest = marks.iter().min().copied().unwrap_or(0);
    status.newest = marks.iter().max().copied().unwrap_or(0);
    Ok(status)
}

/// The same as metrics in Prometheus' text format, for the textfile collector of its node exporter.
pub fn metrics(status: &Status) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, lines: Vec<(String, f64)>| {
        let _ = writeln!(text, "# HELP moneta_backup_{name} {help}\n# TYPE moneta_backup_{name} gauge");
        for (labels, value) in lines {
            let _ = writeln!(text, "moneta_backup_{name}{labels} {value}");
        }
    };
    let seconds = |millis: u64| millis as f64 / 1000.0;
    let of_slots = |number: fn(&SlotStatus) -> f64, wanted: fn(&&SlotStatus) -> bool| {
        status
            .slots
            .iter()
            .filter(wanted)
            .map(|slot| (format!("{{slot=\"{}\"}}", slot.slot), number(slot)))
            .collect::<Vec<_>>()
    };
    gauge(
        "restore_point_timestamp_seconds",
        "The newest moment that each slot can be restored to; 0: none. Slots that have left their replica are not told.",
        of_slots(|slot| slot.newest as f64 / 1000.0, |slot| !slot.left),
    );
    gauge(
        "oldest_restore_point_timestamp_seconds",
        "The oldest moment that each slot can be restored to; 0: none.",
        of_slots(|slot| slot.oldest as f64 / 1000.0, |_| true),
    );
    gauge("segment_bytes", "Bytes of segments, before encryption.", of_slots(|slot| slot.bytes as f64, |_| true));
    let verified = status.verified.clone().unwrap_or_default();
    let plain = |value: f64| vec![(String::new(), value)];
    gauge(
        "verified_timestamp_seconds",
        "When a restore was last tried that held; 0: never.",
        plain(seconds(verified.verified)),
    );
    gauge(
        "verified_restore_point_timestamp_seconds",
        "The restore point that was tried then.",
        plain(seconds(verified.point())),
    );
    gauge("verified_items", "Items that were compared then.", plain(verified.items as f64));
    text
}
