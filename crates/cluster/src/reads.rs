//! Reads: the near copy first, then by the app's rule another one, from which the near one is filled.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_store::change::wins_recache;
use moneta_store::request::{Exptime, Retrieve, Write, WriteMode};
use moneta_store::{ErrorKind, Item, Key, Lookup, Op, Outcome, OwnedKey, Pending, Put, StoreError, Version, steps};
use smallvec::{SmallVec, smallvec};

use crate::apart::{APART, surely_current};
use crate::buried::Remembered;
use crate::call::Call;
use crate::config::Fallback;
use crate::hints::{Belief, Known};
use crate::node::is_busy;
use crate::writes::Answer;

/// The only copy that answers has not got the newest write.
fn outdated() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the copy that answers lacks a write of the key")
}

/// What nodes are asked.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Read(Retrieve),
    Peek,
}

impl Ask {
    fn op(&self) -> Op<'_> {
        match self {
            Self::Read(request) => Op::Read(request),
            Self::Peek => Op::Peek,
        }
    }
}

/// A read that goes from node to node until one of them answers.
///
/// A state machine by hand: it is on the way of every read, and what the compiler makes of nested asynchronous functions is
/// several times as large and is copied at each call.
pub(crate) struct Looking {
    call: Call,
    key: OwnedKey,
    ask: Ask,
    /// When it began, in milliseconds since the Unix epoch.
    began: u64,
    /// The nodes that may be asked, in this order. Only the first one until that does not end it.
    order: SmallVec<[usize; 6]>,
    /// These are all.
    is_ordered: bool,
    /// How many of these were asked.
    tries: usize,
    /// What was known against the node asked last when it was asked.
    before: Known,
    stage: Stage,
    /// How the last node failed that did.
    failure: Option<StoreError>,
    /// What the first node said that has no such item: whether it expired.
    missed: Option<bool>,
    misses: usize,
    /// Nodes that have told what they hold of the key, be it to be believed or not.
    heard: usize,
    /// What nodes in doubt have told.
    doubts: Option<Box<Doubts>>,
    /// Of nodes that have no such item and are not in doubt: since when the one has what was written to it that has it for the
    /// longest, in milliseconds since the Unix epoch.
    missed_since: u64,
}

/// What nodes have told that are in doubt.
#[derive(Default)]
struct Doubts {
    /// The newest item, and the node that has it.
    newest: Option<(usize, Item)>,
    /// Nodes that have no such item.
    without: SmallVec<[usize; 4]>,
}

/// How far a read is.
enum Stage {
    /// The node at `tries - 1` is asked.
    Asking(Pending),
    /// Nodes in doubt have an item, and those that have not are asked whether they know that it was deleted.
    Checking(Pin<Box<dyn Future<Output = Result<Lookup, StoreError>>>>),
    /// A far node has the item, and near ones are given it.
    Filling(Pin<Box<dyn Future<Output = Item>>>),
    /// No node is asked.
    Over,
}

impl Looking {
    /// Asks the next node, if there is one to ask.
    pub(crate) fn ask_next(&mut self) {
        self.stage = match self.next_node() {
            Some(node) => self.ask(node),
            None => self.close(),
        };
    }

    /// Asks a node.
    fn ask(&self, node: usize) -> Stage {
        // Near copies are given what a later one has, and need all of it.
        let whole = match self.ask {
            Ask::Read(request) if self.tries > 1 => Ask::Read(Retrieve { brief: false, ..request }),
            ask => ask,
        };
        Stage::Asking(steps::into_pending(self.call.begin(node, &self.key.key(), whole.op())))
    }

    /// Asks the node that [`Looking::next_node`] told.
    pub(crate) fn ask_alone(&mut self, node: usize) {
        self.stage = self.ask(node);
    }

    /// It was this node that was asked first.
    pub(crate) fn has_asked(&mut self, node: usize) {
        self.order.retain(|other| *other != node);
        self.order.insert(0, node);
        self.tries = 1;
    }

    /// Finds the nodes to be asked after the first one: most reads end with that.
    #[cold]
    fn put_in_order(&mut self) {
        let asked = std::mem::replace(&mut self.order, self.call.order(&self.key.key()));
        self.is_ordered = true;
        asked.first().into_iter().for_each(|&node| self.has_asked(node));
    }

