//! A relay as others see it: what is read, and how far that is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_feed::Rate;
use moneta_store::Clock;
use parking_lot::Mutex;

use crate::config::RelayConfig;
use crate::counts::{Counts, add};
use crate::due::{Due, DueCause, Gapped, OnDue};
use crate::probe::Probe;
use crate::share::Share;
use crate::stream::StreamState;
use crate::topic::Known;

/// What the relay's thread does, as others see it.
pub(crate) struct RelayShared {
    pub(crate) config: RelayConfig,
    pub(crate) counts: Arc<Counts>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) view: Mutex<View>,
    pub(crate) gaps: Mutex<VecDeque<Gapped>>,
    /// Up to when all was here at the start of this process; `None`: what it carries is told later.
    pub(crate) whole_at_start: Option<u64>,
    /// The topic between the regions, if there is one.
    pub(crate) topic: Option<Arc<Known>>,
    /// It is read from.
    pub(crate) reads_topic: bool,
    pub(crate) probe: Option<Arc<Probe>>,
    pub(crate) on_due: OnDue,
}

/// What is read now.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) copy: String,
    pub(crate) epoch: u64,
    pub(crate) streams: Vec<Shown>,
    /// Why the progress cannot be kept.
    pub(crate) unkept: Option<String>,
    /// What is carried.
    pub(crate) shares: Vec<Share>,
    /// Of what is carried and not read yet: up to when all is here.
    pub(crate) unread: Option<u64>,
    /// Why no share is asked for.
    pub(crate) unleased: Option<String>,
}

/// A stream with its place.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) share: Share,
    pub(crate) slot: String,
    pub(crate) address: String,
    pub(crate) state: Arc<StreamState>,
    /// Bytes a second; 0: no bound.
    pub(crate) rate: Rate,
}

impl RelayShared {
    /// Up to when all is here, in milliseconds since the Unix epoch. Of what others carry this relay lacks nothing.
    pub(crate) fn whole(&self) -> u64 {
        let least = {
            let view = self.view.lock();
            let before = self.whole_at_start.filter(|_| !self.is_idle(&view));
            least(view.streams.iter()).into_iter().chain(view.unread).min().or(before)
        };
        least.unwrap_or_else(|| {
            self.clock.refresh();
            self.clock.millis()
        })
    }

    /// There is nothing to read for it: others have all shares, or none of the topic's partitions is of its own.
    pub(crate) fn is_idle(&self, view: &View) -> bool {
        let partitions = self.topic.as_ref().filter(|_| self.reads_topic).map_or(0, |topic| topic.partitions());
        let has_none = |share: &Share| u32::from(share.number) > partitions;
        view.streams.is_empty()
            && view.unread.is_none()
            && match view.shares.is_empty() {
                true => self.is_leased(),
                false => partitions > 0 && view.shares.iter().all(has_none),
            }
    }

    /// All was here up to `since`; what was written there after that, and less than the margin before it, is to be compared.
    pub(crate) fn due(&self, since: u64, cause: DueCause) {
        add(&self.counts.due[cause as usize], 1);
        let margin = u64::try_from(RelayConfig::MARGIN.as_millis()).unwrap_or(u64::MAX);
        let copy = self.view.lock().copy.clone();
        (self.on_due)(Due { since: since.saturating_sub(margin).max(1), copy, cause });
    }

    /// Gives each stream its part of the rate.
    pub(crate) fn divide_rate(&self, view: &View) {
        let each = self.config.rate.get().div_ceil(view.streams.len().max(1) as u64);
        view.streams.iter().for_each(|stream| stream.rate.set(each));
    }

    /// Whether shares are this relay's by leases.
    pub(crate) fn is_leased(&self) -> bool {
        self.whole_at_start.is_none()
    }

    /// How many changes wait at the sources that say so, about, and how many are under way; `None`: none says so.
    pub(crate) fn lag_changes(&self) -> Option<u64> {
        let view = self.view.lock();
        let told: Vec<u64> = view.streams.iter().filter_map(|stream| stream.state.behind()).collect();
        (!told.is_empty() || self.is_idle(&view)).then(|| told.iter().sum::<u64>() + self.counts.under_way())
    }

    /// How far behind it is.
    pub(crate) fn lag(&self) -> Duration {
        self.clock.refresh();
        Duration::from_millis(self.clock.millis().saturating_sub(self.whole()))
    }
}

/// Up to when all is here that these have told.
fn least<'s>(streams: impl Iterator<Item = &'s Shown>) -> Option<u64> {
    streams.map(|stream| stream.state.watermark.load(Ordering::Relaxed)).min()
}
