//! Changes that depend on what a key holds: add, append, incr, cas, touch, marks.
//!
//! One round: ask all copies what they hold, until more than half and the key's home have answered; take the newest; work out
//! what the change makes of it; store that on the home, provided the home still holds what it said; then on the others, under the
//! same condition. The home is the same for all processes, so that changes of a key take turns there. Answered when more than
//! half have taken the result. A copy that holds something newer than the change was made from refuses it, and the change is
//! decided again.
//!
//! A round that fails half way leaves its result on some copies. The next round does not count it as what the key holds, or an
//! increment would be made twice.

use moneta_store::change::{self, Old};
use moneta_store::request::Delete;
use moneta_store::{
    Deleted, ErrorKind, Item, ItemMeta, ItemRef, Lookup, Number, Op, Outcome, OwnedKey, OwnedOp, Put, StoreError,
    Value, Version, Written,
};
use smallvec::SmallVec;

use crate::apart::APART;
use crate::buried::Remembered;
use crate::call::Call;
use crate::fate::Fate;
use crate::node::is_unwell;
use crate::own::{Own, dead};
use crate::spread::Spread;
use crate::writes::{Answer, Sent, WriteTold, too_few};

/// Rounds until a change gives up because others change the key all the time.
const ROUNDS: usize = 16;
/// A change that was overtaken so often has others of this process wait.
const PATIENCE: usize = 4;

/// What a change makes of what is there.
enum Decision {
    /// Nothing is stored.
    Nothing(Outcome),
    /// This is stored, and how the change ends then, given the version.
    Store(Item, Ending),
    /// The item is deleted.
    Remove,
}

/// How a change ends once its result is stored.
enum Ending {
    Written,
    Deleted,
    Number(Number),
    Read(Item),
}

/// What the copies said that they hold.
struct Held {
    /// By node: its item's version, [`Version::ZERO`] where it has none.
    versions: SmallVec<[(usize, Version); 4]>,
    /// The newest, and the node that has it.
    newest: Option<(usize, Item)>,
    home: usize,
}

/// What became of a round.
enum Round {
    Ended(Outcome),
    /// Something newer came in between.
    Again,
}

impl Call {
    /// A change of a key that depends on what it holds.
    pub(crate) async fn decide(self, key: OwnedKey, op: OwnedOp) -> Result<Outcome, StoreError> {
        self.shared.counters.decisions.add(1);
        let mut own = Own::default();
        let (turns, hash) = (&self.shared.turns, key.key().hash);
        let mut turn = if turns.is_closed(hash) { Some(turns.take(hash).await) } else { None };
        for round in 0..ROUNDS {
            if self.home_has_no_versions(&key) {
                return self.change_at_home(&key, &op).await;
            }
            match self.round(&key, &op, &mut own).await {
                Ok(Round::Ended(outcome)) => return Ok(outcome),
                Ok(Round::Again) => self.shared.counters.conflicts.add(1),
                Err(error) => {
                    self.note_unknown(key, own);
                    return Err(error);
                }
            }
            match &turn {
                None => turn = Some(turns.take(hash).await),
                Some(turn) if round >= PATIENCE => turn.close(),
                Some(_) => {}
            }
            // Others that collide here go on at different times.
            pause(self.shared.turn() % (1 << round.min(6))).await;
        }
        Err(self.shared.outrun())
    }