    /// The node to be asked next, which is taken to be asked now.
    pub(crate) fn next_node(&mut self) -> Option<usize> {
        if self.tries > 0 && !self.is_ordered {
            self.put_in_order();
        }
        let shared = &self.call.shared;
        let node = *self.order.get(self.tries)?;
        // The first try is free; of those after it all but one are made only where nothing has answered yet. What is in doubt is
        // compared, so that a delete or a newer write shows that one of enough nodes has.
        if self.is_in_doubt() {
            if self.call.node(node).health.is_ejected() && self.is_enough() {
                return None;
            }
            shared.counters.second_reads.add(1);
        } else if self.tries > 0 {
            if !self.call.wants_another(self.misses) {
                return None;
            }
            // One that was refused for want of room was sent nowhere, and so costs the copies no more than a first read.
            let was_sent = !self.failure.as_ref().is_some_and(is_busy);
            if was_sent && !shared.budget.take(self.failure.is_some()) {
                shared.counters.retries_refused.add(u64::from(self.failure.is_some()));
                return None;
            }
            shared.counters.second_reads.add(1);
        }
        self.tries += 1;
        // Before as well as after: what was under way when the node read may be done by now.
        self.before = self.call.node(node).known(&self.key.key());
        Some(node)
    }

    /// Goes on with what the node asked last has said: how the read ends, if that ends it.
    pub(crate) fn hear(&mut self, ended: Result<Lookup, StoreError>) -> Option<Result<Lookup, StoreError>> {
        match self.take(ended) {
            Some(item) if self.tries == 1 => return Some(Ok(Lookup::Found(item))),
            Some(item) => self.stage = self.fill(item),
            None => self.ask_next(),
        }
        matches!(self.stage, Stage::Over).then(|| self.end())
    }

    /// Takes what the node asked last has said: the item, if that is to be believed.
    fn take(&mut self, ended: Result<Lookup, StoreError>) -> Option<Item> {
        let node = self.order[self.tries - 1];
        self.call.note(node, &ended);
        let now = self.call.node(node);
        let known = if now.is_clear() { self.before } else { self.before.and(now.known(&self.key.key())) };
        self.heard += usize::from(ended.is_ok());
        match ended {
            Ok(Lookup::Miss { expired }) => match known.judge(None) {
                Belief::Outdated => self.failure = Some(outdated()),
                Belief::Doubted => {
                    self.doubts.get_or_insert_default().without.push(node);
                    self.failure = Some(outdated());
                }
                Belief::Believed => {
                    self.missed.get_or_insert(expired);
                    self.misses += 1;
                    self.missed_since = self.missed_since.min(self.call.node(node).since());
                }
            },
            Ok(Lookup::Found(item)) if self.call.is_from_the_future(item.meta.version(), self.began) => {
                self.heard -= 1;
                self.failure = Some(self.call.doubt(node));
            }
            Ok(Lookup::Found(item)) => match known.judge(Some(item.meta.version())) {
                Belief::Outdated => self.failure = Some(outdated()),
                Belief::Believed => {
                    self.call.shared.stamps.note(self.key.key().hash, item.meta.version(), self.began);
                    return Some(item);
                }
                Belief::Doubted => {
                    let newest = &mut self.doubts.get_or_insert_default().newest;
                    if newest.as_ref().is_none_or(|(_, known)| item.meta.version() > known.meta.version()) {
                        *newest = Some((node, item));
                    }
                    self.failure = Some(outdated());
                }
            },
            Ok(Lookup::Visited) => unreachable!("what a node shows is copied"),
            Err(error) => self.failure = Some(error),
        }
        None
    }

    /// Gives the item to the near ones of those that were asked before the last one, after the answer.
    fn fill(&self, item: Item) -> Stage {
        // There was something newer, which the copies that took it may have lost: others are not given what is older.
        if self.call.is_outlived(&self.key.key(), item.meta.version()) {
            return Stage::Filling(Box::pin(std::future::ready(item)));
        }
        let (call, key, as_of) = (self.call.clone(), self.key.clone(), surely_current(self.began));
        let layout = call.layout();
        let lacks = |node: &usize| layout.is_near(*node) && !call.is_doubtful(*node, &key.key());
        let lacking: SmallVec<[usize; 6]> = self.order[..self.tries - 1].iter().copied().filter(lacks).collect();
        let is_well = |node: &usize| !call.is_doubtful(*node, &key.key());
        let witness = self.order[self.tries..].iter().copied().find(is_well);
        let source = self.order[self.tries - 1];
        Stage::Filling(Box::pin(async move {
            if !lacking.is_empty() {
                let (filler, filled) = (call.clone(), item.clone());
                let rest = async move { filler.fill(&lacking, source, witness, &key, filled, as_of).await };
                call.behind(Box::pin(rest)).await;
            }
            item
        }))
    }

