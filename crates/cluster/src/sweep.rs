//! Checks what of a node is in doubt against other copies, key by key, and ends the doubt.
//!
//! The node lists its keys. What it has of one in doubt is kept if another copy that is not in doubt has nothing newer, replaced
//! if one has, and dropped if one that would have it has not got it. Where all copies are in doubt and all answer, the newest
//! stays, unless one of them remembers that it was deleted: no process empties all of them. What cannot be decided, as a copy is
//! away, stays in doubt until the next round. docs/decisions/15-doubt.md says why by these rules.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use moneta_background::Run;
use moneta_store::{Cx, Item, Key, Lookup, Op, Outcome, OwnedKey, Put, Store, StoreError, Version, Walking, steps};
use smallvec::SmallVec;

use crate::apart::surely_current;
use crate::cluster::Cluster;
use crate::compared::Compared;
use crate::error::ClusterError;
use crate::hints::{Belief, Doubt, place};
use crate::layout::Layout;
use crate::node::{Node, is_unwell};
use crate::pass::Pass;
use crate::shared::ClusterShared;
use crate::writes::Answer;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(100);
/// Keys that a node may list in a round for each that may be checked: a look at one costs the node about a tenth.
const LISTED: usize = 10;
/// Keys that are checked at once.
const AT_ONCE: usize = 32;
/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    Kept,
    Replaced,
    Dropped,
    /// Not decided yet.
    Open,
}

impl Cluster {
    /// Starts the thread that checks what is in doubt. It ends when the store is closed or dropped.
    pub(crate) fn keep_sweeping(&self) -> Result<(), ClusterError> {
        let shared = Arc::downgrade(self.shared());
        let run = move |task: &Run| {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) {
                pollster::block_on(shared.sweep());
                drop(shared);
                if !task.sleep(PAUSE) {
                    break;
                }
            }
        };
        moneta_background::start("cluster-sweep", run).map_err(ClusterError::Thread)?;
        Ok(())
    }

    /// One round of what the thread does, for callers that have none.
    pub async fn sweep(&self) {
        self.shared().sweep().await;
    }
}

impl ClusterShared {
    async fn sweep(&self) {
        let layout = self.layout();
        for index in 0..layout.nodes.len() {
            self.sweep_node(&layout, index).await;
        }
    }

    async fn sweep_node(&self, layout: &Layout, index: usize) {
        let node = &layout.nodes[index];
        let now = self.clock.millis();
        if node.health.is_ejected() || node.health.is_behind(now) {
            return;
        }
        let pass = {
            let mut sweep = node.sweep.lock();
            match sweep.pass.take() {
                Some(pass) => Some(pass),
                None if sweep.waits(now) => None,
                None => node.hints.doubt().map(|doubt| Pass::begin(doubt, self.settled_until(now))),
            }
        };
        let Some(mut pass) = pass else { return };
        if !pass.has_begun() {
            // Its board tells which other apps have it, which may not have been heard yet.
            self.exchange_with(node, None, now);
        }
        let ended = match self.compared() {
            Ok(compared) => self.go_on(layout, index, &mut pass, &compared).await,
            Err(error) => Err(error),
        };
        let mut sweep = node.sweep.lock();
        sweep.failure = ended.as_ref().err().map(|error| error.to_string().into());
        match ended {
            Ok(false) => sweep.pass = Some(pass),
            Ok(true) => {
                node.hints.settle_doubt(&pass.checked, &pass.keeps());
                sweep.rest(now, pass.open.contains(&true));
            }
            Err(error) => {
                tracing::warn!(app = self.config.app, node = node.name, %error, "keys in doubt cannot be checked yet");
                sweep.rest(now, true);
            }
        }
    }

    /// Writes that were stamped before this, in milliseconds since the Unix epoch, are on their way to no copy any more.
    fn settled_until(&self, now: u64) -> u64 {
        now.saturating_sub(self.rules.under_way())
    }

    /// Goes on with a pass for as long as a round may; true at its end.
    async fn go_on(
        &self,
        layout: &Layout,
        index: usize,
        pass: &mut Pass,
        compared: &Compared<'_>,
    ) -> Result<bool, StoreError> {
        // What was listed before it was known that another app has the node.
        pass.found.retain(|(key, _)| compared.has(key));
        let per_round = u128::from(self.rules.hint_rate()) * PAUSE.as_millis() / 1000;
        let (mut checks, mut lists) = (usize::try_from(per_round).unwrap_or(usize::MAX).max(1), 0);
        let lists_max = checks.saturating_mul(LISTED);
        loop {
            while !pass.found.is_empty() && checks > 0 {
                let some: Vec<_> = pass.found.drain(..pass.found.len().min(AT_ONCE).min(checks)).collect();
                checks -= some.len();
                let all = some.iter().map(|(key, version)| self.check(layout, index, key, *version));
                for ((key, _), checked) in some.iter().zip(futures_util::future::join_all(all).await) {
                    self.counters.swept.of(checked).add(1);
                    pass.open[Doubt::bucket(place(key))] |= checked == Checked::Open;
                }
            }
            if pass.has_listed_all && pass.found.is_empty() {
                return Ok(true);
            }
            if checks == 0 || lists >= lists_max {
                return Ok(false);
            }
            match pass.list(&layout.nodes[index].store, compared)? {
                (listed, Walking::More) => lists += listed,
                (_, Walking::End) => pass.has_listed_all = true,
                (_, Walking::Wait(pending)) => pending.await?,
            }
        }
    }