    async fn round(&self, key: &OwnedKey, op: &OwnedOp, own: &mut Own) -> Result<Round, StoreError> {
        let mut held = self.ask(key, own).await?;
        held.with_base(own);
        if let Some((source, newest)) = &held.newest
            && *source != held.home
            && held.version(held.home) < newest.meta.version()
            && !own.contains(&held.version(held.home))
            && !self.offer(key, held.home, newest, own).await?
        {
            return Ok(Round::Again);
        }
        let shared = &self.shared;
        let (now, hash) = (shared.clock.now(), key.key().hash);
        let old = held.newest.as_ref().map(|(_, item)| Old { meta: item.meta, value: &item.value });
        if let Some(old) = &old {
            self.learn_of(key, old.meta.version());
        }
        match decision(op, old.as_ref(), now, shared.item_max) {
            Decision::Nothing(outcome) => Ok(
                match own.left.is_empty()
                    || self.restore(key, &held, own, self.shared.stamps.next(&shared.clock, hash)).await?
                {
                    true => Round::Ended(outcome),
                    false => Round::Again,
                },
            ),
            Decision::Remove => self.remove(key, &held, own).await,
            Decision::Store(mut item, ending) => {
                // What keeps its version only lives longer: copies take the later end of equal versions.
                let keeps = item.meta.version() != Version::ZERO;
                if !keeps {
                    (item.meta.cas, item.meta.unversioned) = (shared.stamps.next(&shared.clock, hash).0, false);
                }
                let version = item.meta.version();
                Ok(match self.store(key, &held, &item, keeps, own).await? {
                    true => Round::Ended(ending.told(version)),
                    false => Round::Again,
                })
            }
        }
    }

    /// What the copies hold: of more than half, and of the home.
    async fn ask(&self, key: &OwnedKey, own: &Own) -> Result<Held, StoreError> {
        let mut held = self.ask_once(key, own).await;
        for _ in 1..self.layout().copies() {
            // The home has said so, or tells of the future: now the next one decides.
            let is_left_out = |kind| matches!(kind, ErrorKind::CatchingUp | ErrorKind::ClockAhead);
            if !matches!(&held, Err(error) if is_left_out(error.kind())) {
                break;
            }
            held = self.ask_once(key, own).await;
        }
        held
    }

