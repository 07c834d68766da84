//! Changes that depend on what a key holds, on a home that keeps no versions.
//!
//! Such a change takes place on the key's home, by memcached's own command, and the other copies are set to what the home holds then. So
//! a change is atomic on the home; two changes through different proxies may reach another copy in the other order.

use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::steps::finish;
use moneta_store::{Deleted, Item, ItemMeta, Lookup, Number, Op, Outcome, OwnedKey, OwnedOp, Put, StoreError, Written};

use crate::call::Call;
use crate::config::majority;
use crate::spread::Spread;
use crate::writes::too_few;

/// A CAS value that no item has: memcached counts up from 1. One near to those that are there would be another change's soon.
const NO_CAS: u64 = i64::MAX as u64;

impl Call {
    /// Whether the node that decides on changes of a key keeps no versions.
    pub(crate) fn home_has_no_versions(&self, key: &OwnedKey) -> bool {
        self.well_homes(key).first().is_some_and(|&home| self.node(home).versions.has_none())
    }

    /// The nodes that hold a key and are well, its home first.
    fn well_homes(&self, key: &OwnedKey) -> Vec<usize> {
        let now = self.shared.clock.millis();
        let is_well = |node: &usize| {
            let health = &self.node(*node).health;
            !health.is_ejected() && !health.is_behind(now)
        };
        self.homes(&key.key()).into_iter().filter(is_well).collect()
    }

    /// A change that depends on what a key holds, on a home without versions.
    pub(crate) async fn change_at_home(&self, key: &OwnedKey, op: &OwnedOp) -> Result<Outcome, StoreError> {
        let homes = self.well_homes(key);
        let Some((&home, others)) = homes.split_first() else { return Err(self.shared.nothing_to_read()) };
        let op = self.with_cas_of(home, key, op.clone()).await?;
        let ended = finish(op.with(|op| self.begin(home, &key.key(), op))).await;
        self.note(home, &ended);
        let outcome = ended?;
        if !may_have_changed(&outcome) || others.is_empty() {
            return Ok(outcome);
        }
        let outcome = self.everywhere(home, others, key, &op, outcome).await?;
        Ok(self.with_cas_of_near(home, key, outcome).await)
    }

    /// Has the other copies follow what a change has made of the home.
    async fn everywhere(
        &self,
        home: usize,
        others: &[usize],
        key: &OwnedKey,
        op: &OwnedOp,
        outcome: Outcome,
    ) -> Result<Outcome, StoreError> {
        let version = self.shared.stamps.next(&self.shared.clock);
        let took = match op {
            // Marks cannot be set by a write.
            OwnedOp::Delete(request) if request.invalidate || request.drop_value => {
                self.repeat(others, key, Op::Delete(&Delete { compare: None, ..*request })).await
            }
            OwnedOp::Read(Retrieve { touch: touch @ Some(_), .. }) => {
                self.repeat(others, key, Op::Read(&Retrieve { touch: *touch, ..Retrieve::default() })).await
            }
            // The winner of a recache writes what it has read.
            OwnedOp::Read(_) => return Ok(outcome),
            _ => match self.peek(home, key).await? {
                Some(mut item) => {
                    (item.meta.cas, item.meta.unversioned) = (version.0, false);
                    let as_of = self.shared.clock.millis();
                    self.repeat(others, key, Op::Put(&item.as_ref(), Put::Newer { as_of, base: None })).await
                }
                None => self.repeat(others, key, Op::Bury(version)).await,
            },
        };
        let copies = self.layout().copies();
        if 1 + took.0 >= majority(copies) { Ok(outcome) } else { Err(too_few(1 + took.0, copies, took.1)) }
    }

    /// Does the same on other copies; how many took it, and why one did not.
    async fn repeat(&self, nodes: &[usize], key: &OwnedKey, op: Op<'_>) -> (usize, Option<StoreError>) {
        let mut spread = Spread::default();
        for &node in nodes {
            spread.add(node, self.begin(node, &key.key(), op));
        }
        let (mut took, mut why) = (0, None);
        while let Some((node, ended)) = spread.next().await {
            self.note(node, &ended);
            match ended {
                Ok(Outcome::Written(Written::TooLarge | Written::OutOfMemory)) => {}
                Ok(_) => took += 1,
                Err(error) => why = Some(error),
            }
        }
        (took, why)
    }

    async fn peek(&self, node: usize, key: &OwnedKey) -> Result<Option<Item>, StoreError> {
        let ended = finish(self.begin(node, &key.key(), Op::Peek)).await;
        self.note(node, &ended);
        Ok(match ended?.lookup() {
            Lookup::Found(item) => Some(item),
            _ => None,
        })
    }

    /// What a change has read on the home is shown with the CAS value that the near copy has for the same, as any other read is: that is
    /// what a `cas` compares with. Where the near copy has something else, no `cas` with the home's succeeds.
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

    /// A client has the CAS value of the copy that it reads; each node counts its own. So it stands for that of the home if both hold
    /// the same, and for none if they do not.
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
