//! What goes on beside requests: probes of nodes that are not asked, and hints for nodes that are back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_store::{Cx, ErrorKind, Item, Key, Lookup, Op, Outcome, OwnedKey, Put, Version, component, steps};
use smallvec::SmallVec;

use crate::apart::{APART, surely_current};
use crate::cluster::Cluster;
use crate::config::majority;
use crate::error::ClusterError;
use crate::hints::Missed;
use crate::layout::Layout;
use crate::node::{Node, is_busy, is_unwell};
use crate::presence::Suspects;
use crate::shared::ClusterShared;
use crate::writes::Answer;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(100);
/// By how much a round may begin late on a busy machine. Where it is later, the process was stopped or had no processor, and what
/// nodes took to answer meanwhile says nothing of them.
const LATE: Duration = Duration::from_millis(200);

/// What became of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The node has what it missed.
    Done,
    /// What the node is to be given is not known yet, or it does not take it yet.
    NotYet,
    /// The node does not answer.
    NoAnswer,
}

impl Cluster {
    /// Starts the thread that maintains the store. It ends when the store is closed or dropped.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(&self) -> Result<(), ClusterError> {
        let shared = Arc::downgrade(self.shared());
        let run = move |task: &Run| {
            let mut was_late = false;
            let mut suspects = Suspects::default();
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) {
                shared.clock.refresh();
                if was_late {
                    let now = shared.clock.millis();
                    shared.layout().nodes.iter().for_each(|node| node.pace.begin(now));
                }
                pollster::block_on(shared.maintain(&mut suspects));
                pollster::block_on(crate::settling::settle(&shared));
                drop(shared);
                let began = Instant::now();
                if !task.sleep(PAUSE) {
                    break;
                }
                was_late = began.elapsed() > PAUSE + LATE;
            }
        };
        moneta_background::start("cluster", run).map_err(ClusterError::Thread)?;
        self.keep_sweeping()?;
        self.keep_telling()?;
        self.keep_mending()?;
        self.shared().keeper.start().map_err(ClusterError::Thread)
    }

    /// Asks all nodes of all clusters that share the clock for their time once, for callers that have no thread for it.
    pub fn ask_time(&self) {
        self.shared().keeper.ask();
    }

    /// One round of what the thread does, for callers that have none.
    pub async fn maintain(&self) {
        let mut suspects = Suspects::default();
        self.shared().maintain(&mut suspects).await;
        suspects.settle(self.shared(), &self.shared().layout()).await;
    }
}

impl ClusterShared {
    /// One round: sees which nodes are there, probes the nodes whose turn it is, looks for those that have become slow, and
    /// delivers hints to those that are well.
    async fn maintain(self: &Arc<Self>, suspects: &mut Suspects) {
        let layout = self.layout();
        self.carry_over(&layout, self.batch()).await;
        self.cut.note(layout.reached() >= majority(layout.copies()), self.clock.millis());
        self.look_after(&layout, suspects);
        for (index, node) in layout.nodes.iter().enumerate() {
            if node.health.wants_probe(self.clock.millis()) {
                self.probe(&layout, node).await;
            }
            self.judge_pace(&layout, index).await;
            // Before what may wait for the node.
            node.hints.sync();
            if !node.health.is_ejected() && node.health.failures() == 0 && !node.hints.is_delivered() {
                self.deliver(&layout, index).await;
            }
        }
    }

    async fn probe(&self, layout: &Layout, node: &Node) {
        let limit = node.health.slow_limit().unwrap_or(Duration::MAX);
        if self.ask(node).await.is_ok_and(|took| took <= limit) {
            node.health.reinstate(self.clock.millis());
            tracing::info!(app = self.config.app, node = node.name, "the node answers again");
            // What kept it away may have kept others away.
            layout.nodes.iter().for_each(|other| other.health.probe_by(self.clock.millis()));
            layout.nodes.iter().for_each(|other| other.sweep.lock().begin_again());
        } else {
            node.health.note_failed_probe(self.clock.millis(), self.probes());
        }
    }

