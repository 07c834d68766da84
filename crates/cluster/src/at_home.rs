//! Changes that depend on what a key holds, on a home that keeps no versions.
//!
//! Such a change takes place on the key's home, by memcached's own command, and the other copies are set to what the home holds
//! then. So a change is atomic on the home; two changes through different proxies may reach another copy in the other order.

use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::steps::finish;
use moneta_store::{Deleted, Item, ItemMeta, Lookup, Number, Op, Outcome, OwnedKey, OwnedOp, Put, StoreError, Written};
use smallvec::SmallVec;

use crate::call::Call;
use crate::hints::Missed;
use crate::node::is_unwell;
use crate::spread::Spread;
use crate::writes::too_few;

/// A CAS value that no item has: memcached counts up from 1. One near to those that are there would be another change's soon.
const NO_CAS: u64 = i64::MAX as u64;

/// What other copies made of a change.
#[derive(Default)]
struct Took {
    /// How many took it.
    copies: usize,
    /// How many did not answer.
    away: usize,
    /// The CAS value that it has on a near copy.
    cas: Option<u64>,
    /// Why one did not.
    why: Option<StoreError>,
}

impl Call {
    /// Whether the node that decides on changes of a key keeps no versions.
    pub(crate) fn home_has_no_versions(&self, key: &OwnedKey) -> bool {
        self.well_homes(key).first().is_some_and(|&home| self.node(home).versions.has_none())
    }

    /// The nodes that hold a key and are well, its home first, and those last that still lack a write of it.
    fn well_homes(&self, key: &OwnedKey) -> Vec<usize> {
        let now = self.shared.clock.millis();
        let is_well = |node: &usize| {
            let health = &self.node(*node).health;
            !health.is_ejected() && !health.is_behind(now)
        };
        let mut homes: Vec<usize> = self.homes(&key.key()).into_iter().filter(is_well).collect();
        homes.sort_by_key(|&node| !self.node(node).hints.known(key.key().bytes).is_nothing());
        homes
    }

    /// A change that depends on what a key holds, on a home without versions.
    pub(crate) async fn change_at_home(&self, key: &OwnedKey, op: &OwnedOp) -> Result<Outcome, StoreError> {
        let Some(&home) = self.well_homes(key).first() else { return Err(self.shared.nothing_to_read()) };
        let op = self.with_cas_of(home, key, op.clone()).await?;
        let ended = finish(op.with(|op| self.begin(home, &key.key(), op))).await;
        self.note(home, &ended);
        let outcome = ended?;
        let others = self.others(home, key);
        if !may_have_changed(&outcome) || others.is_empty() {
            return Ok(outcome);
        }
        let outcome = self.everywhere(home, &others, key, &op, outcome).await?;
        Ok(self.with_cas_of_near(home, key, outcome).await)
    }

    /// The nodes of all other copies, also of those that only take writes.
    fn others(&self, home: usize, key: &OwnedKey) -> SmallVec<[usize; 6]> {
        let nodes = self.layout().replicas.iter().map(|replica| replica.node_of(key.key().bytes));
        nodes.filter(|&node| node != home).collect()
    }

    /// Has the other copies follow what a change has made of the home. Those that do not are told later.
    async fn everywhere(
        &self,
        home: usize,
        others: &[usize],
        key: &OwnedKey,
        op: &OwnedOp,
        outcome: Outcome,
    ) -> Result<Outcome, StoreError> {
        let version = self.shared.stamps.next(&self.shared.clock, key.key().hash);
        let now = self.shared.clock.millis();
        let changed = Missed::set(version, now);
        let took = match op {
            // Marks cannot be set by a write.
            OwnedOp::Delete(request) if request.invalidate || request.drop_value => {
                self.repeat(others, key, Op::Delete(&Delete { compare: None, ..*request }), changed).await
            }
            OwnedOp::Read(Retrieve { touch: touch @ Some(_), .. }) => {
                self.repeat(others, key, Op::Read(&Retrieve { touch: *touch, ..Retrieve::default() }), changed).await
            }
            // The winner of a recache writes what it has read.
            OwnedOp::Read(_) => return Ok(outcome),
            _ => match self.peek(home, key).await {
                Ok(Some(mut item)) => {
                    (item.meta.cas, item.meta.unversioned) = (version.0, false);
                    let as_of = self.shared.clock.millis();
                    self.repeat(others, key, Op::Put(&item.as_ref(), Put::Newer { as_of, base: None }), changed).await
                }
                Ok(None) => self.repeat(others, key, Op::Bury(version), Missed::delete(version, now)).await,
                Err(error) => {
                    others.iter().for_each(|&node| self.note_missed(node, key.key().bytes, changed));
                    return Err(error);
                }
            },
        };
        let copies = self.layout().copies();
        if 1 + took.copies < self.shared.rules.ack().deciding(copies, took.away) {
            return Err(too_few(1 + took.copies, copies, took.why));
        }
        // As a set, a change tells the CAS value of the near copy, the one that clients read and compare with; else one that no
        // copy has: the home's may be another item's there.
        let near = if self.layout().is_near(home) { None } else { Some(took.cas.unwrap_or(version.0)) };
        Ok(match (outcome, near) {
            (Outcome::Written(Written::Stored { .. }), Some(cas)) => Written::Stored { cas }.into(),
            (Outcome::Number(Number::Value { number, meta, created }), Some(cas)) => {
                Number::Value { number, meta: ItemMeta { cas, ..meta }, created }.into()
            }
            (outcome, _) => outcome,
        })
    }

