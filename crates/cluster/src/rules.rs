//! The rules of a cluster that may change while it serves: how reads and writes are answered, when a node is ejected, how fast
//! hints go. Each request goes by the rules as they are when it looks at them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::config::{Ack, ClusterConfig, Fallback};

/// The rules, each by itself: none of them depends on another.
#[derive(Debug)]
pub struct Rules {
    ack: AtomicU8,
    fallback: AtomicU8,
    retry_budget: AtomicU32,
    eject_after: AtomicU32,
    eject_share: AtomicU32,
    eject_slow: AtomicU64,
    eject_slow_times: AtomicU32,
    eject_slow_requests: AtomicU32,
    hint_rate: AtomicU32,
    allow_flush: AtomicBool,
    /// Milliseconds.
    under_way: AtomicU64,
}

impl Rules {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        Self {
            ack: AtomicU8::new(config.ack as u8),
            fallback: AtomicU8::new(config.fallback as u8),
            retry_budget: AtomicU32::new(config.retry_budget),
            eject_after: AtomicU32::new(config.eject_after),
            eject_share: AtomicU32::new(config.eject_share),
            eject_slow: AtomicU64::new(nanoseconds(config.eject_slow)),
            eject_slow_times: AtomicU32::new(config.eject_slow_times),
            eject_slow_requests: AtomicU32::new(config.eject_slow_requests),
            hint_rate: AtomicU32::new(config.hint_rate),
            allow_flush: AtomicBool::new(config.allow_flush),
            under_way: AtomicU64::new(milliseconds(config.under_way)),
        }
    }

    /// As [`ClusterConfig::ack`]. Writes that are under way go by the rule that they began with, or by this one.
    pub fn set_ack(&self, ack: Ack) {
        self.ack.store(ack as u8, Relaxed);
    }

    /// As [`ClusterConfig::fallback`].
    pub fn set_fallback(&self, fallback: Fallback) {
        self.fallback.store(fallback as u8, Relaxed);
    }

    /// As [`ClusterConfig::retry_budget`].
    pub fn set_retry_budget(&self, percent: u32) {
        self.retry_budget.store(percent, Relaxed);
    }

    /// As [`ClusterConfig::eject_after`].
    pub fn set_eject_after(&self, failures: u32) {
        self.eject_after.store(failures, Relaxed);
    }

    /// As [`ClusterConfig::eject_share`].
    pub fn set_eject_share(&self, percent: u32) {
        self.eject_share.store(percent, Relaxed);
    }

    /// As [`ClusterConfig::eject_slow`]. A node that is ejected as slow is taken back by the limit that it was ejected by.
    pub fn set_eject_slow(&self, least: Duration) {
        self.eject_slow.store(nanoseconds(least), Relaxed);
    }

    /// As [`ClusterConfig::eject_slow_times`].
    pub fn set_eject_slow_times(&self, times: u32) {
        self.eject_slow_times.store(times, Relaxed);
    }

    /// As [`ClusterConfig::eject_slow_requests`].
    pub fn set_eject_slow_requests(&self, requests: u32) {
        self.eject_slow_requests.store(requests, Relaxed);
    }

    /// As [`ClusterConfig::hint_rate`].
    pub fn set_hint_rate(&self, a_second: u32) {
        self.hint_rate.store(a_second, Relaxed);
    }

    /// As [`ClusterConfig::allow_flush`].
    pub fn set_allow_flush(&self, allow: bool) {
        self.allow_flush.store(allow, Relaxed);
    }

    /// As [`ClusterConfig::under_way`]. It never becomes shorter: what began before goes by the time that was.
    pub(crate) fn extend_under_way(&self, span: Duration) {
        self.under_way.fetch_max(milliseconds(span), Relaxed);
    }

    /// How many copies must have taken a write.
    #[inline]
    pub fn ack(&self) -> Ack {
        match self.ack.load(Relaxed) {
            0 => Ack::None,
            1 => Ack::One,
            2 => Ack::Quorum,
            3 => Ack::AllButOne,
            _ => Ack::All,
        }
    }

    /// When a read goes to another copy.
    #[inline]
    pub fn fallback(&self) -> Fallback {
        match self.fallback.load(Relaxed) {
            0 => Fallback::None,
            1 => Fallback::Error,
            _ => Fallback::Miss,
        }
    }

    #[inline]
    pub(crate) fn retry_budget(&self) -> u32 {
        self.retry_budget.load(Relaxed)
    }

    pub(crate) fn eject_after(&self) -> u32 {
        self.eject_after.load(Relaxed)
    }

    pub(crate) fn eject_share(&self) -> u32 {
        self.eject_share.load(Relaxed)
    }

    pub(crate) fn eject_slow(&self) -> Duration {
        Duration::from_nanos(self.eject_slow.load(Relaxed))
    }

    pub(crate) fn eject_slow_times(&self) -> u32 {
        self.eject_slow_times.load(Relaxed)
    }

    pub(crate) fn eject_slow_requests(&self) -> u32 {
        self.eject_slow_requests.load(Relaxed)
    }

    pub(crate) fn allows_flush(&self) -> bool {
        self.allow_flush.load(Relaxed)
    }

    /// How long a write may be under way, in milliseconds.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Relaxed)
    }

    pub(crate) fn hint_rate(&self) -> u32 {
        self.hint_rate.load(Relaxed)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_read_as_it_was_set() {
        let rules = Rules::new(&ClusterConfig::new("app"));
        for ack in [Ack::None, Ack::One, Ack::Quorum, Ack::AllButOne, Ack::All] {
            rules.set_ack(ack);
            assert_eq!(rules.ack(), ack);
        }
        for fallback in [Fallback::None, Fallback::Error, Fallback::Miss] {
            rules.set_fallback(fallback);
            assert_eq!(rules.fallback(), fallback);
        }
        rules.extend_under_way(Duration::from_secs(9));
        rules.extend_under_way(Duration::from_secs(3));
        assert_eq!(rules.under_way(), 9000, "what began under the longer time may still be under way");
        rules.set_eject_slow(Duration::from_millis(7));
        assert_eq!(rules.eject_slow(), Duration::from_millis(7));
    }
}