    /// Writes that a node is given in a round, at most.
    fn batch(&self) -> usize {
        let batch = u128::from(self.rules.hint_rate()) * PAUSE.as_millis() / 1000;
        usize::try_from(batch).unwrap_or(usize::MAX).max(1)
    }

    /// Gives a node some of what it has missed, the oldest first.
    async fn deliver(self: &Arc<Self>, layout: &Layout, index: usize) {
        let node = &layout.nodes[index];
        // Each: one that waits for its second does not stand for one before it.
        for floor in node.hints.floors() {
            let step = component::floor(&*node.store, &Cx::outside(), floor);
            match steps::finish(step).await {
                Ok(()) => node.hints.settle_floor(floor),
                // It may learn from other copies what it lacks.
                Err(error) if error.kind() == ErrorKind::CatchingUp => break,
                Err(error) if is_busy(&error) => return,
                Err(error) => {
                    tracing::debug!(node = node.name, %error, "a flush cannot be delivered");
                    // A node that refuses it is well otherwise.
                    if is_unwell(&error) {
                        self.note_failure(node, &error);
                        return;
                    }
                    break;
                }
            }
        }
        let hints = node.hints.oldest(self.batch());
        // Some at once: each waits for a node or two.
        for some in hints.chunks(32) {
            let all = some.iter().map(|(key, missed)| self.deliver_one(layout, index, key, *missed));
            let ended = futures_util::future::join_all(all).await;
            let delivered = ended.iter().filter(|ended| **ended == Delivery::Done).count();
            self.counters.hints_delivered.add(delivered as u64);
            // Others are not to wait behind them.
            let late = some.iter().zip(&ended).filter(|(_, ended)| **ended == Delivery::NotYet);
            node.hints.put_off(&late.map(|((key, _), _)| &**key).collect::<Vec<_>>());
            if ended.contains(&Delivery::NoAnswer) {
                return;
            }
        }
    }

    async fn deliver_one(self: &Arc<Self>, layout: &Layout, index: usize, key: &[u8], missed: Missed) -> Delivery {
        let node = &layout.nodes[index];
        let owned = OwnedKey::of(&Key::new(key, self.seed));
        let asked = self.clock.millis();
        match self.newest(layout, index, key, missed).await {
            Ok(found) => self.give(node, &owned, found, missed, asked).await,
            // Later, when a copy that has it answers, or it is known that none will.
            Err(()) => {
                self.settle_lost(layout, &owned, missed).await;
                Delivery::NotYet
            }
        }
    }

    /// Gives a node a write that it missed, and that was `found` on other copies when they were asked, in milliseconds since the
    /// Unix epoch.
    pub(crate) async fn give(
        &self,
        node: &Node,
        key: &OwnedKey,
        found: Option<Item>,
        missed: Missed,
        asked: u64,
    ) -> Delivery {
        let cx = Cx::outside();
        let mut is_current = false;
        let step = match found {
            Some(mut item) => {
                if item.meta.unversioned {
                    (item.meta.cas, item.meta.unversioned) = (missed.version.0, false);
                }
                // What is no older than the write that was missed is current: another copy has just shown it.
                is_current = item.meta.version() >= missed.version;
                let as_of = if is_current { surely_current(asked) } else { missed.at };
                let put = Op::Put(&item.as_ref(), Put::Newer { as_of, base: None });
                steps::read_owned(&*node.store, &cx, &key.key(), put)
            }
            // No copy has it any more, or it was deleted: what the node has is older.
            None => {
                let version = if missed.deleted { missed.version } else { missed.version.just_below() };
                steps::read_owned(&*node.store, &cx, &key.key(), Op::Bury(version))
            }
        };
        match Answer::of(self.believed(node, steps::finish(step).await)) {
            Answer::Failed(error) => {
                tracing::debug!(node = node.name, %error, "a hint cannot be delivered");
                if !is_unwell(&error) {
                    return Delivery::NotYet;
                }
                self.note_failure(node, &error);
                Delivery::NoAnswer
            }
            // It has just started, and creates it when it is asked later.
            Answer::NotCreated if is_current => Delivery::NotYet,
            _ => {
                node.hints.settle(key.key().bytes, missed.version);
                Delivery::Done
            }
        }
    }