    /// Compares what a node has of a key with what other copies have.
    async fn check(&self, layout: &Layout, index: usize, key: &[u8], held: Version) -> Checked {
        let owned = OwnedKey::of(&Key::new(key, self.seed));
        let asked = self.clock.millis();
        let mut newest: Option<Item> = None;
        // Copies that are not in doubt: whether one has the key; whether one that would have this item has not.
        let (mut is_shown, mut is_missing) = (false, false);
        let mut all_answer = true;
        let mut without: SmallVec<[&Node; 4]> = SmallVec::new();
        for replica in layout.replicas.iter().filter(|replica| !replica.holds(index)) {
            let source = &layout.nodes[replica.node_of(key)];
            if source.health.is_ejected() {
                all_answer = false;
                continue;
            }
            let peeked = self.finish(&*source.store, &owned, Op::Peek).await;
            let known = source.known(&owned.key());
            match self.believed(source, peeked).map(Outcome::lookup) {
                Ok(Lookup::Found(item)) => {
                    let version = item.meta.version();
                    match known.judge(Some(version)) {
                        Belief::Believed => is_shown = true,
                        Belief::Doubted => {}
                        // What it lacks is on its way to it.
                        Belief::Outdated => all_answer = false,
                    }
                    let is_newer = newest.as_ref().is_none_or(|newest| version > newest.meta.version());
                    if is_newer && known.buried() <= version {
                        newest = Some(item);
                    }
                }
                Ok(_) => {
                    is_missing |= known.judge(None) == Belief::Believed && source.would_have(held);
                    without.push(source);
                }
                Err(_) => all_answer = false,
            }
        }
        let node = &layout.nodes[index];
        if is_missing && !is_shown {
            return self.drop_held(node, &owned, held).await;
        }
        if !is_shown && !all_answer {
            return Checked::Open;
        }
        let Some(newer) = newest.filter(|newest| newest.meta.version() > held) else {
            if is_shown {
                return Checked::Kept;
            }
            return match self.is_deleted(node, &without, &owned, held).await {
                Some(true) => self.drop_held(node, &owned, held).await,
                Some(false) => Checked::Kept,
                None => Checked::Open,
            };
        };
        let put = Put::Newer { as_of: surely_current(asked), base: None };
        let ended = self.finish(&*node.store, &owned, Op::Put(&newer.as_ref(), put)).await;
        match Answer::of(self.believed(node, ended)) {
            Answer::Taken { .. } => Checked::Replaced,
            // Something newer is there by now.
            Answer::Superseded(_) => Checked::Kept,
            Answer::Refused(_) | Answer::NotCreated | Answer::Failed(_) => Checked::Open,
        }
    }

    /// Takes an item away. What came meanwhile is newer, and stays.
    async fn drop_held(&self, node: &Node, key: &OwnedKey, held: Version) -> Checked {
        match self.finish(&*node.store, key, Op::Bury(held)).await {
            Ok(_) => Checked::Dropped,
            Err(_) => Checked::Open,
        }
    }

    /// Whether one of these copies, which do not have the key, remembers that an item of a node was deleted. That they are in
    /// doubt does not matter: it is about what they did not take. `None`: that is not known now.
    async fn is_deleted(&self, node: &Node, without: &[&Node], key: &OwnedKey, held: Version) -> Option<bool> {
        let item = match self.finish(&*node.store, key, Op::Peek).await.map(Outcome::lookup) {
            Ok(Lookup::Found(item)) if item.meta.version() == held && !item.meta.unversioned => item,
            Ok(_) => return Some(false),
            Err(_) => return None,
        };
        let mut is_known = true;
        for source in without.iter().filter(|source| !source.versions.has_none()) {
            // As of so long ago that it creates nothing: a delete is what refuses it.
            let put = Put::Newer { as_of: 0, base: None };
            let ended = self.finish(&*source.store, key, Op::Put(&item.as_ref(), put)).await;
            match Answer::of(self.believed(source, ended)) {
                Answer::Superseded(_) => return Some(true),
                Answer::Failed(error) => is_known &= !is_unwell(&error),
                Answer::Taken { .. } | Answer::Refused(_) | Answer::NotCreated => {}
            }
        }
        is_known.then_some(false)
    }

    pub(crate) fn finish(
        &self,
        store: &dyn Store,
        key: &OwnedKey,
        op: Op<'_>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + use<> {
        steps::finish(steps::read_owned(store, &Cx::outside(), &key.key(), op))
    }
}

impl crate::counters::Swept {
    fn of(&self, checked: Checked) -> &moneta_store::Counter {
        match checked {
            Checked::Kept => &self.kept,
            Checked::Replaced => &self.replaced,
            Checked::Dropped => &self.dropped,
            Checked::Open => &self.open,
        }
    }
}