    async fn ask_once(&self, key: &OwnedKey, own: &Own) -> Result<Held, StoreError> {
        let layout = self.layout();
        let mut homes = self.homes(&key.key());
        homes.retain(|node| own.unknown != Some(*node));
        let mut spread = Spread::default();
        // A node that is ejected or catches up is asked only where too few others are left.
        let now = self.shared.clock.millis();
        let is_well = |node: usize| {
            let health = &self.node(node).health;
            !health.is_ejected() && !health.is_behind(now)
        };
        let well = homes.iter().filter(|&&node| is_well(node)).count();
        let asks_all = well < self.shared.rules.ack().deciding(layout.copies(), homes.len() - well);
        for &node in &homes {
            if asks_all || is_well(node) {
                spread.add(node, self.begin(node, &key.key(), Op::Peek));
            }
        }
        // Another one only while the first is not well: changes that were decided in two places may undo each other.
        let home = homes.iter().find(|&&node| asks_all || is_well(node));
        let home = *home.ok_or_else(|| self.shared.nothing_to_read())?;
        let known_of = |node: usize| self.node(node).known(&key.key());
        let before: SmallVec<[_; 4]> = homes.iter().map(|&node| (node, known_of(node))).collect();
        // A set or a change that one of them lacks, others have, unless it came to nothing or they have lost it since. What one
        // may lack, too.
        let known = before.iter().filter_map(|(_, known)| known.missed.filter(|missed| !missed.deleted));
        let known = known.map(|missed| missed.version).filter(|version| !own.contains(version));
        let known =
            known.chain(before.iter().map(|(_, known)| known.doubt)).filter(|version| *version > Version::ZERO).max();
        let mut versions = SmallVec::new();
        let mut newest: Option<(usize, Item)> = None;
        // The newest that is in doubt, and whether a copy that is not has answered.
        let (mut doubted, mut is_answered): (Option<(usize, Item)>, bool) = (None, false);
        let mut missed_since = u64::MAX;
        // Nodes in doubt that show nothing.
        let mut without: SmallVec<[usize; 4]> = SmallVec::new();
        let mut why = None;
        // By what the node had not heard of when it was asked, or has not heard of now.
        let known_here = |node: usize| {
            let was = before.iter().find(|(other, _)| *other == node).map(|(_, known)| *known).unwrap_or_default();
            was.and(known_of(node))
        };
        let mut away = if asks_all { 0 } else { homes.len() - well };
        let is_enough = |told, away| told >= self.shared.rules.ack().deciding(layout.copies(), away);
        while let Some((node, ended)) = spread.next().await {
            match self.heard(node, ended).map(Outcome::lookup) {
                Ok(Lookup::Found(item)) => {
                    let version = item.meta.version();
                    versions.push((node, version.max(Version(1))));
                    let here = known_here(node);
                    let is_doubted = here.doubt > version;
                    is_answered |= !is_doubted;
                    let place = if is_doubted { &mut doubted } else { &mut newest };
                    let is_newer = place.as_ref().is_none_or(|(_, newest)| version > newest.meta.version());
                    if is_newer && own.counts(version) && here.buried() <= version {
                        *place = Some((node, item));
                    }
                }
                Ok(_) => {
                    versions.push((node, Version::ZERO));
                    match known_here(node).doubt {
                        Version::ZERO => missed_since = missed_since.min(self.node(node).since()),
                        _ => without.push(node),
                    }
                }
                Err(error) => {
                    away += usize::from(is_unwell(&error));
                    why = Some(error);
                }
            }
            let is_known =
                known.is_none_or(|known| newest.as_ref().is_some_and(|(_, item)| item.meta.version() >= known));
            // The outcomes that are still to come change nothing.
            if is_known && has(&versions, home) && is_enough(versions.len(), away) {
                break;
            }
        }
        // Of those in doubt that show nothing, so many did not tell what they remember.
        let mut untold = 0;
        // What is in doubt counts where it is newer, or no other copy has the key or would have one so old.
        let stands = |item: &Item| match &newest {
            Some((_, newest)) => item.meta.version() > newest.meta.version(),
            None => !is_answered && item.meta.version().millis().saturating_add(APART) < missed_since,
        };
        if let Some((node, item)) = doubted.filter(|(_, item)| stands(item)) {
            match self.remembered(&without, key, &item).await {
                Remembered::Nothing { silent } => (newest, untold) = (Some((node, item)), silent),
                Remembered::Newer => newest = None,
            }
        }
        match has(&versions, home) && is_enough(versions.len() - untold, away) {
            true => Ok(Held { versions, newest, home }),
            false => Err(too_few(versions.len(), layout.copies(), why)),
        }
    }

    /// Gives the home what another copy has. False: the home knows that it was deleted, or has something newer by now.
    async fn offer(&self, key: &OwnedKey, home: usize, item: &Item, own: &mut Own) -> Result<bool, StoreError> {
        let as_of = self.shared.clock.millis();
        let put = self.begin(home, &key.key(), Op::Put(&item.as_ref(), Put::Newer { as_of, base: None }));
        let mut spread = Spread::default();
        spread.add(home, put);
        let Some((_, ended)) = spread.next().await else { return Ok(false) };
        match Answer::of(self.heard(home, ended)) {
            Answer::Taken { .. } => Ok(true),
            Answer::Superseded(by) => {
                self.learn_of(key, by);
                own.deleted.push(item.meta.version());
                Ok(false)
            }
            Answer::NotCreated => {
                Err(StoreError::new(ErrorKind::Unavailable, "a copy has just started: it cannot tell what was deleted"))
            }
            Answer::Refused(_) => Err(StoreError::new(ErrorKind::OutOfMemory, "a copy has no room for the item")),
            Answer::Failed(error) if self.tells_of_the_future(home, &error) => Ok(false),
            Answer::Failed(error) => Err(error),
        }
    }

