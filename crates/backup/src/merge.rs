//! A new base of another one and the changes after it, made in the archive alone: restores need fewer segments, and retention can
//! let go of what was before.

use std::sync::Arc;

use moneta_feed::{Change, Mark, Sink, SinkError};
use moneta_item::Version;
use moneta_segments::{Archive, ChainSink, Form};
use serde::Serialize;

use crate::error::BackupError;
use crate::layout::{BaseRecord, Made, Slot, slots};
use crate::moment::millis;
use crate::point::find;
use crate::state::{Reading, State};

/// How long before its moment deletes stay in a base, in milliseconds: an older write that is told after it must not bring a key
/// back.
const DELETES_KEPT: u64 = 24 * 3600 * 1000;
/// Changes that are handed to the chain at once.
const BATCH: usize = 1024;

/// What became of a slot.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Merged {
    /// The slot.
    pub slot: String,
    /// The new base; `None`: the newest base is of the newest restore point already.
    pub base: Option<u64>,
    /// Its moment, Unix milliseconds.
    pub at: u64,
    /// Items that live in it.
    pub items: u64,
    /// Segments that it takes the place of.
    pub segments: u64,
}

/// Merges all slots up to the last restore point at or before `at`, Unix milliseconds.
///
/// # Errors
/// If the archive does not answer, or lacks what it should have. Nothing that was there is changed.
pub fn merge(
    archive: &Arc<dyn Archive>,
    at: u64,
    value_max: usize,
    segment_bytes: u64,
) -> Result<Vec<Merged>, BackupError> {
    let each = |name: &String| merge_slot(&mut Slot::open(archive, name)?, at, value_max, segment_bytes);
    slots(&**archive)?.iter().map(each).collect()
}

fn merge_slot(slot: &mut Slot, at: u64, value_max: usize, segment_bytes: u64) -> Result<Merged, BackupError> {
    let mut merged = Merged { slot: slot.name.clone(), ..Merged::default() };
    let Some(point) = find(slot, at)? else { return Ok(merged) };
    merged.at = point.watermark;
    let Some((part, after)) = point.end else { return Ok(merged) };
    let reading = Reading { prefix: Vec::new(), value_max };
    let mut state = State::read(&point, &reading)?;
    let number = slot.free_base();
    let form = Form { source: format!("merge of {}", slot.name), segment_bytes, compresses: true, listed: false };
    let mut sink = ChainSink::new(slot.base_chain(number)?, form, Box::new(millis));
    let kept_from = Version::at(point.watermark.saturating_sub(DELETES_KEPT));
    let second = crate::moment::second(point.watermark);
    let failed = |error: SinkError| BackupError::Target { target: "the archive".to_owned(), source: error };
    let mut batch: Vec<Change> = state.flushes().into_iter().map(Change::Flush).collect();
    let mut count = 0_u64;
    // Segments end at marks: one a segment's length, whose cursor only has to differ from the others of this base.
    let mut taken = 0_u64;
    state.newest(|change| {
        match &change {
            Change::Set(set) if set.meta.expiry.is_dead(second) => return Ok(()),
            Change::Set(_) => merged.items += 1,
            Change::Delete { version, .. } if *version < kept_from => return Ok(()),
            _ => {}
        }
        taken += change.size() as u64;
        batch.push(change);
        if batch.len() >= BATCH || taken >= segment_bytes {
            sink.take(std::mem::take(&mut batch)).map_err(failed)?;
        }
        if taken >= segment_bytes {
            taken = 0;
            count += 1;
            let cursor = format!("{number:x}-{count}");
            sink.reached(&Mark { cursor, ..Mark::default() }, true)?;
        }
        Ok(())
    })?;
    sink.take(batch).map_err(failed)?;
    let cursor = format!("{number:x}-end");
    sink.reached(&Mark { cursor, watermark: point.watermark, ..Mark::default() }, true)?;
    let chain = sink.finish(None)?;
    let counts = chain.done().map(|done| done.counts).unwrap_or_default();
    merged.segments = point.segments() as u64;
    merged.base = Some(number);
    slot.add_base(BaseRecord {
        number,
        made: Made::Merge,
        part: Some(part),
        after,
        complete: point.watermark,
        is_point: true,
        counts,
    })?;
    Ok(merged)
}
