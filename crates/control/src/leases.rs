//! The keeper of leases of an environment: who renews, who does not, and who is away.
//!
//! ```text
//!            renewal                       renewal
//!   live <───────────── suspect <─────────────────── away
//!    │                   ^   │                         ^
//!    └── three missed ───┘   └── two failed probes ────┘
//! ```
//! There is no edge from live to away. Two rules hold the last edge back: at most 15 % of an app's instances a minute take it (one
//! always may), and while at least three and more than 15 % of all expected renewals are missing, none does unless its port refuses
//! connections: then the fault is more likely here, or in the network. What is expected and what is missing is computed from the
//! leases as they are, each by its own period.
//!
//! Everything is a function of a monotonic clock that is passed in; the wall clock has no say.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A moment of a monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// How long ago `earlier` is, in milliseconds.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Renewals that an instance may miss before it is suspect.
const MISSED: u64 = 3;
/// Failed probes, one after the other, that make a suspect one away.
const PROBES: u8 = 2;
/// Time between these, in milliseconds.
const PROBE_GAP: u64 = 2_000;
/// How long a failed probe says something, in milliseconds: later it is repeated before anything follows from it.
const PROBE_HOLDS: u64 = 10_000;
/// How often a suspect one that answers, or that the rules hold back, is probed again at the least, in milliseconds.
const PROBE_AGAIN: u64 = 30_000;
/// The share of an app's instances that may become away within [`BOUND_WITHIN`], and of missing renewals above which none does: of
/// a hundred.
const BOUND: usize = 15;
/// The time of the bound, in milliseconds.
const BOUND_WITHIN: u64 = 60_000;
/// Missing renewals below which nothing is held back.
const PROTECTED_FROM: usize = 3;
/// A pause between ticks from which on it is this process that was stopped, in milliseconds: renewals of that time were not heard.
const PAUSE: u64 = 5_000;

/// An instance: its app and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// Its app.
    pub app: Arc<str>,
    /// Its id within the app.
    pub id: Arc<str>,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// Something answered.
    Answers,
    /// The port refuses connections.
    Refused,
    /// Nothing answered in time.
    Silent,
}

/// How it stands with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It renews.
    Live,
    /// It missed three renewals.
    Suspect,
    /// It missed three renewals, and two probes found it gone.
    Away,
}

impl Standing {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Away => "away",
        }
    }
}

#[derive(Debug)]
struct Lease {
    /// How often it renews, in milliseconds.
    period: u64,
    seen: Moment,
    is_away: bool,
    /// Failed probes, one after the other.
    failed: u8,
    /// Whether the last one was refused.
    is_refused: bool,
    probed: Option<Moment>,
    is_probing: bool,
}

/// What a tick asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// To be probed; [`Leases::probed`] takes what came of it.
    pub probe: Vec<Instance>,
    /// Those that became away.
    pub away: Vec<(Instance, Probed)>,
}

/// Renewals as they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewals {
    /// Instances that are to renew.
    pub expected: usize,
    /// Of these, those whose last renewal is missing.
    pub missing: usize,
    /// Whether none becomes away because too many are missing.
    pub is_protected: bool,
    /// Instances that are suspect.
    pub suspect: usize,
    /// Instances that are away; no renewal is expected of them.
    pub away: usize,
}

/// All leases of an environment.
#[derive(Debug, Default)]
pub struct Leases {
    leases: HashMap<Instance, Lease>,
    /// When instances of an app became away, within the time of the bound.
    recent: HashMap<Arc<str>, VecDeque<Moment>>,
    ticked: Option<Moment>,
    /// By app, how many leases there are.
    of_apps: HashMap<Arc<str>, usize>,
    /// Those that have missed something: what a tick looks at beyond counting.
    late: HashSet<Instance>,
    /// As they were at the last tick.
    renewals: Renewals,
}

impl Leases {
    /// Begins a lease of `period` milliseconds, as for one that has just renewed: a new keeper grants all of them a full period. One
    /// that is known keeps what it has, but for its period.
    pub fn adopt(&mut self, instance: &Instance, period: u64, is_away: bool, now: Moment) {
        if let Some(lease) = self.leases.get_mut(instance) {
            lease.period = period;
            return;
        }
        *self.of_apps.entry(Arc::clone(&instance.app)).or_default() += 1;
        let lease = Lease { period, seen: now, is_away, failed: 0, is_refused: false, probed: None, is_probing: false };
        self.leases.insert(instance.clone(), lease);
    }