    /// Whether a node has failed as it tells of versions from the future: then another home decides in the next round.
    fn tells_of_the_future(&self, node: usize, error: &StoreError) -> bool {
        error.kind() == ErrorKind::ClockAhead && self.node(node).health.is_behind(self.shared.clock.millis())
    }

    /// Stores a result on the home, then on the others. False: something newer came in between.
    async fn store(
        &self,
        key: &OwnedKey,
        held: &Held,
        item: &Item,
        keeps: bool,
        own: &mut Own,
    ) -> Result<bool, StoreError> {
        let layout = self.layout();
        let version = item.meta.version();
        let item = item.as_ref();
        let as_of = self.shared.clock.millis();
        let sent = Sent::Put(&item, as_of, None);
        self.shared.overlap.note(key.key().bytes, sent.missed(as_of), as_of);
        let put = |node: usize, base: Option<Version>| {
            let op = Op::Put(&item, Put::Newer { as_of, base: base.filter(|_| !keeps) });
            self.begin(node, &key.key(), op)
        };
        let mut spread = Spread::default();
        spread.add(held.home, put(held.home, Some(held.base(held.home))));
        let Some((_, ended)) = spread.next().await else { return Ok(false) };
        match Answer::of(self.heard(held.home, ended)) {
            // Another change has made the same of the same, under the same version: one of the two takes place.
            Answer::Taken { same: true, .. } if !keeps => return Ok(false),
            Answer::Taken { .. } => self.node(held.home).took(&key.key(), version),
            Answer::Superseded(by) => {
                self.learn_of(key, by);
                return Ok(false);
            }
            Answer::Refused(refused) => return Err(refusal(refused)),
            Answer::NotCreated => {
                let text = "a copy has just started: it cannot tell what was deleted";
                return Err(StoreError::new(ErrorKind::Unavailable, text));
            }
            Answer::Failed(error) if self.tells_of_the_future(held.home, &error) => {
                own.leave(version, held.newest.as_ref());
                return Ok(false);
            }
            Answer::Failed(error) if error.is_unsent() || error.kind() == ErrorKind::ClockAhead => return Err(error),
            // Whether it is stored is not known. If it is, the others are to have it, too.
            Answer::Failed(error) => {
                let nodes = layout.replicas.iter().map(|replica| replica.node_of(key.key().bytes));
                nodes.filter(|&node| node != held.home).for_each(|node| self.miss(node, key, &sent));
                if own.unknown.is_none() {
                    own.leave(version, held.newest.as_ref());
                    own.unknown = Some(held.home);
                }
                return Err(error);
            }
        }
        own.leave(version, held.newest.as_ref());
        let mut away = 0;
        for replica in &layout.replicas {
            let node = replica.node_of(key.key().bytes);
            if node == held.home {
                continue;
            }
            if layout.nodes[node].health.is_ejected() {
                away += usize::from(!replica.write_only);
                self.miss(node, key, &sent);
                continue;
            }
            spread.add(node, put(node, (!replica.write_only).then(|| held.base(node))));
        }
        let mut wanted = self.shared.rules.ack().deciding(layout.copies(), away);
        let (mut took, mut why, mut is_superseded) = (1, None, false);
        // The near copies too, so that a client reads what it wrote.
        while (took < wanted || spread.waits_for(|node| layout.is_near(node)))
            && let Some((node, ended)) = spread.next().await
        {
            match Answer::of(self.heard(node, ended)) {
                Answer::Taken { .. } => {
                    self.node(node).took(&key.key(), version);
                    took += usize::from(layout.counts(node));
                }
                Answer::Failed(error) => {
                    away += usize::from(layout.counts(node) && is_unwell(&error));
                    wanted = self.shared.rules.ack().deciding(layout.copies(), away);
                    self.miss(node, key, &sent);
                    why = Some(error);
                }
                // It may hold the result of a round that was given up, which is older, or remember a delete that the home has not
                // heard of.
                Answer::Superseded(by) => {
                    is_superseded = true;
                    own.refused_for(by);
                    self.miss(node, key, &sent);
                }
                Answer::NotCreated | Answer::Refused(_) => self.miss(node, key, &sent),
            }
        }
        if spread.left() > 0 {
            self.watch_rest(spread, key, sent.missed(as_of), Fate::taken()).await;
        }
        if took >= wanted {
            return Ok(true);
        }
        match why {
            // That a copy is not believed says nothing against another one that holds something newer.
            Some(error) if !is_superseded || error.kind() != ErrorKind::ClockAhead => {
                Err(too_few(took, layout.copies(), Some(error)))
            }
            _ => self.is_past(key, held.home, version).await,
        }
    }

