//! Retention: what no kept restore point needs goes.
//!
//! All restore points of the last while are kept. The oldest of them stands on the newest base that was whole by then; that base,
//! the parts of changes from where it stands, and all that came later stay. Without such a base nothing goes.

use std::sync::Arc;

use moneta_segments::Archive;
use serde::Serialize;

use crate::error::BackupError;
use crate::layout::{Slot, slots};

/// What became of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The slot.
    pub slot: String,
    /// The base on which the oldest kept restore point stands; `None`: nothing goes.
    pub oldest_base: Option<u64>,
    /// Bases that went.
    pub bases: Vec<u64>,
    /// Parts of the changes that went.
    pub parts: Vec<u64>,
}

/// Removes what no restore point at or after `from` needs, Unix milliseconds.
///
/// # Errors
/// If the archive does not answer. The same again goes on.
pub fn prune(archive: &Arc<dyn Archive>, from: u64) -> Result<Vec<Pruned>, BackupError> {
    slots(&**archive)?.iter().map(|name| prune_slot(&mut Slot::open(archive, name)?, from)).collect()
}

fn prune_slot(slot: &mut Slot, from: u64) -> Result<Pruned, BackupError> {
    let mut pruned = Pruned { slot: slot.name.clone(), ..Pruned::default() };
    let mut whole = Vec::new();
    for base in slot.bases.iter().filter(|base| base.complete <= from) {
        // One that lost what it should have is no ground to stand on, and neither is one that becomes whole only later.
        let is_whole = slot.base_chain(base.number).is_ok_and(|chain| chain.done().is_some());
        if is_whole && is_reached(slot, base.part, base.after, base.complete, base.is_point)? {
            whole.push(base);
        }
    }
    let Some(oldest) = whole.into_iter().max_by_key(|base| (base.complete, base.number)).cloned() else {
        return Ok(pruned);
    };
    pruned.oldest_base = Some(oldest.number);
    let first_part = oldest.part.unwrap_or_else(|| slot.parts.last().map_or(0, |part| part.number.saturating_add(1)));
    // A base of before stands on an older part, or is of an older moment.
    let is_older = |base: &&crate::layout::BaseRecord| (base.complete, base.number) < (oldest.complete, oldest.number);
    pruned.bases = slot.bases.iter().filter(is_older).map(|base| base.number).collect();
    let needed_by_kept =
        slot.bases.iter().filter(|base| !pruned.bases.contains(&base.number)).filter_map(|base| base.part).min();
    let first_part = needed_by_kept.map_or(first_part, |needed| needed.min(first_part));
    pruned.parts = slot.parts.iter().map(|part| part.number).filter(|part| *part < first_part).collect();
    for base in &pruned.bases {
        slot.remove_base(*base)?;
    }
    for part in &pruned.parts {
        slot.remove_part(*part)?;
    }
    Ok(pruned)
}

/// Whether changes lead from a base to where it is whole.
fn is_reached(slot: &Slot, part: Option<u64>, after: u64, complete: u64, is_point: bool) -> Result<bool, BackupError> {
    if is_point {
        return Ok(true);
    }
    let mut at = part;
    let mut after = usize::try_from(after).unwrap_or(usize::MAX);
    while let Some(part) = at.and_then(|number| slot.part(number)) {
        let chain = slot.part_chain(part)?;
        if chain.segments().iter().skip(after).any(|segment| segment.footer.watermark >= complete) {
            return Ok(true);
        }
        after = 0;
        at = slot.part_after(part.number).map(|part| part.number);
    }
    Ok(false)
}