    /// Ends a lease: the instance is gone.
    pub fn forget(&mut self, instance: &Instance) {
        if self.leases.remove(instance).is_none() {
            return;
        }
        self.late.remove(instance);
        if let Some(count) = self.of_apps.get_mut(&instance.app) {
            *count -= 1;
            if *count == 0 {
                self.of_apps.remove(&instance.app);
                self.recent.remove(&instance.app);
            }
        }
    }

    /// The ledger says that it is away.
    pub fn set_away(&mut self, instance: &Instance) {
        if let Some(lease) = self.leases.get_mut(instance) {
            lease.is_away = true;
            self.late.remove(instance);
        }
    }

    /// The ledger says that it is not away any more.
    pub fn set_here(&mut self, instance: &Instance) {
        if let Some(lease) = self.leases.get_mut(instance) {
            lease.is_away = false;
        }
    }

    /// Those are away of which `is_away` says so, and no others.
    pub fn set_all_away(&mut self, is_away: impl Fn(&Instance) -> bool) {
        for (instance, lease) in &mut self.leases {
            lease.is_away = is_away(instance);
        }
    }

    /// It is not away after all: that could not be written down. It is found again.
    pub fn take_back(&mut self, instance: &Instance) {
        if let Some(lease) = self.leases.get_mut(instance) {
            (lease.is_away, lease.failed, lease.probed) = (false, 0, None);
        }
    }