    /// Whether the home has gone on from a result that other copies did not take: then what they hold came after it.
    async fn is_past(&self, key: &OwnedKey, home: usize, version: Version) -> Result<bool, StoreError> {
        let mut spread = Spread::default();
        spread.add(home, self.begin(home, &key.key(), Op::Peek));
        let Some((_, ended)) = spread.next().await else { return Ok(false) };
        match self.heard(home, ended).map(Outcome::lookup) {
            Ok(Lookup::Found(item)) => Ok(item.meta.version() > version),
            Ok(_) => Ok(true),
            Err(error) if self.tells_of_the_future(home, &error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces what rounds before have left by what the key holds apart from that. False: something newer came in between.
    async fn restore(&self, key: &OwnedKey, held: &Held, own: &mut Own, version: Version) -> Result<bool, StoreError> {
        let item = match &held.newest {
            Some((_, item)) => {
                Item { meta: ItemMeta { cas: version.0, unversioned: false, ..item.meta }, ..item.clone() }
            }
            None => dead(version),
        };
        self.store(key, held, &item, false, own).await
    }

    /// Makes what more than half of all copies hold without the home newer than a result of which the home has not said whether
    /// it stored that: the change has not taken place then. Only just newer, so that every write since then is above it.
    pub(crate) async fn settle(&self, key: &OwnedKey, own: &mut Own) {
        let Some(version) = own.left.iter().max().map(|left| left.just_above()) else { return };
        for _ in 0..ROUNDS {
            let Ok(mut held) = self.ask_once(key, own).await else { return };
            held.with_base(own);
            if held.newest.as_ref().is_some_and(|(_, item)| item.meta.version() >= version) {
                return;
            }
            match self.restore(key, &held, own, version).await {
                Ok(false) => self.shared.counters.conflicts.add(1),
                Ok(true) | Err(_) => return,
            }
        }
    }

    /// Further stamps of the key are above this.
    fn learn_of(&self, key: &OwnedKey, seen: Version) {
        self.shared.stamps.note(key.key().hash, seen, self.shared.clock.millis());
    }

    /// Deletes what the key holds, provided it is still that: first with an item on the home that is dead from the start, then
    /// on all copies.
    async fn remove(&self, key: &OwnedKey, held: &Held, own: &mut Own) -> Result<Round, StoreError> {
        let next = || self.shared.stamps.next(&self.shared.clock, key.key().hash);
        if !self.store(key, held, &dead(next()), false, own).await? {
            return Ok(Round::Again);
        }
        let version = next();
        match self.send(key, Sent::Bury(version)).await? {
            WriteTold::Taken { .. } | WriteTold::Superseded(_) => Ok(Round::Ended(Deleted::Deleted.into())),
            WriteTold::Refused(_) | WriteTold::NotCreated => unreachable!("a delete is not refused"),
        }
    }
}

impl Held {
    /// What a node said that it holds.
    fn version(&self, node: usize) -> Version {
        self.versions.iter().find(|(other, _)| *other == node).map_or(Version::ZERO, |(_, version)| *version)
    }
}

impl Held {
    /// What rounds before were made from counts, too: the home has got it no more.
    fn with_base(&mut self, own: &Own) {
        let newest = self.newest.as_ref().map_or(Version::ZERO, |(_, item)| item.meta.version());
        if let Some(base) =
            own.base.as_ref().filter(|base| base.meta.version() > newest && own.counts(base.meta.version()))
        {
            self.newest = Some((self.home, base.clone()));
        }
    }

    /// The newest that a copy may hold for a change to replace it: what the change was made from, or what the copy said it holds,
    /// of a round that was given up. Where the key was deleted since what the change was made from, the copy refuses it.
    fn base(&self, node: usize) -> Version {
        let newest = self.newest.as_ref().map_or(Version::ZERO, |(_, item)| item.meta.version().max(Version(1)));
        self.version(node).max(newest)
    }
}

fn has(versions: &[(usize, Version)], node: usize) -> bool {
    versions.iter().any(|(other, _)| *other == node)
}

/// A result that a copy cannot store.
fn refusal(refused: Written) -> StoreError {
    match refused {
        Written::TooLarge => StoreError::new(ErrorKind::Unsupported, "the result is larger than a copy takes"),
        _ => StoreError::new(ErrorKind::OutOfMemory, "a copy has no room for the result"),
    }
}

/// Lets other requests go on for so many turns.
async fn pause(turns: usize) {
    for _ in 0..turns {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }
}

/// What a change makes of the item that is there.
fn decision(op: &OwnedOp, old: Option<&Old<'_>>, now: u32, item_max: usize) -> Decision {
    let before = old.map(|old| (old.meta, old.value.len()));
    let stored = |version: &change::Version<'_>| {
        let version = match &before {
            Some((meta, length)) => version.in_cluster(meta, *length),
            None => *version,
        };
        let ItemRef { meta, value } = version.item();
        Item { meta, value: value.into() }
    };
    match op {
        OwnedOp::Write(value, request) => match change::write(old, value, request, now, item_max) {
            Ok(version) => Decision::Store(stored(&version), Ending::Written),
            Err(written) => Decision::Nothing(written.into()),
        },
        OwnedOp::Delete(request) => match change::delete(old, request, now) {
            Ok(change::Removal::Remove) => Decision::Remove,
            Ok(change::Removal::Rewrite(version)) => Decision::Store(stored(&version), Ending::Deleted),
            Err(deleted) => Decision::Nothing(deleted.into()),
        },
        OwnedOp::Arithmetic(request) => match change::arithmetic(old, request, now) {
            Ok(computed) => {
                let item = stored(&computed.version);
                Decision::Store(item, Ending::Number(computed.answer(0)))
            }
            Err(number) => Decision::Nothing(number.into()),
        },
        OwnedOp::Read(request) => match change::read(old, request, now) {
            None => Decision::Nothing(Lookup::Miss { expired: false }.into()),
            Some(reading) => {
                let shown = Item { meta: reading.meta, value: Value::whole(reading.value).into() };
                match &reading.rewrite {
                    None => Decision::Nothing(Lookup::Found(shown).into()),
                    Some(version) => Decision::Store(stored(version), Ending::Read(shown)),
                }
            }
        },
        other => unreachable!("{other:?} does not depend on what is there"),
    }
}

impl Ending {
    fn told(self, version: Version) -> Outcome {
        match self {
            Self::Written => Written::Stored { cas: version.0 }.into(),
            Self::Deleted => Deleted::Deleted.into(),
            Self::Number(Number::Value { number, meta, created }) => {
                Number::Value { number, meta: ItemMeta { cas: version.0, unversioned: false, ..meta }, created }.into()
            }
            Self::Number(other) => other.into(),
            Self::Read(item) => {
                let meta = ItemMeta { cas: version.0, unversioned: false, ..item.meta };
                Lookup::Found(Item { meta, ..item }).into()
            }
        }
    }
}

/// Whether a delete takes the item away under no condition.
pub(crate) fn is_plain(request: &Delete) -> bool {
    *request == Delete::default()
}
