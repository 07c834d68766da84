//! What a restore to a moment needs: a base, and the changes after it up to the last watermark before that moment.

use moneta_segments::{Chain, Committed, SegmentError};
use moneta_store::feed::Change;

use crate::error::BackupError;
use crate::layout::{BaseRecord, Slot};
use crate::owner::Owner;

/// Bytes of a block beside its values, when it is read.
const BLOCK_REST: usize = 2 << 20;

/// A restore point of a slot.
#[derive(Clone, Debug)]
pub struct Point {
    /// The slot.
    pub slot: String,
    /// The base.
    pub base: BaseRecord,
    /// All that the source was told until then is in it, Unix milliseconds.
    pub watermark: u64,
    /// The part with its last change, and how many segments of that part are in it; `None`: there are no changes.
    pub end: Option<(u64, u64)>,
    /// Chains, and which of their segments: base first.
    runs: Vec<(Chain, Vec<Committed>)>,
    /// The keys that were the slot's; `None`: all that are there.
    pub(crate) owner: Option<Owner>,
}

impl Point {
    /// How many segments of changes come after the base.
    pub fn segments(&self) -> usize {
        self.runs[1..].iter().map(|(_, segments)| segments.len()).sum()
    }

    /// Sets and bytes of all that is to be read.
    pub fn counts(&self) -> moneta_segments::Counts {
        let segments = self.runs.iter().flat_map(|(_, segments)| segments);
        segments.fold(moneta_segments::Counts::default(), |sum, segment| sum.and(segment.footer.counts))
    }

    /// The sources of all segments in which `wanted`, in their order.
    fn chains(&self, wanted: impl Fn(&Committed) -> bool) -> Vec<(&Chain, Vec<Committed>)> {
        let chosen = self.runs.iter().map(|(chain, segments)| {
            (chain, segments.iter().filter(|segment| wanted(segment)).cloned().collect::<Vec<_>>())
        });
        chosen.filter(|(_, segments)| !segments.is_empty()).collect()
    }

    /// Shows each change of the segments that `wanted` names, in their order. No value has more than `value_max` bytes.
    ///
    /// # Errors
    /// If a segment cannot be read or is damaged, or what `visit` says.
    pub fn read(
        &self,
        value_max: usize,
        wanted: impl Fn(&Committed) -> bool,
        mut visit: impl FnMut(Change) -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        for (chain, segments) in self.chains(wanted) {
            for segment in &segments {
                let mut reader = chain.read(segment, value_max.saturating_add(BLOCK_REST))?;
                while let Some(block) = reader.block()? {
                    block.changes.into_iter().try_for_each(&mut visit)?;
                }
                if reader.footer() != Some(&segment.footer) {
                    let (name, reason) = (segment.segment.clone(), "it ends otherwise than its record says".to_owned());
                    return Err(SegmentError::Damaged { name, reason }.into());
                }
            }
        }
        Ok(())
    }
}

/// The last restore point of a slot at or before a moment, Unix milliseconds; `None`: there is none.
///
/// # Errors
/// If what it needs has a hole or is damaged. An older base is not taken in its place: it would end at an older point without a
/// word.
pub fn find(slot: &Slot, at: u64) -> Result<Option<Point>, BackupError> {
    let mut bases: Vec<&BaseRecord> = slot.bases.iter().filter(|base| base.complete <= at).collect();
    bases.sort_by_key(|base| (base.complete, base.number));
    for base in bases.into_iter().rev() {
        let point = from_base(slot, base, at)?;
        if point.watermark >= base.complete && (base.is_point || point.end.is_some()) {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// As far as changes lead from a base, up to a moment.
fn from_base(slot: &Slot, base: &BaseRecord, at: u64) -> Result<Point, BackupError> {
    let hole = |reason: String| BackupError::Hole { slot: slot.name.clone(), reason };
    let chain = slot.base_chain(base.number)?;
    if chain.done().is_none() {
        return Err(hole(format!("base {} is not whole", base.number)));
    }
    let segments = chain.segments().to_vec();
    let mut point = Point {
        slot: slot.name.clone(),
        base: base.clone(),
        watermark: if base.is_point { base.complete } else { 0 },
        end: None,
        runs: vec![(chain, segments)],
        owner: None,
    };
    let (mut next, mut after) = (base.part, base.after);
    while let Some(number) = next {
        let part = slot.part(number).ok_or_else(|| hole(format!("part {number} of the changes is missing")))?;
        let chain = slot.part_chain(part)?;
        let there = chain.segments();
        if (there.len() as u64) < after {
            return Err(hole(format!(
                "part {number} has {} segments, and base {} stands after {after}",
                there.len(),
                base.number
            )));
        }
        let first = usize::try_from(after).unwrap_or(usize::MAX);
        let segments: Vec<Committed> =
            there[first..].iter().take_while(|segment| segment.footer.watermark <= at).cloned().collect();
        let ends_here = segments.len() < there.len() - first;
        if let Some(last) = segments.last() {
            point.watermark = point.watermark.max(last.footer.watermark);
            point.end = Some((number, after + segments.len() as u64));
        }
        next = None;
        if !ends_here && let Some(following) = slot.part_after(number) {
            match chain.done() {
                Some(done) if done.to == following.from => next = Some(following.number),
                Some(done) => {
                    let (from, to) = (&following.from, &done.to);
                    return Err(hole(format!(
                        "part {} begins at {from}, and part {number} ends at {to}",
                        following.number
                    )));
                }
                None => {
                    return Err(hole(format!(
                        "part {number} is not whole, and part {} goes on from it",
                        following.number
                    )));
                }
            }
        } else if !ends_here
            && let Some(later) = slot.parts.iter().find(|later| later.number > number && later.begun <= at)
            && let Some(before) = later.follows
            && slot.part(before).is_none()
        {
            return Err(hole(format!("part {before} of the changes is missing")));
        }
        after = 0;
        point.runs.push((chain, segments));
    }
    Ok(point)
}