    /// Ends those that are not as wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&Instance) -> bool) {
        let gone: Vec<Instance> = self.leases.keys().filter(|instance| !is_wanted(instance)).cloned().collect();
        gone.iter().for_each(|instance| self.forget(instance));
    }

    /// It is here. Returns whether it was away; `None`: it has no lease.
    pub fn renew(&mut self, instance: &Instance, now: Moment) -> Option<bool> {
        let lease = self.leases.get_mut(instance)?;
        self.late.remove(instance);
        (lease.seen, lease.failed, lease.probed) = (now, 0, None);
        Some(std::mem::take(&mut lease.is_away))
    }

    /// Another process heard of it, some milliseconds ago. Whether it is away is for the ledger to say.
    pub fn heard(&mut self, instance: &Instance, now: Moment, ago: u64) {
        let Some(lease) = self.leases.get_mut(instance) else { return };
        let seen = Moment(now.0.saturating_sub(ago));
        if seen > lease.seen {
            (lease.seen, lease.failed, lease.probed) = (seen, 0, None);
            self.late.remove(instance);
        }
    }

    /// Grants all a full period, as a new keeper does: what was not heard before says nothing.
    pub fn grant(&mut self, now: Moment) {
        for lease in self.leases.values_mut() {
            (lease.seen, lease.failed, lease.probed, lease.is_probing) = (now, 0, None, false);
        }
        self.late.clear();
        self.recent.clear();
        (self.ticked, self.renewals) = (None, Renewals::default());
    }

    /// How it stands with an instance; `None`: it has no lease.
    pub fn standing(&self, instance: &Instance, now: Moment) -> Option<Standing> {
        self.leases.get(instance).map(|lease| lease.standing(now))
    }

    /// Milliseconds since it was last heard of.
    pub fn unseen_for(&self, instance: &Instance, now: Moment) -> Option<u64> {
        self.leases.get(instance).map(|lease| now.since(lease.seen))
    }

    /// What came of a probe that was asked for.
    pub fn probed(&mut self, instance: &Instance, probed: Probed, now: Moment) {
        let Some(lease) = self.leases.get_mut(instance) else { return };
        lease.is_probing = false;
        if lease.standing(now) != Standing::Suspect {
            return;
        }
        lease.probed = Some(now);
        lease.is_refused = probed == Probed::Refused;
        lease.failed = if probed == Probed::Answers { 0 } else { lease.failed.saturating_add(1) };
    }

    /// Looks at all leases; to be called about once a second. Asks for at most `probes` probes.
    pub fn tick(&mut self, now: Moment, probes: usize) -> Tick {
        self.forgive_pause(now);
        let was_protected = self.renewals.is_protected;
        self.renewals = self.renewals_at(now);
        if was_protected && !self.renewals.is_protected {
            // The fault is over: what was found during it says nothing of those whose renewal is yet to come.
            self.look_again();
        }
        self.note_late(now);
        let mut tick = Tick::default();
        let mut late: Vec<Instance> = self.late.iter().cloned().collect();
        // Those that wait for longest first, and the same order in every run.
        late.sort_by_cached_key(|instance| {
            let lease = &self.leases[instance];
            (lease.probed, lease.seen, instance.clone())
        });
        for instance in late {
            let Some(lease) = self.leases.get(&instance).filter(|lease| lease.standing(now) == Standing::Suspect)
            else {
                continue;
            };
            let is_known_gone =
                lease.failed >= PROBES && lease.probed.is_some_and(|probed| now.since(probed) <= PROBE_HOLDS);
            let is_refused = lease.is_refused;
            if is_known_gone && (is_refused || !self.renewals.is_protected) && self.may_leave(&instance.app, now) {
                let why = if is_refused { Probed::Refused } else { Probed::Silent };
                self.recent.entry(Arc::clone(&instance.app)).or_default().push_back(now);
                if let Some(lease) = self.leases.get_mut(&instance) {
                    lease.is_away = true;
                }
                self.late.remove(&instance);
                tick.away.push((instance, why));
            } else if tick.probe.len() < probes
                && let Some(lease) = self.leases.get_mut(&instance).filter(|lease| lease.wants_probe(now))
            {
                lease.is_probing = true;
                tick.probe.push(instance);
            }
        }
        tick
    }

    /// Renewals of a time in which this process was stopped were not heard: it counts for none.
    fn forgive_pause(&mut self, now: Moment) {
        let pause = self.ticked.replace(now).map_or(0, |last| now.since(last));
        if pause < PAUSE {
            return;
        }
        for lease in self.leases.values_mut() {
            lease.seen = Moment(lease.seen.0.saturating_add(pause)).min(now);
            // What was found in a time that this process does not know is found again.
            (lease.failed, lease.probed) = (0, None);
        }
    }

    /// Renewals as they are at a moment.
    pub fn renewals_at(&self, now: Moment) -> Renewals {
        let mut renewals = Renewals::default();
        for lease in self.leases.values() {
            if lease.is_away {
                renewals.away += 1;
                continue;
            }
            renewals.expected += 1;
            renewals.missing += usize::from(lease.is_missing(now));
            renewals.suspect += usize::from(lease.standing(now) == Standing::Suspect);
        }
        renewals.is_protected =
            renewals.missing >= PROTECTED_FROM && renewals.missing * 100 > renewals.expected * BOUND;
        renewals
    }

    /// Forgets what probes found.
    fn look_again(&mut self) {
        for instance in &self.late {
            if let Some(lease) = self.leases.get_mut(instance) {
                (lease.failed, lease.probed) = (0, None);
            }
        }
    }

    fn note_late(&mut self, now: Moment) {
        for (instance, lease) in &self.leases {
            if lease.standing(now) == Standing::Suspect && !self.late.contains(instance) {
                self.late.insert(instance.clone());
            }
        }
    }

    /// Whether one more of the app's instances may become away now.
    fn may_leave(&mut self, app: &Arc<str>, now: Moment) -> bool {
        let Some(recent) = self.recent.get_mut(app) else { return true };
        while recent.front().is_some_and(|left| now.since(*left) >= BOUND_WITHIN) {
            recent.pop_front();
        }
        let all = self.of_apps.get(app).copied().unwrap_or(0);
        recent.len() < (all * BOUND / 100).max(1)
    }
}

impl Lease {
    fn standing(&self, now: Moment) -> Standing {
        match () {
            () if self.is_away => Standing::Away,
            () if now.since(self.seen) > MISSED * self.period => Standing::Suspect,
            () => Standing::Live,
        }
    }

    /// Whether its last renewal is missing: half a period is what one may take, and be late.
    fn is_missing(&self, now: Moment) -> bool {
        2 * now.since(self.seen) > 3 * self.period
    }

    fn wants_probe(&self, now: Moment) -> bool {
        let gap = if (1..PROBES).contains(&self.failed) { PROBE_GAP } else { PROBE_AGAIN };
        !self.is_probing && self.probed.is_none_or(|probed| now.since(probed) >= gap)
    }
}

#[cfg(test)]
mod tests;