    /// Takes note of how it ended.
    #[inline]
    pub(crate) fn count(&self, ended: &Result<Lookup, StoreError>) {
        if let Ask::Read(_) = self.ask {
            self.call.reads().note(ended);
        }
    }

    /// Goes on until it ends.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<Lookup, StoreError>> {
        loop {
            let ended = match &mut self.stage {
                Stage::Asking(pending) => ready!(pending.as_mut().poll(context)),
                Stage::Checking(checking) => return checking.as_mut().poll(context),
                Stage::Filling(filling) => {
                    return Poll::Ready(Ok(Lookup::Found(ready!(filling.as_mut().poll(context)))));
                }
                Stage::Over => return Poll::Ready(self.end()),
            };
            if let Some(ended) = self.hear(ended.map(Outcome::lookup)) {
                return Poll::Ready(ended);
            }
        }
    }

    /// Whether nothing is known of the key but what nodes in doubt have told.
    fn is_in_doubt(&self) -> bool {
        self.doubts.is_some() && self.missed.is_none()
    }

    /// Whether so many nodes have told what they hold that one of them has what was acknowledged.
    fn is_enough(&self) -> bool {
        self.heard >= self.call.wanted_in_doubt()
    }

    /// No further node is asked: what nodes in doubt have told may count.
    fn close(&mut self) -> Stage {
        let Some(doubts) = self.doubts.take() else { return Stage::Over };
        let Doubts { newest, without } = *doubts;
        // Nodes that are not in doubt and have no such item would not have one so old.
        let stands = |item: &Item| {
            self.missed.is_none() || item.meta.version().millis().saturating_add(APART) < self.missed_since
        };
        match newest.filter(|(_, item)| stands(item)) {
            Some(_) if !self.is_enough() => self.missed = None,
            Some((_, item)) if without.is_empty() => return Stage::Filling(Box::pin(std::future::ready(item))),
            Some((source, item)) => return self.check(source, item, without),
            None if !self.is_enough() => {}
            None => self.missed = self.missed.or(Some(false)),
        }
        Stage::Over
    }

    /// Finds out whether nodes in doubt that have no such item know that it was deleted.
    fn check(&self, source: usize, mut item: Item, without: SmallVec<[usize; 4]>) -> Stage {
        let (call, key, ask, heard) = (self.call.clone(), self.key.clone(), self.ask, self.heard);
        Stage::Checking(Box::pin(async move {
            if matches!(ask, Ask::Read(request) if request.brief) {
                let ended = steps::finish(call.begin(source, &key.key(), Op::Peek)).await;
                item = match call.heard(source, ended)?.lookup() {
                    Lookup::Found(item) => item,
                    miss => return Ok(miss),
                };
            }
            match call.remembered(&without, &key, &item).await {
                Remembered::Newer => Ok(Lookup::Miss { expired: false }),
                Remembered::Nothing { silent } if heard < call.wanted_in_doubt() + silent => Err(outdated()),
                Remembered::Nothing { .. } => Ok(Lookup::Found(item)),
            }
        }))
    }

    /// What is to be said where no node had the item.
    fn end(&mut self) -> Result<Lookup, StoreError> {
        match (self.missed, self.failure.take()) {
            (Some(expired), _) => Ok(Lookup::Miss { expired }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(self.call.shared.nothing_to_read()),
        }
    }
}

impl Future for Looking {
    type Output = Result<Outcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.poll_end(context));
        self.count(&ended);
        Poll::Ready(ended.map(Outcome::Read))
    }
}

impl Call {
    /// A read that changes nothing but what a recache token does.
    pub(crate) async fn read(self, key: OwnedKey, request: Retrieve) -> Result<Lookup, StoreError> {
        let plain = Retrieve { claim: false, vivify: None, touch: None, ..request };
        let lookup = self.clone().look(key.clone(), Ask::Read(plain)).await?.lookup();
        match lookup {
            Lookup::Found(item) if wins_recache(&item.meta, &request, self.shared.clock.now()) => {
                self.claim(&key, &request, item).await
            }
            lookup => Ok(lookup),
        }
    }