    /// Does the same on other copies. Those that do not take it have `missed` it.
    async fn repeat(&self, nodes: &[usize], key: &OwnedKey, op: Op<'_>, missed: Missed) -> Took {
        let (mut spread, mut took) = (Spread::default(), Took::default());
        for &node in nodes {
            match self.node(node).health.is_ejected() {
                true => {
                    took.away += usize::from(self.layout().counts(node));
                    self.note_missed(node, key.key().bytes, missed);
                }
                false => spread.add(node, self.begin(node, &key.key(), op)),
            }
        }
        while let Some((node, ended)) = spread.next().await {
            self.note(node, &ended);
            match ended {
                Ok(Outcome::Written(Written::TooLarge | Written::OutOfMemory)) => {}
                Ok(ended) => {
                    self.node(node).hints.settle(key.key().bytes, missed.version);
                    took.copies += usize::from(self.layout().counts(node));
                    if let Outcome::Written(Written::Stored { cas: cas @ 1.. }) = ended
                        && self.layout().is_near(node)
                    {
                        took.cas = Some(cas);
                    }
                }
                Err(error) => {
                    took.away += usize::from(self.layout().counts(node) && is_unwell(&error));
                    self.note_missed(node, key.key().bytes, missed);
                    took.why = Some(error);
                }
            }
        }
        took
    }

    async fn peek(&self, node: usize, key: &OwnedKey) -> Result<Option<Item>, StoreError> {
        let ended = finish(self.begin(node, &key.key(), Op::Peek)).await;
        self.note(node, &ended);
        Ok(match ended?.lookup() {
            Lookup::Found(item) => Some(item),
            _ => None,
        })
    }

    /// What a change has read on the home is shown with the CAS value that the near copy has for the same, as any other read is:
    /// that is what a `cas` compares with. Where the near copy has something else, no `cas` with the home's succeeds.
    async fn with_cas_of_near(&self, home: usize, key: &OwnedKey, outcome: Outcome) -> Outcome {
        let near = self.order(&key.key()).first().copied().filter(|&near| near != home);
        let (Some(near), Outcome::Read(Lookup::Found(item))) = (near, &outcome) else { return outcome };
        match self.peek(near, key).await {
            Ok(Some(held)) if is_same(&held, item) => {
                let meta = ItemMeta { cas: held.meta.cas, ..item.meta };
                Lookup::Found(Item { meta, ..item.clone() }).into()
            }
            _ => outcome,
        }
    }

    /// A client has the CAS value of the copy that it reads; each node counts its own. So it stands for that of the home if both
    /// hold the same, and for none if they do not.
    async fn with_cas_of(&self, home: usize, key: &OwnedKey, op: OwnedOp) -> Result<OwnedOp, StoreError> {
        let Some(compare) = compared(&op) else { return Ok(op) };
        let Some(&near) = self.order(&key.key()).first() else { return Ok(op) };
        if near == home {
            return Ok(op);
        }
        let (near, held) = (self.peek(near, key).await?, self.peek(home, key).await?);
        let cas = match (near, held) {
            (Some(near), Some(held)) if near.meta.cas == compare && is_same(&near, &held) => held.meta.cas,
            _ => NO_CAS,
        };
        Ok(comparing(op, cas))
    }
}

/// Whether two copies hold the same.
fn is_same(one: &Item, other: &Item) -> bool {
    one.value == other.value && one.meta.flags == other.meta.flags
}

/// The CAS value that an operation asks for.
fn compared(op: &OwnedOp) -> Option<u64> {
    match op {
        OwnedOp::Write(_, request) => request.compare,
        OwnedOp::Delete(request) => request.compare,
        OwnedOp::Arithmetic(request) => request.compare,
        _ => None,
    }
}

fn comparing(op: OwnedOp, cas: u64) -> OwnedOp {
    match op {
        OwnedOp::Write(value, request) => OwnedOp::Write(value, Write { compare: Some(cas), ..request }),
        OwnedOp::Delete(request) => OwnedOp::Delete(Delete { compare: Some(cas), ..request }),
        OwnedOp::Arithmetic(request) => OwnedOp::Arithmetic(Arithmetic { compare: Some(cas), ..request }),
        op => op,
    }
}

fn may_have_changed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Written(written) => matches!(written, Written::Stored { .. }),
        Outcome::Deleted(deleted) => *deleted == Deleted::Deleted,
        Outcome::Number(number) => matches!(number, Number::Value { .. }),
        Outcome::Read(Lookup::Found(_) | Lookup::Visited) => true,
        _ => false,
    }
}
