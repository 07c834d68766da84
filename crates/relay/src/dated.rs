//! A source whose items know since when they were current.
//!
//! A node tells what a key holds when it reads its log; the change may be on its way for long after that, as in buffers of a
//! connection that is cut. Meanwhile the key may be deleted here, and a node here may forget that by a restart. So an item is as old
//! as what is surely before its reading: the moment at which this connection was begun, or the last mark before it, less
//! [`CLOCKS_APART`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_feed::{Begin, Change, Line, Next, Source, SourceError};
use moneta_store::Clock;

/// How far the clocks of two regions may differ, in milliseconds, where one is not known by the other. One that is further ahead
/// shows by its versions, which wait here until their time has come.
const CLOCKS_APART: u64 = 5_000;

/// A source with dates.
pub(crate) struct Dated<S> {
    source: S,
    clock: Arc<Clock>,
    /// When the connection was begun, in milliseconds since the Unix epoch.
    began: Arc<AtomicU64>,
    /// What comes now was read after that.
    since: u64,
}

impl<S> Dated<S> {
    /// `began` is told when each connection begins.
    pub(crate) fn new(source: S, clock: Arc<Clock>, began: Arc<AtomicU64>) -> Self {
        Self { source, clock, began, since: 0 }
    }
}

impl<S: Source> Source for Dated<S> {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.clock.refresh();
        self.since = self.clock.millis();
        self.began.store(self.since, Ordering::Relaxed);
        self.source.begin(from, rate)
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        let mut next = self.source.next()?;
        match &mut next {
            Next::Line(Line::Change(Change::Set(set))) => {
                set.as_of = Some(set.as_of.map_or(self.since, |told| told.min(self.since)));
            }
            Next::Line(Line::Mark(mark)) => {
                self.clock.refresh();
                let before = mark.watermark.saturating_sub(CLOCKS_APART).min(self.clock.millis());
                self.since = self.since.max(before);
            }
            _ => {}
        }
        Ok(next)
    }

    fn is_ready(&self) -> bool {
        self.source.is_ready()
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        self.source.wait(bytes)
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.source.set_rate(rate)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use moneta_feed::{Mark, Set};
    use moneta_store::ItemMeta;

    use super::*;

    struct Lines(VecDeque<Line>);

    impl Source for Lines {
        fn begin(&mut self, _: Begin, _: u64) -> Result<(), SourceError> {
            Ok(())
        }

        fn next(&mut self) -> Result<Next, SourceError> {
            Ok(self.0.pop_front().map_or(Next::Lacking(1), Next::Line))
        }

        fn wait(&mut self, _: usize) -> Result<(), SourceError> {
            Ok(())
        }

        fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
            Ok(true)
        }
    }

    #[test]
    fn an_item_is_no_younger_than_what_was_surely_before_it() {
        const NOW: u64 = 1_790_000_000_000;
        let set = |as_of| {
            let (key, value) = (b"k"[..].into(), Some(b"v"[..].into()));
            Line::Change(Change::Set(Set { key, meta: ItemMeta::default(), value, as_of }))
        };
        let mark = |watermark| Line::Mark(Mark { cursor: "c".into(), watermark, horizon: 0, behind: None, more: true });
        let lines = [
            set(None),
            set(Some(NOW - 7_000)),
            // Of before the connection, and then of a clock that is ahead of this one.
            mark(NOW - 1_000),
            set(None),
            mark(NOW + 6_500),
            set(None),
            mark(NOW + 3_600_000),
            set(None),
        ];
        let clock = Arc::new(Clock::manual(0));
        clock.set_millis(NOW);
        let mut source = Dated::new(Lines(lines.into()), Arc::clone(&clock), Arc::default());
        source.begin(Begin::Now, 0).unwrap();
        clock.set_millis(NOW + 2_000);
        let mut dates = Vec::new();
        loop {
            match source.next().unwrap() {
                Next::Line(Line::Change(Change::Set(set))) => dates.push(set.as_of.unwrap()),
                Next::Line(_) => {}
                _ => break,
            }
        }
        assert_eq!(dates, [NOW, NOW - 7_000, NOW, NOW + 1_500, NOW + 2_000]);
    }
}
