//! Which topologies the processes of an app have, as they tell each other, and how the one of this process stands to those.

use std::fmt;

use crate::topology::Topology;

/// From when a process says that it has read a topology until it takes effect, in milliseconds: others hear it within a second.
pub(crate) const NOTICE: u64 = 1_500;
/// A process that has another one for longer than this is shown, in milliseconds.
const PATIENCE: u64 = 3_000;
/// Where processes differ, each says again what it has after so long, in milliseconds; and it is believed for that long.
const AGAIN: u64 = 5_000;
pub(crate) const LIFE: u64 = 15_000;

/// Where none has said so for as long, one of them says what it has, in milliseconds: so other apps know that the nodes have this
/// one, too.
const RENEW: u64 = 300_000;

/// A topology that a process has, or has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// 0: its source counts none.
    pub(crate) epoch: u64,
    /// Of all but the epoch.
    pub(crate) hash: u64,
    /// When it took effect, in milliseconds since the Unix epoch; 0: the process began with it.
    pub(crate) at: u64,
    /// When a process said last that it has it, in the same.
    pub(crate) seen: u64,
}

/// How the topology of this process stands to those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agreement {
    /// No other process has said that it has another one.
    #[default]
    Agrees,
    /// Another process has a newer one.
    Behind,
    /// Another process has a different one, and neither is known to be the newer.
    Differs,
}

impl fmt::Display for Agreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Agrees => "is that of all processes that were heard",
            Self::Behind => "is behind: another process has a newer one",
            Self::Differs => "differs from that of another process",
        })
    }
}

impl Taken {
    pub(crate) fn of(topology: &Topology, is_counted: bool, at: u64) -> Self {
        let text = Topology { epoch: 0, ..topology.clone() }.to_toml();
        let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
        Self { epoch: if is_counted { topology.epoch } else { 0 }, hash, at, seen: 0 }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.epoch, self.hash) == (other.epoch, other.hash)
    }

    /// Whether this one replaced the other. `None`: that is not known.
    fn is_newer_than(&self, other: &Self) -> Option<bool> {
        match (self.epoch, other.epoch) {
            (0, _) | (_, 0) => (self.at != 0 && self.at != other.at).then_some(self.at > other.at),
            (ours, theirs) => (ours != theirs).then_some(ours > theirs),
        }
    }
}

/// The topologies that processes of the app have said to have, those lately said alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topologies(pub(crate) Vec<Taken>);

impl Topologies {
    /// Of one app at a time, at most.
    pub(crate) const MAX: usize = 8;

    /// Adds what a process has said, at `now`.
    pub(crate) fn add(&mut self, said: Taken, now: u64) {
        self.0.retain(|known| known.seen.saturating_add(LIFE) > now);
        if said.seen > now + LIFE || said.seen.saturating_add(LIFE) <= now {
            return;
        }
        match self.0.iter().position(|known| known.is(&said)) {
            Some(at) => {
                let known = &mut self.0[at];
                known.seen = known.seen.max(said.seen);
                known.at = if known.at == 0 || said.at == 0 { known.at.max(said.at) } else { known.at.min(said.at) };
            }
            None if self.0.len() < Self::MAX => self.0.push(said),
            None => {}
        }
    }

    /// When this topology takes effect, if a process has told that.
    pub(crate) fn effect_of(&self, topology: &Taken) -> Option<u64> {
        self.0.iter().find(|known| known.is(topology)).map(|known| known.at).filter(|at| *at > 0)
    }

    /// When a process last told that it has this topology.
    fn seen(&self, topology: &Taken) -> u64 {
        self.0.iter().find(|known| known.is(topology)).map_or(0, |known| known.seen)
    }

    /// The one that replaced `own`, and how `own` stands to all at `now`.
    pub(crate) fn judge(&self, own: &Taken, now: u64) -> (Option<Taken>, Agreement) {
        let others = || self.0.iter().filter(|other| other.hash != own.hash && other.seen.saturating_add(LIFE) > now);
        let newer =
            others().filter(|other| other.is_newer_than(own) == Some(true)).max_by_key(|other| (other.epoch, other.at));
        if let Some(newer) = newer {
            let is_late = now > newer.at.saturating_add(PATIENCE);
            return (Some(*newer), if is_late { Agreement::Behind } else { Agreement::Agrees });
        }
        // One that was there before this one is gone if no process says again that it has it.
        let stays = |other: &Taken| match other.is_newer_than(own) {
            Some(_) => own.epoch == 0 && other.seen > own.at.saturating_add(PATIENCE),
            None => own.at == 0 || other.seen > own.at.saturating_add(PATIENCE),
        };
        (None, if others().any(stays) { Agreement::Differs } else { Agreement::Agrees })
    }
}