    /// The newest that the other copies hold of a key. The error: none has what was missed, and not all of them answer, or it may
    /// still be on its way to them.
    pub(crate) async fn newest(
        &self,
        layout: &Layout,
        index: usize,
        key: &[u8],
        missed: Missed,
    ) -> Result<Option<moneta_store::Item>, ()> {
        if missed.deleted {
            return Ok(None);
        }
        let asked = self.clock.millis();
        let mut newest: Option<moneta_store::Item> = None;
        // The newest of copies that are in doubt, and whether there are any; and since when copies that are not would have what
        // they have not.
        let (mut doubted, mut has_doubted): (Option<moneta_store::Item>, bool) = (None, false);
        let mut missed_since = u64::MAX;
        let mut held: SmallVec<[(usize, Version); 4]> = SmallVec::new();
        let mut all_answer = true;
        for replica in layout.replicas.iter().filter(|replica| !replica.holds(index)) {
            let number = replica.node_of(key);
            let source = &layout.nodes[number];
            if source.health.is_ejected() {
                all_answer = false;
                continue;
            }
            let key = Key::new(key, self.seed);
            let peeked = steps::finish(steps::read_owned(&*source.store, &Cx::outside(), &key, Op::Peek)).await;
            match self.believed(source, peeked).map(Outcome::lookup) {
                Ok(Lookup::Found(item)) => {
                    let version = item.meta.version();
                    if !item.meta.unversioned {
                        held.push((number, version));
                    }
                    let known = source.known(&key);
                    let is_doubted = known.doubt > version;
                    has_doubted |= is_doubted;
                    let newest = if is_doubted { &mut doubted } else { &mut newest };
                    let is_newer = newest.as_ref().is_none_or(|newest| version > newest.meta.version());
                    let deleted = missed.buried.max(known.buried());
                    if is_newer && (deleted == Version::ZERO || deleted < version) {
                        *newest = Some(item);
                    }
                }
                Ok(_) if source.known(&key).doubt == Version::ZERO => missed_since = missed_since.min(source.since()),
                Ok(_) => has_doubted = true,
                Err(_) => all_answer = false,
            }
        }
        // What is in doubt counts where it is newer, or no other copy has the key or would have one so old.
        let stands = |item: &moneta_store::Item| match &newest {
            Some(newest) => item.meta.version() > newest.meta.version(),
            None => item.meta.version().millis().saturating_add(APART) < missed_since,
        };
        if doubted.as_ref().is_some_and(stands) {
            newest = doubted;
        }
        if let Some(newest) =
            newest.as_ref().filter(|newest| !newest.meta.unversioned).map(|newest| newest.meta.version())
        {
            // Copies that came back empty and then took a late write lack what is newer, and no process knows that.
            for (number, _) in held.into_iter().filter(|(_, version)| *version < newest) {
                layout.nodes[number].hints.note(key, Missed::set(newest, asked));
            }
        }
        let has_missed = newest.as_ref().is_some_and(|item| item.meta.version() >= missed.version);
        let under_way = self.rules.under_way();
        let is_over = missed.at.saturating_add(under_way) < self.clock.millis();
        // That there is nothing is not believed of copies in doubt alone, unless it was deleted.
        let is_known = newest.is_some() || !has_doubted || missed_since != u64::MAX || missed.buried > Version::ZERO;
        if has_missed || (all_answer && is_over && is_known) { Ok(newest) } else { Err(()) }
    }
}
