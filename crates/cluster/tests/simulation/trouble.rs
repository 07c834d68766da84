//! What goes wrong by itself, with nothing else beside it: a bad node, a node that dies, a proxy that is cut off from all nodes.
//! Each of them harms only itself: other nodes, proxies and clients continue.

use moneta_memory::Memory;
use moneta_store::{
    Cx, Deleted, ErrorKind, Item, Key, Lookup, Op, Outcome, OwnedKey, OwnedOp, Put, StoreError, Version, Written, steps,
};

use crate::net::{Guard, Net};
use crate::world::START;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// A node does what it is told after the proxy has given up.
    Late,
    /// A node tells of writes as taken that it has not taken, and shows what it held before, under wrong versions.
    False,
    /// A node answers with versions a year ahead.
    Future,
    /// A node dies half-way, and stays away.
    Dead,
    /// A proxy is cut off from all nodes for a while: what it sends is lost, and is more than hints are kept for.
    Silent,
    /// The same, with room for all hints; but no connection comes up, so that nothing is sent.
    Refused,
}

pub const ALL: [Trouble; 6] =
    [Trouble::Late, Trouble::False, Trouble::Future, Trouble::Dead, Trouble::Silent, Trouble::Refused];

/// The steps in which a proxy is cut off.
pub const CUT: std::ops::Range<u64> = 1000..2000;
/// The step at which a node dies.
pub const DIES: u64 = 1200;
/// How many steps later connections have found that, without being asked by anyone.
pub const FOUND: u64 = 200;
/// What a bad node does late, it does up to so many steps later: less than a write may be under way.
pub const LATE: u64 = 400;
/// How much later than [`START`] clocks are when nodes have started, in milliseconds.
const SINCE: u64 = 1_000;
/// How far ahead versions from the future are, in milliseconds.
const YEAR: u64 = 365 * 86_400_000;
/// By how much a false version is below the true one, at most, in milliseconds.
const WRONG: u64 = 2_000;

/// What a node that lies answers. `None`: it answers as it should.
pub fn lie(
    trouble: Trouble,
    net: &mut Net,
    node: &Memory,
    key: &OwnedKey,
    op: &OwnedOp,
) -> Option<Result<Outcome, StoreError>> {
    if !matches!(trouble, Trouble::False | Trouble::Future) || net.rng.bool() {
        return None;
    }
    let now = START + SINCE + net.step;
    match trouble {
        Trouble::False => match op {
            // Lost, and told as taken: from then on it shows what it held before.
            OwnedOp::Put(item, _) => Some(Ok(Written::Stored { cas: item.meta.cas }.into())),
            OwnedOp::Bury(_) => Some(Ok(Deleted::Deleted.into())),
            _ => {
                let mut shown = shown(node, key, op)?;
                let version = shown.meta.version();
                let wrong = match net.guard {
                    Guard::Told => now,
                    _ => version.millis().saturating_sub(net.rng.u64(1..WRONG)),
                };
                shown.meta.cas = Version::new(Version::at(wrong).local(), version.origin()).0;
                Some(Ok(Lookup::Found(shown).into()))
            }
        },
        Trouble::Future => {
            let year = Version::at(now + YEAR);
            match op {
                OwnedOp::Put(..) => Some(Ok(Written::Superseded { by: year }.into())),
                OwnedOp::Bury(_) if net.rng.bool() => Some(Ok(Deleted::Superseded { by: year }.into())),
                OwnedOp::Bury(_) => Some(Err(StoreError::new(ErrorKind::ClockAhead, "the version is ahead"))),
                _ => {
                    let mut shown = shown(node, key, op)?;
                    shown.meta.cas = year.0;
                    Some(Ok(Lookup::Found(shown).into()))
                }
            }
        }
        _ => None,
    }
}

/// What the node holds, if that is what it is asked for.
fn shown(node: &Memory, key: &OwnedKey, op: &OwnedOp) -> Option<Item> {
    if !matches!(op, OwnedOp::Read(_) | OwnedOp::Peek) {
        return None;
    }
    match op.with(|op| steps::read_owned(node, &Cx::outside(), &key.key(), op)).now() {
        Ok(Outcome::Read(Lookup::Found(item))) => Some(item),
        _ => None,
    }
}

/// What a node has of a key that is newer than this write, if it took the write and then something newer.
pub fn newer_than(node: &Memory, key: &Key<'_>, op: &OwnedOp) -> Option<Version> {
    let version = match op {
        OwnedOp::Put(item, Put::Newer { base: None, .. }) => item.meta.version(),
        OwnedOp::Bury(version) => *version,
        _ => return None,
    };
    let held = steps::read_owned(node, &Cx::outside(), key, Op::Peek).now();
    match held {
        Ok(Outcome::Read(Lookup::Found(item))) => Some(item.meta.version()).filter(|held| *held > version),
        _ => None,
    }
}
