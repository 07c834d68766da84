//! What the processes of an app tell each other together: one post of all of them, however many they are, to which each adds what
//! it lacks.
//!
//! The post: an empty one of [`super::board`], which builds before this one take for that, and after it
//! `nodes u8 | length u8, node | until u64 | … | topologies u8 | epoch u64, hash u64, at u64, seen u64 | … | processes u16 |
//! author u64, at u64, taken u64 | …`, little-endian.

use crate::living::Living;
use crate::post_names;
use crate::topologies::{Taken, Topologies};

/// Nodes in it, at most.
const FULL_MAX: usize = 64;
/// How long a process that says that the way to a node is full is believed, in milliseconds.
pub(crate) const FULL_LIFE: u64 = 1_500;
/// It says so again when it is believed for no longer than that, in milliseconds.
const FULL_AGAIN: u64 = 500;

/// What the processes of an app tell each other together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Nodes to which the way is full of large values, and until when that is believed, in milliseconds since the Unix epoch.
    pub(crate) full: Vec<(String, u64)>,
    /// The topologies that processes have.
    pub(crate) topologies: Topologies,
    /// The processes.
    pub(crate) living: Living,
}

impl Notice {
    /// Whether the nodes in `own` are not in it at `now`, or it has a topology or a process to tell of.
    pub(crate) fn lacks(&self, own: &Self, now: u64) -> bool {
        let is_known = |name: &String| self.full.iter().any(|(node, until)| node == name && *until > now + FULL_AGAIN);
        !own.topologies.0.is_empty()
            || own.living.0.iter().any(|said| self.living.lacks(said, now))
            || !own.full.iter().all(|(name, _)| is_known(name))
    }

    /// Adds what another one says at `now`.
    pub(crate) fn add(&mut self, other: Self, now: u64) {
        self.expire(now);
        other.topologies.0.iter().for_each(|said| self.topologies.add(*said, now));
        other.living.0.iter().for_each(|said| self.living.add(*said, now));
        for (name, until) in other.full {
            // No clock of the app is far ahead, and nothing is believed for longer.
            let until = until.min(now + FULL_LIFE);
            match self.full.iter().position(|(node, _)| *node == name) {
                Some(at) => self.full[at].1 = until.max(self.full[at].1),
                None if self.full.len() < FULL_MAX && until > now => self.full.push((name, until)),
                None => {}
            }
        }
    }

    fn expire(&mut self, now: u64) {
        self.full.retain(|(_, until)| *until > now && *until <= now + FULL_LIFE);
    }

    /// Appends it to a post.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.full.len().min(FULL_MAX) as u8);
        for (name, until) in self.full.iter().take(FULL_MAX) {
            post_names::name(name, out);
            out.extend_from_slice(&until.to_le_bytes());
        }
        out.push(self.topologies.0.len().min(Topologies::MAX) as u8);
        for Taken { epoch, hash, at, seen } in self.topologies.0.iter().take(Topologies::MAX) {
            [epoch, hash, at, seen].into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        self.living.encode(out);
    }

    /// What a post says after its begin. `None`: it makes no sense.
    pub(crate) fn decode(rest: &[u8]) -> Option<Self> {
        let (count, mut rest) = rest.split_first()?;
        let mut full = Vec::new();
        for _ in 0..*count {
            let name = String::from_utf8_lossy(post_names::text(&mut rest)?).into_owned();
            let (until, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            full.push((name, u64::from_le_bytes(*until)));
        }
        let (count, mut rest) = rest.split_first()?;
        let mut topologies = Vec::new();
        for _ in 0..*count {
            let mut number = || {
                let (number, behind) = rest.split_first_chunk::<8>()?;
                rest = behind;
                Some(u64::from_le_bytes(*number))
            };
            topologies.push(Taken { epoch: number()?, hash: number()?, at: number()?, seen: number()? });
        }
        Some(Self { full, topologies: Topologies(topologies), living: Living::decode(rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn full(name: &str, until: u64) -> Notice {
        Notice { full: vec![(name.into(), until)], ..Notice::default() }
    }

    #[test]
    fn each_adds_what_it_lacks_and_all_of_it_ends() {
        let mut notice = Notice::default();
        assert!(notice.lacks(&full("a/0", NOW + 9), NOW) && !notice.lacks(&Notice::default(), NOW));
        notice.add(full("a/0", NOW + FULL_LIFE), NOW);
        notice.add(full("b/0", NOW + 900_000), NOW);
        assert_eq!(notice.full, [("a/0".into(), NOW + FULL_LIFE), ("b/0".into(), NOW + FULL_LIFE)]);
        assert!(!notice.lacks(&full("a/0", 0), NOW + 900) && notice.lacks(&full("a/0", 0), NOW + 1_000));
        notice.topologies.add(Taken { epoch: 1, hash: 2, at: 3, seen: NOW }, NOW);
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        assert_eq!(Notice::decode(&bytes).as_ref(), Some(&notice));
        let before = bytes.len() - 2;
        assert!((0..bytes.len()).all(|length| Notice::decode(&bytes[..length]).is_none() || length == before));
        assert_eq!(Notice::decode(&bytes[..before]).as_ref(), Some(&notice), "as builds before say it");
        for number in 0..100 {
            notice.add(full(&number.to_string(), NOW + 10), NOW);
        }
        assert_eq!(notice.full.len(), FULL_MAX);
        notice.add(Notice::default(), NOW + FULL_LIFE);
        assert!(notice.full.is_empty());
    }
}
