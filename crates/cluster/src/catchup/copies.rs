//! Other copies as they look from a node that reads them, and whether what was read of them is enough.

use std::sync::Arc;

use moneta_net::Address;

use super::peers::{Keys, Source};
use super::reader::{Progress, Reader};
use super::state::CatchUpState;
use crate::config::majority;

/// A reader whose node does not answer and that has failed so often is given up for now: another copy is asked.
const FAILURES: u64 = 3;

/// What is to be read of a feed, in milliseconds since the Unix epoch.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Where reading begins.
    pub(super) since: u64,
    /// Since when nothing may be missing.
    pub(super) needed: u64,
    /// What was taken until then is to be read.
    pub(super) until: u64,
}

/// Another copy, and its readers once it is asked.
pub(super) struct Copy {
    source: Source,
    readers: Vec<Arc<Progress>>,
}

/// How a copy looks from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is not asked yet.
    Unasked,
    /// It is being read.
    Reading,
    /// A node of it cannot be reached.
    Away,
    /// It does not know what this node has missed.
    Gap { whole: bool },
    /// All of it was read.
    Read { whole: bool },
}

impl Copy {
    pub(super) fn new(source: Source) -> Self {
        Self { source, readers: Vec::new() }
    }

    pub(super) fn look(&self, until: u64) -> Look {
        if self.readers.is_empty() {
            return Look::Unasked;
        }
        let all = || self.readers.iter().map(|reader| (reader.reached(), reader.failures()));
        let whole = all().all(|(reached, _)| reached.whole);
        if all().any(|(reached, failures)| !reached.answers && failures >= FAILURES) {
            Look::Away
        } else if all().any(|(reached, _)| reached.answers && reached.gap) {
            Look::Gap { whole }
        } else if all().all(|(reached, _)| reached.answers && reached.watermark >= until) {
            Look::Read { whole }
        } else {
            Look::Reading
        }
    }

    /// Begins to read all its nodes that hold keys of this one, under a name that tells who reads.
    pub(super) fn ask(&mut self, state: &Arc<CatchUpState>, keys: &Arc<Keys>, name: &str, span: Span) {
        for address in &self.source.nodes {
            let progress = Arc::<Progress>::default();
            let reader = Reader {
                state: Arc::clone(state),
                address: address.clone(),
                keys: Arc::clone(keys),
                since: span.since,
                needed: span.needed,
                name: name.to_owned(),
                progress: Arc::clone(&progress),
            };
            if let Err(error) = moneta_background::start("catch-up-read", move |_| reader.run()) {
                tracing::error!(%error, "no thread to read a feed");
            }
            self.readers.push(progress);
        }
    }

    pub(super) fn stop(&mut self) {
        self.readers.drain(..).for_each(|reader| reader.stop());
    }

    /// Whether it is asked, and all its nodes answer reads, be their feeds readable or not.
    pub(super) fn serves(&self) -> bool {
        !self.readers.is_empty() && self.readers.iter().all(|reader| reader.reached().serves)
    }

    /// Whether a node of it was asked and does not answer reads.
    pub(super) fn is_out(&self) -> bool {
        self.readers.iter().any(|reader| !reader.reached().serves && reader.failures() >= FAILURES)
    }

    /// Its nodes that hold keys of this one.
    pub(super) fn nodes(&self) -> &[Address] {
        &self.source.nodes
    }

    pub(super) fn is_asked(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Up to when all its nodes were read, in milliseconds since the Unix epoch.
    pub(super) fn watermark(&self) -> u64 {
        self.readers.iter().map(|reader| reader.reached().watermark).min().unwrap_or(0)
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Enough,
    TooLittle,
    Ask(usize),
    Wait,
}

/// Judges what was learned from the other copies, of `all` with this one.
pub(super) fn verdict(looks: &[Look], all: usize) -> Verdict {
    if looks.contains(&Look::Read { whole: true }) {
        return Verdict::Enough;
    }
    let is_under_way = looks.contains(&Look::Reading);
    let next = looks.iter().position(|look| *look == Look::Unasked);
    // A copy that has come back itself may lack what a third one has: so that is read at the same time.
    let is_alone = looks.iter().any(|look| !matches!(look, Look::Unasked | Look::Reading));
    if let Some(next) = next.filter(|_| is_alone || !is_under_way) {
        return Verdict::Ask(next);
    }
    if is_under_way || next.is_some() {
        return Verdict::Wait;
    }
    let read = looks.iter().filter(|look| matches!(look, Look::Read { .. })).count();
    if 1 + read >= majority(all) {
        Verdict::Enough
    } else if looks.contains(&Look::Gap { whole: true }) {
        Verdict::TooLittle
    } else {
        Verdict::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::Look::{Away, Gap, Read, Reading, Unasked};
    use super::*;

    #[test]
    fn one_copy_that_is_whole_is_enough_and_others_are_asked_only_where_it_is_none() {
        let (whole, back) = (Read { whole: true }, Read { whole: false });
        for (looks, expected) in [
            (&[Unasked, Unasked][..], Verdict::Ask(0)),
            (&[Reading, Unasked], Verdict::Wait),
            (&[whole, Unasked], Verdict::Enough),
            (&[Away, Unasked], Verdict::Ask(1)),
            (&[Gap { whole: true }, Unasked], Verdict::Ask(1)),
            (&[Gap { whole: true }, Reading], Verdict::Wait),
            (&[Gap { whole: true }, whole], Verdict::Enough),
            (&[Gap { whole: true }, Gap { whole: true }], Verdict::TooLittle),
            (&[Gap { whole: true }, Away], Verdict::TooLittle),
            (&[Gap { whole: false }, Away], Verdict::Wait),
            // After a loss of power: all that answer are read, and are more than half.
            (&[back, Unasked], Verdict::Ask(1)),
            (&[back, Reading], Verdict::Wait),
            (&[back, back], Verdict::Enough),
            (&[back, Away], Verdict::Enough),
            (&[Away, Away], Verdict::Wait),
        ] {
            assert_eq!(verdict(looks, 3), expected, "{looks:?}");
        }
        assert_eq!(verdict(&[Away], 2), Verdict::Wait, "one of two copies");
    }
}
