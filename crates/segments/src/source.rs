//! A chain as the begin of a feed's pump.

use std::collections::VecDeque;
use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Line, Mark, Next, Pace, Source, SourceError};
use moneta_store::feed::{Change, Set};

use crate::chain::Chain;
use crate::error::SegmentError;
use crate::segment::SegmentReader;

/// How often a chain that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest pause for the rate.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the segments of a chain. After each comes its mark, so a reader goes on at whole segments, and again each second while no
/// other segment is there. Items count as of when they were
/// read from their source, unless they are told [as recorded](ChainSource::as_recorded).
pub struct ChainSource {
    chain: Chain,
    follows: bool,
    block_max: usize,
    /// Items count as current, but for those that were not when they were read.
    as_recorded: bool,
    /// The segment to read next.
    next: usize,
    open: Option<SegmentReader<Box<dyn Read + Send>>>,
    changes: VecDeque<Change>,
    pace: Pace,
    /// It has waited: the last mark is told once more.
    has_waited: bool,
}

impl ChainSource {
    /// Reads `chain`, in which no block has more raw bytes than `block_max`; `follows`: until it is done, and not only what it has.
    pub fn new(chain: Chain, follows: bool, block_max: usize) -> Self {
        let (changes, pace) = (VecDeque::new(), Pace::of(0));
        Self { chain, follows, block_max, as_recorded: false, next: 0, open: None, changes, pace, has_waited: false }
    }

    /// Tells items without the moment at which they were read: as current, but for those that were not even then.
    #[must_use]
    pub fn as_recorded(self) -> Self {
        Self { as_recorded: true, ..self }
    }

    fn read(&mut self) -> Result<Option<Next>, SegmentError> {
        if let Some(change) = self.changes.pop_front() {
            self.pace.sent(change.size() as u64, Instant::now());
            return Ok(Some(Next::Line(Line::Change(change))));
        }
        let has_waited = std::mem::take(&mut self.has_waited);
        let Some(reader) = &mut self.open else {
            let Some(segment) = self.chain.segments().get(self.next) else {
                if let Some(last) = self.next.checked_sub(1).filter(|_| has_waited) {
                    return Ok(Some(Next::Line(Line::Mark(self.mark(last)))));
                }
                let is_over = !self.follows || self.chain.done().is_some();
                return Ok(Some(if is_over { Next::Line(Line::End) } else { Next::Lacking(1) }));
            };
            self.open = Some(self.chain.read(segment, self.block_max)?);
            return Ok(None);
        };
        if let Some(block) = reader.block()? {
            match self.as_recorded {
                true => self.changes.extend(block.changes),
                false => self.changes.extend(block.changes.into_iter().map(|change| read_then(change, block.read_at))),
            }
            return Ok(None);
        }
        let segment = &self.chain.segments()[self.next];
        if reader.footer() != Some(&segment.footer) {
            return Err(SegmentError::damaged(&segment.segment, "it ends otherwise than its record says"));
        }
        self.next += 1;
        self.open = None;
        Ok(Some(Next::Line(Line::Mark(self.mark(self.next - 1)))))
    }

    /// All of this segment is told.
    fn mark(&self, number: usize) -> Mark {
        let footer = &self.chain.segments()[number].footer;
        let more = number + 1 < self.chain.segments().len();
        Mark { cursor: footer.to.clone(), watermark: footer.watermark, horizon: 0, behind: None, more }
    }
}

/// What held when it was read holds now only as of then.
fn read_then(change: Change, read_at: u64) -> Change {
    match change {
        Change::Set(set) => Change::Set(Set { as_of: set.as_of.or(Some(read_at)), ..set }),
        other => other,
    }
}

impl Source for ChainSource {
    /// At a cursor: after the segment that ends there. A chain knows no moments: from one it is read from its begin.
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.open = None;
        self.changes.clear();
        self.pace = Pace::of(rate);
        self.next = match from {
            Begin::Now | Begin::Since(_) => 0,
            Begin::Cursor(place) => {
                let place = place.to_string();
                let ends = self.chain.segments().iter().position(|segment| segment.footer.to == place);
                let missing =
                    || SourceError::Refused(format!("{} has no segment that ends at {place}", self.chain.name()));
                ends.ok_or_else(missing)? + 1
            }
        };
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if !self.pace.left(Instant::now()).is_zero() {
            return Ok(Next::Lacking(1));
        }
        loop {
            match self.read() {
                Ok(Some(next)) => return Ok(next),
                Ok(None) => {}
                Err(error @ SegmentError::Archive { .. }) => return Err(SourceError::Away(error.to_string())),
                Err(error @ (SegmentError::Damaged { .. } | SegmentError::Hole { .. })) => {
                    return Err(SourceError::Damaged(error.to_string()));
                }
                Err(error) => return Err(SourceError::Refused(error.to_string())),
            }
        }
    }

    fn is_ready(&self) -> bool {
        !self.changes.is_empty()
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        let left = self.pace.left(Instant::now());
        if !left.is_zero() {
            sleep(left.min(PAUSE));
            return Ok(());
        }
        sleep(LOOK_EVERY);
        self.has_waited = true;
        self.chain.refresh().map_err(|error| SourceError::Away(error.to_string()))
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.pace.set(rate, Instant::now());
        Ok(true)
    }
}
