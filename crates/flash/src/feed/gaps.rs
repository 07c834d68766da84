//! When changes become missing from the log, and what superblocks say of it.

use std::io;
use std::sync::atomic::Ordering;

use moneta_store::Version;
use moneta_store::feed::{Change, GapCause};
use moneta_store::versions::Floor;

use crate::config::Durability;
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use moneta_device::devices::TierState;
use moneta_device::format::stamp::millis_of;

/// Regions that may be emptied before superblocks have to be written again: one in this many of all, at most
/// [`AHEAD_MAX`].
const AHEAD_SHARE: usize = 64;
/// As above.
const AHEAD_MAX: usize = 16;

impl Inner {
    /// A change is not in the log: readers that have not come so far are told of a gap.
    pub(crate) fn note_untold(&self, cause: GapCause) {
        if self.config.feed {
            self.telling.note_missing(self.log.sequence.next().local(), cause);
        }
    }

    /// A flush was taken.
    pub(crate) fn tell_flushed(&self, floor: Floor) {
        if self.config.feed {
            self.telling.note_event(|| self.log.sequence.next().local(), Change::Flush(floor));
        }
    }

    /// A region is about to be emptied. Its changes are missing from then on, also after a restart.
    ///
    /// # Errors
    /// If the superblocks cannot be written: the region must not be emptied then.
    pub(crate) fn tell_emptying(&self, region: usize) -> io::Result<()> {
        if !self.config.feed {
            return Ok(());
        }
        let last = Version(self.regions.get(region).summary().last).local();
        self.telling.note_missing(last, GapCause::Reclaimed);
        self.save_missing(self.telling.missing())
    }

    /// Writes down which changes are missing, if superblocks do not say so yet: those that came while devices were off are in RAM
    /// alone, and after a restart nowhere.
    ///
    /// # Errors
    /// If the superblocks cannot be written.
    pub(crate) fn save_untold(&self) -> io::Result<()> {
        if self.config.feed { self.save_missing(self.telling.missing()) } else { Ok(()) }
    }

    /// Which changes are missing, for superblocks that are written anyway.
    pub(crate) fn missing(&self) -> u64 {
        if self.config.feed { self.telling.missing() } else { 0 }
    }

    fn save_missing(&self, missing: u64) -> io::Result<()> {
        if missing <= self.telling.saved.load(Ordering::Acquire) {
            return Ok(());
        }
        // Those that go next are counted too, or each would cost a write of the superblocks.
        let mut next: Vec<(u64, u64)> = self
            .regions
            .iter()
            .filter(|(_, region)| region.state() == RegionStage::Closed)
            .map(|(_, region)| (region.sequence(), Version(region.summary().last).local()))
            .collect();
        let ahead = (self.regions.len() / AHEAD_SHARE).min(AHEAD_MAX);
        next.sort_unstable();
        let bound = next.iter().take(ahead).map(|(_, last)| *last).max().unwrap_or(0).max(missing);
        self.devices.save_feed_from(bound)?;
        self.telling.saved.fetch_max(bound, Ordering::AcqRel);
        Ok(())
    }

    /// Begins to tell, once everything is recovered; `before` is what the superblocks said before this run. Returns what they
    /// are to say of the feed from now on. `whole`: nothing was damaged; `killed`: the run before ended without a stop.
    pub(crate) fn begin_telling(&self, before: &TierState, whole: bool, killed: bool) -> (u64, u64) {
        let newest = self.regions.iter().map(|(_, region)| region.summary().last).max().unwrap_or(0);
        self.log.note_stamp(newest);
        let may_lose = self.config.durability != Durability::EveryWrite;
        if newest != 0 {
            self.config.progress.found(millis_of(Version(newest).local()), !whole || killed && may_lose);
        }
        if !self.config.feed {
            return (0, 0);
        }
        let now = self.log.sequence.next().local();
        // A run that did not keep the log as a feed has left changes out of it.
        let (missing, cause) = match before.feed_from {
            // What a device lacks was lost by it; superblocks do not say why the rest was missing, which as a rule was emptied.
            0 => (now, GapCause::Start),
            _ if !whole => (now, GapCause::Lost),
            from => (from, GapCause::Reclaimed),
        };
        self.telling.note_missing(missing, cause);
        self.telling.saved.store(missing, Ordering::Release);
        let lost = if killed && may_lose { now } else { before.lost };
        self.telling.lost.store(lost, Ordering::Release);
        // Which readers were told of it is not known.
        let floors = self.floors.known();
        let last = Floor { version: Version(before.floor_version), second: before.floor_from };
        if floors.pending.is_some() && floors.bound > Version::ZERO {
            let second = u32::try_from(floors.bound.millis() / 1000).unwrap_or(u32::MAX);
            self.tell_flushed(Floor { version: floors.bound, second });
        }
        if last.version > Version::ZERO {
            self.tell_flushed(last);
        }
        (missing, lost)
    }
}
