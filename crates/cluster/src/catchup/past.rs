//! Keys that a topology takes from a node and a later one gives back: meanwhile they were written elsewhere.

use std::sync::Arc;

use super::peers::Keys;

/// The keys that topologies gave to this node since its start.
pub(super) struct Past {
    /// Those of now; `None`: the topology does not have the node.
    keys: Option<Arc<Keys>>,
    lost: Option<Lost>,
}

/// The first loss of keys that are not all back.
struct Lost {
    /// When it was noticed, in milliseconds since the Unix epoch.
    at: u64,
    /// What the node had before.
    keys: Arc<Keys>,
    /// Keys were lost later that were not among these.
    more: bool,
}

impl Past {
    pub(super) fn new(keys: Arc<Keys>) -> Self {
        Self { keys: Some(keys), lost: None }
    }

    /// Takes note of a later topology at `now`, in milliseconds since the Unix epoch. If it gives keys to the node that others
    /// may have had since the node had them: since when.
    pub(super) fn note(&mut self, keys: Option<Arc<Keys>>, now: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.keys, keys);
        let after = self.keys.as_ref();
        let gains = after.is_some_and(|after| before.as_ref().is_none_or(|before| after.exceeds(before)));
        let returned = self.lost.as_ref().filter(|_| gains).map(|lost| lost.at);
        if let Some(before) = before.filter(|before| after.is_none_or(|after| before.exceeds(after))) {
            match &mut self.lost {
                None => self.lost = Some(Lost { at: now, keys: before, more: false }),
                Some(lost) => lost.more |= before.exceeds(&lost.keys),
            }
        }
        let is_whole = |lost: &mut Lost| !lost.more && after.is_some_and(|after| !lost.keys.exceeds(after));
        self.lost.take_if(is_whole);
        returned
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::{keys, place};
    use super::*;
    use crate::topology::Topology;

    /// The keys of the node at port 1 beside nodes at these ports, in each kind of ring.
    fn beside(ring: &str, ports: &[u16]) -> Arc<Keys> {
        let nodes: Vec<String> = [1].iter().chain(ports).map(|port| format!("\"{port}=127.0.0.1:{port}\"")).collect();
        let text = format!("ring = \"{ring}\"\n[[replica]]\nzone = \"a\"\nnodes = [{}]\n", nodes.join(", "));
        let topology = Topology::from_toml(&text).expect("it makes sense");
        keys(&topology, place(&topology, None, &[1]).expect("it is there")).expect("a ring")
    }

    #[test]
    fn keys_that_come_back_were_lost_when_the_first_of_them_went() {
        for ring in ["slots", "evcache", "libketama"] {
            let (alone, two, three) = (beside(ring, &[]), beside(ring, &[2]), beside(ring, &[2, 3]));
            let mut past = Past::new(Arc::clone(&alone));
            assert_eq!(past.note(Some(Arc::clone(&alone)), 10), None, "{ring}: nothing has changed");
            assert_eq!(past.note(Some(Arc::clone(&two)), 20), None, "{ring}: lost");
            assert_eq!(past.note(Some(three), 30), None, "{ring}: lost more");
            assert_eq!(past.note(Some(two), 40), Some(20), "{ring}: some are back");
            assert_eq!(past.note(Some(Arc::clone(&alone)), 50), Some(20), "{ring}: all are back");
            assert_eq!(past.note(None, 60), None, "{ring}: it left");
            assert_eq!(past.note(None, 70), None, "{ring}");
            assert_eq!(past.note(Some(alone), 80), Some(60), "{ring}: it is back");
        }
    }

    #[test]
    fn a_node_that_gets_keys_for_the_first_time_has_missed_nothing() {
        let mut past = Past::new(beside("slots", &[2, 3]));
        assert_eq!(past.note(Some(beside("slots", &[2])), 10), None);
        assert_eq!(past.note(Some(beside("slots", &[])), 20), None);
    }
}