/// What this process says of its topology, and what it has found.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The one that it has.
    pub(crate) own: Taken,
    /// The one that it has read, until that takes effect.
    pub(crate) next: Option<Taken>,
    /// Another process has said that it has another one: this one says again what it has.
    is_contested: bool,
    /// This one was said.
    is_said: bool,
    /// When some process was last heard to say what it has.
    heard_at: u64,
    pub(crate) agreement: Agreement,
}

impl Standing {
    /// Takes a topology.
    pub(crate) fn take(&mut self, taken: Taken) {
        (self.own, self.next, self.is_said) = (taken, None, false);
    }

    /// What is to be said at `now` to others, who know `known`.
    pub(crate) fn to_say(&self, known: &Topologies, now: u64) -> Option<Taken> {
        let of = |topology: &Taken| Taken { seen: now, ..*topology };
        if let Some(next) = &self.next
            && known.seen(next) == 0
        {
            return Some(of(next));
        }
        let is_old = known.seen(&self.own).saturating_add(AGAIN) <= now;
        let is_quiet = self.heard_at.saturating_add(RENEW) <= now;
        ((self.is_contested || !self.is_said || is_quiet) && is_old).then(|| of(&self.own))
    }

    /// Others have said at `now` what they have.
    pub(crate) fn hear(&mut self, said: &[Taken], now: u64) {
        if !said.is_empty() {
            self.heard_at = now;
            self.is_contested |= said.iter().any(|said| said.hash != self.own.hash);
        }
    }

    /// It was said.
    pub(crate) fn has_said(&mut self, said: &Taken) {
        if said.is(&self.own) {
            (self.is_said, self.is_contested, self.heard_at) = (true, false, said.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn taken(epoch: u64, hash: u64, at: u64, seen: u64) -> Taken {
        Taken { epoch, hash, at, seen }
    }

    #[test]
    fn a_topology_that_others_have_replaced_is_behind() {
        let mut known = Topologies::default();
        let own = taken(1, 10, 0, 0);
        assert_eq!(known.judge(&own, NOW), (None, Agreement::Agrees));
        let newer = taken(2, 20, NOW + NOTICE, NOW);
        known.add(newer, NOW);
        assert_eq!(known.judge(&own, NOW), (Some(newer), Agreement::Agrees), "it does not take effect yet");
        let late = NOW + NOTICE + PATIENCE + 1;
        assert_eq!(known.judge(&own, late), (Some(newer), Agreement::Behind));
        assert_eq!(known.judge(&newer, late), (None, Agreement::Agrees), "the other one says so of itself");
        assert_eq!(known.judge(&taken(7, 20, 0, 0), late).1, Agreement::Agrees, "the same by another number");
        assert_eq!(known.judge(&own, NOW + LIFE), (None, Agreement::Agrees), "no process says so any more");
    }

    #[test]
    fn without_epochs_time_decides_or_they_differ() {
        let mut known = Topologies::default();
        let (first, second) = (taken(0, 10, 0, NOW), taken(0, 20, NOW, NOW));
        known.add(first, NOW);
        known.add(second, NOW);
        assert_eq!(known.judge(&first, NOW).0, Some(second));
        assert_eq!(known.judge(&second, NOW).1, Agreement::Agrees, "it has just been replaced");
        known.add(Taken { seen: NOW + PATIENCE + 1, ..first }, NOW + PATIENCE + 1);
        assert_eq!(known.judge(&second, NOW + PATIENCE + 1).1, Agreement::Differs);
        let third = taken(0, 30, 0, NOW);
        assert_eq!(known.judge(&third, NOW + PATIENCE + 1).1, Agreement::Behind);
        let same_epoch = Topologies(vec![taken(3, 10, 0, NOW)]);
        assert_eq!(same_epoch.judge(&taken(3, 20, 0, NOW), NOW).1, Agreement::Differs);
    }

    #[test]
    fn it_is_said_once_and_again_where_others_differ() {
        let mut standing = Standing::default();
        standing.take(taken(1, 10, 0, 0));
        let mut known = Topologies::default();
        let said = standing.to_say(&known, NOW).expect("it is new");
        known.add(said, NOW);
        standing.has_said(&said);
        assert!(standing.to_say(&known, NOW + LIFE).is_none() && standing.to_say(&known, NOW + RENEW).is_some());
        standing.hear(&[said], NOW);
        assert!(!standing.is_contested);
        standing.hear(&[taken(1, 11, 0, NOW)], NOW);
        assert!(standing.to_say(&known, NOW + 10).is_none() && standing.to_say(&known, NOW + AGAIN).is_some());
        standing.next = Some(taken(2, 20, NOW, 0));
        assert_eq!(standing.to_say(&known, NOW + 10).map(|said| said.epoch), Some(2));
        for hash in 0..100 {
            known.add(taken(9, hash, 0, NOW), NOW);
        }
        assert_eq!(known.0.len(), Topologies::MAX);
    }
}
