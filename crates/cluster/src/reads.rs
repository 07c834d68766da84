//! Reads: the near copy first, then by the app's rule another one, from which the near one is filled.

use moneta_store::change::wins_recache;
use moneta_store::request::{Exptime, Retrieve, Write, WriteMode};
use moneta_store::{ErrorKind, Item, Key, Lookup, Op, Outcome, OwnedKey, Put, StoreError, steps};

use crate::call::Call;
use crate::config::Fallback;
use crate::hints::Missed;

/// The only copy that answers has not got the newest write.
fn outdated() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the copy that answers lacks a write of the key")
}

impl Call {
    /// A read that changes nothing but what a recache token does.
    pub(crate) async fn read(self, key: OwnedKey, request: Retrieve) -> Result<Lookup, StoreError> {
        let plain = Retrieve { claim: false, vivify: None, touch: None, ..request };
        let lookup = self.look(&key, Op::Read(&plain)).await?;
        match lookup {
            Lookup::Found(item) if wins_recache(&item.meta, &request, self.shared.clock.now()) => {
                self.claim(&key, &request, item).await
            }
            lookup => Ok(lookup),
        }
    }

    /// Reads from the near copy, or from another one where that fails, lacks a write or, by the app's rule, misses.
    pub(crate) async fn look(&self, key: &OwnedKey, op: Op<'_>) -> Result<Lookup, StoreError> {
        let shared = &self.shared;
        shared.budget.earn(shared.config.retry_budget);
        let began = shared.clock.millis();
        let order = self.order(&key.key());
        let mut failure = None;
        let mut missed = None;
        let mut misses = 0;
        for (tries, &node) in order.iter().enumerate() {
            // The first try is free; of those behind it all but one are made only where nothing has answered yet.
            if tries > 0 && !self.wants_another(misses) {
                break;
            }
            if tries > 0 && !shared.budget.take() {
                shared.counters.retries_refused.add(u64::from(failure.is_some()));
                break;
            }
            shared.counters.second_reads.add(u64::from(tries > 0));
            // Before as well as after: what was under way when the node read may be done by now.
            let before = self.node(node).missed(&key.key());
            let ended = steps::finish(self.begin(node, &key.key(), op)).await;
            self.note(node, &ended);
            let missed_here = Missed::newer(before, self.node(node).missed(&key.key()));
            let is_outdated = |held| missed_here.is_some_and(|missed| missed.outdates(held));
            match ended.map(Outcome::lookup) {
                Ok(Lookup::Miss { .. }) if is_outdated(None) => failure = Some(outdated()),
                Ok(Lookup::Found(item)) if is_outdated(Some(item.meta.version())) => failure = Some(outdated()),
                Ok(Lookup::Miss { expired }) => {
                    missed.get_or_insert(expired);
                    misses += 1;
                }
                Ok(Lookup::Found(item)) => {
                    self.shared.stamps.note_if_ahead(item.meta.version(), began);
                    if tries > 0 {
                        self.fill(&order[..tries], key, &item, began).await;
                    }
                    return Ok(Lookup::Found(item));
                }
                Ok(Lookup::Visited) => unreachable!("what a node shows is copied"),
                Err(error) => failure = Some(error),
            }
        }
        match (missed, failure) {
            (Some(expired), _) => Ok(Lookup::Miss { expired }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(shared.nothing_to_read()),
        }
    }

    /// Whether another node is asked after so many have said that they have no such item, and the others failed.
    fn wants_another(&self, misses: usize) -> bool {
        match self.shared.config.fallback {
            Fallback::None => false,
            Fallback::Error => misses == 0,
            // A miss is believed when two copies have said it.
            Fallback::Miss => misses < 2,
        }
    }

    /// The nodes that may have a key, in the order in which they are asked: near ones that are well and lack no write of the key,
    /// others such, and at last all others.
    pub(crate) fn order(&self, key: &Key<'_>) -> smallvec::SmallVec<[usize; 6]> {
        let layout = self.layout();
        let mut order: smallvec::SmallVec<[usize; 6]> =
            layout.readable.iter().map(|&replica| layout.replicas[replica].node_of(key.bytes)).collect();
        let (near, far) = order.split_at_mut(layout.near);
        if near.len() > 1 {
            let turn = self.shared.turn() % near.len();
            near.rotate_left(turn);
        }
        if far.len() > 1 {
            let turn = key.bytes.iter().fold(0, |sum, &byte| sum * 31 % 65_521 + usize::from(byte)) % far.len();
            far.rotate_left(turn);
        }
        if self.shared.cut.doubts_near(self.shared.clock.millis()) {
            order.rotate_left(layout.near);
        }
        if order.iter().any(|&node| self.is_doubtful(node, key)) {
            order.sort_by_key(|&node| (self.node(node).health.is_ejected(), self.is_doubtful(node, key)));
        }
        order
    }

    /// Whether a node is not well, or is known to lack a write of the key.
    fn is_doubtful(&self, node: usize, key: &Key<'_>) -> bool {
        let node = self.node(node);
        node.health.is_ejected() || node.health.is_behind(self.shared.clock.millis()) || node.missed(key).is_some()
    }

    /// Gives the item to the near nodes that missed it, behind the answer. `as_of`: when it was read.
    async fn fill(&self, lacking: &[usize], key: &OwnedKey, item: &Item, as_of: u64) {
        let layout = self.layout();
        for &node in lacking.iter().filter(|&&node| layout.is_near(node) && !self.is_doubtful(node, &key.key())) {
            let step = match self.node(node).versions.has_none() {
                // Nothing that came meanwhile may be replaced.
                true => {
                    let exptime = Exptime(item.meta.expiry.0.into());
                    let add = Write { mode: WriteMode::Add, flags: item.meta.flags, exptime, ..Write::default() };
                    self.begin(node, &key.key(), Op::Write(&item.value, &add))
                }
                false if item.meta.unversioned => continue,
                false => self.begin(node, &key.key(), Op::Put(&item.as_ref(), Put::Newer { as_of, base: None })),
            };
            self.shared.counters.fills.add(1);
            let call = self.clone();
            let rest = async move {
                let ended = steps::finish(step).await;
                call.note(node, &ended);
            };
            self.behind(Box::pin(rest)).await;
        }
    }

    /// Wins the recache of an item that is stale or ends soon, at the key's home: so one reader of all zones has it.
    async fn claim(&self, key: &OwnedKey, request: &Retrieve, seen: Item) -> Result<Lookup, StoreError> {
        let request = Retrieve { touch: None, vivify: None, ..*request };
        for node in self.homes(&key.key()) {
            if self.is_doubtful(node, &key.key()) {
                continue;
            }
            let ended = steps::finish(self.begin(node, &key.key(), Op::Read(&request))).await;
            self.note(node, &ended);
            match ended.map(Outcome::lookup) {
                Ok(Lookup::Found(item)) if item.meta.version() >= seen.meta.version() => {
                    return Ok(Lookup::Found(item));
                }
                // The home has not got it: the next one decides.
                Ok(_) => {}
                // The outcome is unknown: a second win must be impossible.
                Err(_) => break,
            }
        }
        Ok(Lookup::Found(seen))
    }

    /// The nodes that may decide on changes of a key, the home first.
    pub(crate) fn homes(&self, key: &Key<'_>) -> Vec<usize> {
        let layout = self.layout();
        layout.homes(key.bytes).into_iter().map(|replica| layout.replicas[replica].node_of(key.bytes)).collect()
    }
}
