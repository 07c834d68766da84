//! What a cluster store is told of the app that it serves.

use std::path::PathBuf;
use std::time::Duration;

/// How many copies must have taken a write before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// None: the write is answered once it was sent.
    None,
    /// One.
    One,
    /// More than half; of two both, or the one that answers while the other is away.
    #[default]
    Quorum,
    /// All but one; the one, where there is only one.
    AllButOne,
    /// All.
    All,
}

impl Ack {
    /// The same, where `away` of the copies do not answer.
    pub(crate) fn without(self, copies: usize, away: usize) -> usize {
        if self == Self::Quorum { self.deciding(copies, away) } else { self.of(copies) }
    }

    /// How many copies decide changes and flushes, where `away` of them do not answer: more than half, and of two the other one
    /// while one is away, unless all are wanted. Two copies would else be less than one: the failure of either would stop all
    /// changes.
    pub(crate) fn deciding(self, copies: usize, away: usize) -> usize {
        if copies == 2 && away > 0 && self != Self::All { 1 } else { majority(copies) }
    }

    /// How many copies have to say what they hold, so that one of them has each write that was acknowledged, be it a set or a
    /// change and be one of two copies away.
    pub(crate) fn telling(self, copies: usize) -> usize {
        let taken = self.without(copies, copies).min(self.deciding(copies, copies));
        copies + 1 - taken.clamp(1, copies.max(1))
    }

    /// How many of `copies` that is. Copies that take writes only do not count.
    pub fn of(self, copies: usize) -> usize {
        match self {
            Self::None => 0,
            Self::One => copies.min(1),
            Self::Quorum => majority(copies),
            Self::AllButOne => copies.saturating_sub(1).max(copies.min(1)),
            Self::All => copies,
        }
    }
}

/// More than half.
pub(crate) fn majority(copies: usize) -> usize {
    copies / 2 + 1
}

/// When a read that the near copy did not answer with a hit goes to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Never.
    None,
    /// When the near copy's node fails.
    Error,
    /// Also when it has no such item. So a node that comes back empty fills itself from what is read.
    #[default]
    Miss,
}

/// How an app's data are read and written.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The app's name, in metrics and in messages.
    pub app: String,
    /// The zone whose copies are read first; `None`: any.
    pub zone: Option<String>,
    /// Copies that must have taken a write.
    pub ack: Ack,
    /// When a read goes to another copy.
    pub fallback: Fallback,
    /// Second reads, in a hundredth of all reads: a bound on what failures and misses cost the other copies.
    pub retry_budget: u32,
    /// Failures in a row after which a node that takes no connection is not asked any more until it answers a probe, and one that
    /// does is asked whether it is there. At least 1.
    pub eject_after: u32,
    /// Nodes of a zone that may be ejected at once for being slow or silent, in a hundredth of them; one may always be, unless it
    /// has the last copy of a key. What takes no connection is ejected in any case.
    pub eject_share: u32,
    /// A node that takes longer than this to answer, on average, may be ejected as slow; zero: none is. More than what the
    /// farthest zone takes.
    pub eject_slow: Duration,
    /// How many times slower than others (the median of their means) it has to be for that. At least 1.
    pub eject_slow_times: u32,
    /// Requests over which that is judged, at least. At least 1.
    pub eject_slow_requests: u32,
    /// The pause before the first probe of an ejected node; each further one is half as long again, up to
    /// [`ClusterConfig::PROBE_MAX`].
    pub probe_min: Duration,
    /// Memory for the hints of one node, in bytes.
    pub hint_bytes: u64,
    /// Where hints are kept over a restart; `None`: in memory alone.
    pub hint_dir: Option<PathBuf>,
    /// How long a write may be under way: one that is on no node after that never will be. More than requests to nodes take.
    pub under_way: Duration,
    /// How far ahead of cluster time a version may be that this process believes.
    pub clock_skew_max: Duration,
    /// Hints delivered to a node in a second, at most.
    pub hint_rate: u32,
    /// After how long without a word from another process of the app, by way of boards, its last writes are compared on all
    /// copies; zero: this process neither compares nor says that it lives. A little more with each process, so that boards are
    /// posted on as often with many.
    pub mend_after: Duration,
    /// What the app's keys begin with on its nodes; empty: with anything. Where other apps have nodes of this one, keys without
    /// it are not compared, none if it is empty.
    pub prefix: Vec<u8>,
    /// Longer such prefixes, of other apps.
    pub others: Vec<Vec<u8>>,
    /// Whether the app can be flushed through this store.
    pub allow_flush: bool,
}

impl ClusterConfig {
    /// The longest pause between two probes of an ejected node.
    pub const PROBE_MAX: Duration = Duration::from_secs(60);

    /// [`ClusterConfig::under_way`] where a request to a node may take `node_timeout`: two of them, and some time for threads.
    pub fn under_way_of(node_timeout: Duration) -> Duration {
        2 * node_timeout + Duration::from_secs(1)
    }

    /// The defaults, for an app of this name.
    pub fn new(app: impl Into<String>) -> Self {
        Self {
            app: app.into(),
            zone: None,
            ack: Ack::default(),
            fallback: Fallback::default(),
            retry_budget: 50,
            eject_after: 5,
            eject_share: 0,
            eject_slow: Duration::from_millis(100),
            eject_slow_times: 5,
            eject_slow_requests: 10,
            probe_min: Duration::from_secs(1),
            hint_bytes: 16 << 20,
            hint_dir: None,
            under_way: Duration::from_secs(2),
            clock_skew_max: Duration::from_millis(crate::apart::APART),
            hint_rate: 5_000,
            mend_after: Duration::from_secs(40),
            prefix: Vec::new(),
            others: Vec::new(),
            allow_flush: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_say_how_many() {
        let of = |ack: Ack| [1, 2, 3, 4, 5].map(|copies| ack.of(copies));
        assert_eq!(of(Ack::None), [0; 5]);
        assert_eq!(of(Ack::One), [1; 5]);
        assert_eq!(of(Ack::Quorum), [1, 2, 2, 3, 3]);
        assert_eq!(of(Ack::AllButOne), [1, 1, 2, 3, 4]);
        assert_eq!(of(Ack::All), [1, 2, 3, 4, 5]);
        assert_eq!(Ack::All.of(0), 0);
        let without_one = |ack: Ack| [1, 2, 3, 4, 5].map(|copies| ack.without(copies, 1));
        assert_eq!(without_one(Ack::Quorum), [1, 1, 2, 3, 3], "two copies do without one, as three do");
        assert_eq!(without_one(Ack::All), [1, 2, 3, 4, 5]);
    }
}