    /// Begins to read from the near copy. Another one is asked where that fails, lacks a write or, by the app's rule, misses.
    pub(crate) fn look(self, key: OwnedKey, ask: Ask) -> Looking {
        let began = self.begin_reads(1);
        let mut looking = self.prepare(key, ask, began);
        looking.ask_next();
        looking
    }

    /// So many reads begin: when that is, in milliseconds since the Unix epoch.
    pub(crate) fn begin_reads(&self, count: usize) -> u64 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.shared.budget.earn(self.shared.rules.retry_budget().saturating_mul(count));
        self.shared.clock.millis()
    }

    /// A read that began then, and has not asked any node.
    pub(crate) fn prepare(self, key: OwnedKey, ask: Ask, began: u64) -> Looking {
        let first = self.well_near_node(&key.key(), began);
        let order = match first {
            Some(node) => smallvec![node],
            None => self.order(&key.key()),
        };
        Looking {
            call: self,
            key,
            ask,
            began,
            order,
            is_ordered: first.is_none(),
            tries: 0,
            before: Known::default(),
            stage: Stage::Over,
            failure: None,
            missed: None,
            misses: 0,
            heard: 0,
            doubts: None,
            missed_since: u64::MAX,
        }
    }

    /// How many nodes have to tell what they hold of a key, where all are in doubt, to be believed.
    pub(crate) fn wanted_in_doubt(&self) -> usize {
        self.shared.rules.ack().telling(self.layout().copies())
    }

    /// Whether another node is asked after so many have said that they have no such item, and the others failed.
    fn wants_another(&self, misses: usize) -> bool {
        match self.shared.rules.fallback() {
            Fallback::None => false,
            Fallback::Error => misses == 0,
            // A miss is believed when two copies have said it.
            Fallback::Miss => misses < 2,
        }
    }

    /// The nodes that may have a key, in the order in which they are asked: near ones that are well and lack no write of the key,
    /// others such, and at last all others.
    pub(crate) fn order(&self, key: &Key<'_>) -> SmallVec<[usize; 6]> {
        let layout = self.layout();
        let mut order: SmallVec<[usize; 6]> =
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

    /// The near node that a read of the key asks first, if near copies are not doubted and the node is not doubtful.
    ///
    /// Inlined: reads of several keys come through here for each of them.
    #[inline(always)]
    pub(crate) fn well_near_node(&self, key: &Key<'_>, now: u64) -> Option<usize> {
        let layout = self.layout();
        if layout.near == 0 || self.shared.cut.doubts_near(now) {
            return None;
        }
        let turn = if layout.near == 1 { 0 } else { self.shared.turn() % layout.near };
        let node = layout.replicas[layout.readable[turn]].node_of(key.bytes);
        (!self.is_doubtful_at(node, key, now)).then_some(node)
    }

    /// Whether a node is not well, or is known to lack a write of the key.
    #[inline]
    fn is_doubtful(&self, node: usize, key: &Key<'_>) -> bool {
        self.is_doubtful_at(node, key, self.shared.clock.millis())
    }

    #[inline]
    fn is_doubtful_at(&self, node: usize, key: &Key<'_>, now: u64) -> bool {
        let node = self.node(node);
        let speaks_against = || !node.is_clear() && !node.known(key).is_nothing();
        node.health.is_ejected() || node.health.is_behind(now) || node.health.is_leaving(now) || speaks_against()
    }

    /// Whether an item of this version on a node that was not doubtful before is the newest that is known of.
    #[inline]
    pub(crate) fn believes(&self, node: usize, key: &Key<'_>, version: Version, began: u64) -> bool {
        let node = self.node(node);
        let is_believed = (node.is_clear() || node.known(key).judge(Some(version)) == Belief::Believed)
            && !self.is_from_the_future(version, began);
        if is_believed {
            self.shared.stamps.note(key.hash, version, began);
        }
        is_believed
    }

    /// Whether a hint says that there was, or may have been, something newer of a key than this version.
    fn is_outlived(&self, key: &Key<'_>, version: Version) -> bool {
        let layout = self.layout();
        let nodes = layout.replicas.iter().map(|replica| &layout.nodes[replica.node_of(key.bytes)]);
        let mut hints = nodes.filter_map(|node| node.hints.of_key(key.bytes));
        hints.any(|missed| missed.outdates(Some(version)))
    }

    /// Whether a read ends with the miss of a node that was not doubtful before.
    #[inline]
    pub(crate) fn believes_miss(&self, node: usize, key: &Key<'_>) -> bool {
        let asks_others = self.layout().readable.len() > 1 && self.wants_another(1);
        let node = self.node(node);
        !asks_others && (node.is_clear() || node.known(key).judge(None) == Belief::Believed)
    }

    /// A plain read has ended with what a node has said.
    #[inline]
    pub(crate) fn took(&self, node: usize, ended: Result<Lookup, StoreError>) -> Result<Lookup, StoreError> {
        self.note(node, &ended);
        self.reads().note(&ended);
        ended
    }

    /// Gives the item that `source` has to the nodes that lack it. `as_of`: when it was current by any node's clock.
    ///
    /// The source may lack a write that only another proxy knows of, so a third copy, the `witness`, is offered the item first.
    /// Whichever node knows of something newer, all others are given that, or the item is taken from them where it was deleted.
    async fn fill(
        self,
        lacking: &[usize],
        source: usize,
        witness: Option<usize>,
        key: &OwnedKey,
        mut item: Item,
        as_of: u64,
    ) {
        let is_asked = |node: &usize| !item.meta.unversioned && !self.node(*node).versions.has_none();
        let mut left: VecDeque<usize> = witness.filter(is_asked).into_iter().chain(lacking.iter().copied()).collect();
        let mut holding: SmallVec<[usize; 6]> = [source].into_iter().collect();
        while let Some(node) = left.pop_front() {
            self.shared.counters.fills.add(u64::from(lacking.contains(&node)));
            match self.offer_copy(node, key, &item, as_of).await {
                Answer::Taken { .. } => holding.push(node),
                Answer::Superseded(_) if !item.meta.unversioned => {
                    let ended = steps::finish(self.begin(node, &key.key(), Op::Peek)).await;
                    match self.heard(node, ended).map(Outcome::lookup) {
                        Ok(Lookup::Found(newer)) if newer.meta.version() > item.meta.version() => {
                            self.shared.counters.outdated_sources.add(1);
                            item = newer;
                            left.extend(holding.drain(..));
                            holding.push(node);
                        }
                        Ok(Lookup::Miss { .. }) => {
                            self.shared.counters.outdated_sources.add(1);
                            return self.take_back(&holding, key, item.meta.version()).await;
                        }
                        _ => return,
                    }
                }
                Answer::Superseded(_) | Answer::Refused(_) | Answer::NotCreated | Answer::Failed(_) => {}
            }
        }
    }

    /// Deletes an item that is no newer than this from nodes that lack the delete of it.
    async fn take_back(&self, holding: &[usize], key: &OwnedKey, version: Version) {
        for &node in holding {
            let ended = steps::finish(self.begin(node, &key.key(), Op::Bury(version))).await;
            self.note(node, &ended);
        }
    }

    /// Gives a node an item that another one has.
    async fn offer_copy(&self, node: usize, key: &OwnedKey, item: &Item, as_of: u64) -> Answer {
        let step = match self.node(node).versions.has_none() {
            // Nothing that came meanwhile may be replaced.
            true => {
                let exptime = Exptime(item.meta.expiry.0.into());
                let add = Write { mode: WriteMode::Add, flags: item.meta.flags, exptime, ..Write::default() };
                self.begin(node, &key.key(), Op::Write(&item.value, &add))
            }
            // From a memcached: where there is nothing, and older than every write that may still be under way, so that it
            // replaces none of them.
            false if item.meta.unversioned => {
                let under_way = self.shared.rules.under_way();
                let mut aged = item.as_ref();
                aged.meta.cas = Version::at(as_of.saturating_sub(under_way)).0;
                aged.meta.unversioned = false;
                let put = Put::Newer { as_of, base: Some(Version::ZERO) };
                self.begin(node, &key.key(), Op::Put(&aged, put))
            }
            false => self.begin(node, &key.key(), Op::Put(&item.as_ref(), Put::Newer { as_of, base: None })),
        };
        let ended = steps::finish(step).await;
        Answer::of(self.heard(node, ended))
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
