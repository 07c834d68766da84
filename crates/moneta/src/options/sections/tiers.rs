//! Which engine each tier of a node has, checked against each other: what can be stacked, and why the rest cannot.

use moneta_remote::wire::Protocol;
use moneta_remote::{Address, RemoteConfig};
use moneta_store::{KeyHash, Promotion};

use crate::options::flash::{self, FlashSettings};
use crate::options::report::Refusal;
use crate::options::resolve::Resolved;
use crate::options::settings::{duration, narrow, number, word};
use crate::options::table::{Group, Id, TABLE};
use crate::options::tier::TierChoice;
use crate::options::value::Value;
use crate::options::{lmdb, rocks};

/// The tiers of a node.
#[derive(Clone, Debug)]
pub struct StackSettings {
    /// What has the hot items.
    pub upper: Upper,
    /// What has every item.
    pub lower: Lower,
    /// What lies between them.
    pub between: Between,
}

/// The engine of the upper tier.
#[derive(Clone, Debug)]
pub enum Upper {
    /// There is no upper tier.
    None,
    /// RAM of this process.
    Memory,
    /// A server of its own, and the largest piece in which it is given a value, bytes.
    Remote(Box<RemoteConfig>, u32),
}

/// The engine of the lower tier.
#[derive(Clone, Debug)]
pub enum Lower {
    /// There is no lower tier.
    None,
    /// Regions on SSD.
    Flash(Box<FlashSettings>),
    /// RocksDB.
    Rocks(Box<rocks::RocksSettings>),
    /// LMDB.
    Lmdb(Box<lmdb::LmdbSettings>),
    /// A server of its own.
    Remote(Box<RemoteConfig>),
}

/// How items pass from one tier to the other.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// Which hits below bring their item up.
    pub promotion: Promotion,
    /// Bytes a day that may be written below; `None`: any.
    pub write_budget: Option<u64>,
}

impl StackSettings {
    /// The tiers in force.
    pub fn new(resolved: &Resolved) -> Self {
        let upper = match choice(resolved, Id::L1) {
            TierChoice::None => Upper::None,
            TierChoice::Remote(address) => {
                Upper::Remote(Box::new(remote(resolved, address)), narrow(resolved, Id::RemotePieceSize))
            }
            _ => Upper::Memory,
        };
        let lower = match lower_choice(resolved) {
            TierChoice::Flash => Lower::Flash(Box::new(FlashSettings::new(resolved))),
            TierChoice::Rocks => Lower::Rocks(Box::new(rocks::RocksSettings::new(resolved))),
            TierChoice::Lmdb => Lower::Lmdb(Box::new(lmdb::LmdbSettings::new(resolved))),
            TierChoice::Remote(address) => {
                let mut config = remote(resolved, &address);
                if !matches!(upper, Upper::None) {
                    // Only these commands tell when an item expires, which has to be known above.
                    config.protocol = Some(Protocol::Meta);
                }
                Lower::Remote(Box::new(config))
            }
            _ => Lower::None,
        };
        let budget = number(resolved, Id::FlashWriteBudget);
        let between = Between { promotion: promotion(resolved), write_budget: (budget > 0).then_some(budget) };
        Self { upper, lower, between }
    }

    /// Whether items are held in RAM of this process.
    pub fn has_memory(&self) -> bool {
        matches!(self.upper, Upper::Memory)
    }
}

/// The engines that keep items in a place of their own, with the option that gives it and the options about it.
const PLACES: [(TierChoice, Id, Group); 3] = [
    (TierChoice::Flash, Id::Flash, Group::Flash),
    (TierChoice::Rocks, Id::Rocks, Group::Rocks),
    (TierChoice::Lmdb, Id::Lmdb, Group::Lmdb),
];

/// The engine of the lower tier, where the choice is left to it the first one that has a place.
fn lower_choice(resolved: &Resolved) -> TierChoice {
    match choice(resolved, Id::L2) {
        TierChoice::Auto => {
            let placed = PLACES.iter().find(|(_, place, _)| has_place(resolved, *place));
            placed.map_or(TierChoice::None, |(engine, ..)| engine.clone())
        }
        chosen => chosen.clone(),
    }
}

fn has_place(resolved: &Resolved, id: Id) -> bool {
    match resolved.value(id) {
        Value::Devices(devices) => !devices.is_empty(),
        Value::Place(place) => place.is_some(),
        other => unreachable!("the table makes {id:?} a place, not {other:?}"),
    }
}

/// What cannot be stacked, and options of tiers that are not there.
pub fn contradictions(resolved: &Resolved) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |id: Id, range: &str| refusals.push(Refusal::entry(resolved.entry(id), range));
    let (upper, lower) = (choice(resolved, Id::L1), lower_choice(resolved));
    if matches!((upper, &lower), (TierChoice::None, TierChoice::None)) {
        refuse(Id::L1, "memory or a remote server where l2 is none: a node needs one tier at least to keep items in");
    }
    if let (TierChoice::Remote(above), TierChoice::Remote(below)) = (upper, &lower)
        && above == below
    {
        refuse(Id::L2, "another server than l1's: its items would be taken for those of the upper tier");
    }
    if matches!(lower, TierChoice::Remote(_)) && *upper != TierChoice::None && is_without_expiry(resolved) {
        let range = "auto or meta where l2 is a remote server under an l1: the other protocols do not tell when an item \
                     expires, so that it would live on above";
        refuse(Id::RemoteProtocol, range);
    }
    for (engine, place, group) in &PLACES {
        let (chosen, placed) = (lower == *engine, has_place(resolved, *place));
        let name = place.spec().key;
        if chosen && !placed {
            refuse(Id::L2, &format!("given together with {name}, which says where items are kept"));
        }
        if placed && !chosen {
            let in_force = format!("left out where l2 is {lower}: items are kept in one place only");
            refuse(*place, &in_force);
        }
        if !placed {
            let range = format!("given together with {name}, which says where items are kept");
            changed(resolved, *group).for_each(|id| refuse(id, &range));
        }
    }
    let remote = |tier: &TierChoice| matches!(tier, TierChoice::Remote(_));
    if !remote(upper) && !remote(&lower) {
        let range = "given together with a remote server as l1 or l2";
        changed(resolved, Group::Remote).for_each(|id| refuse(id, range));
    }
    if (*upper == TierChoice::None || lower == TierChoice::None) && is_changed(resolved, Id::Promote) {
        refuse(Id::Promote, "given together with two tiers, between which items are moved");
    }
    if let TierChoice::Flash = lower {
        refusals.extend(flash::contradictions(resolved));
    }
    if let TierChoice::Rocks = lower {
        refusals.extend(rocks::contradictions(resolved));
    }
    if let TierChoice::Lmdb = lower {
        refusals.extend(lmdb::contradictions(resolved));
    }
    refusals
}

fn is_without_expiry(resolved: &Resolved) -> bool {
    matches!(word(resolved, Id::RemoteProtocol), "binary" | "text")
}

/// The options of a group that are not at their default. Of a tier that is not there they would have no effect; at its
/// default an option does no harm, as a file may list them all.
fn changed(resolved: &Resolved, group: Group) -> impl Iterator<Item = Id> {
    TABLE.iter().filter(move |spec| spec.group == group).map(|spec| spec.id).filter(|id| is_changed(resolved, *id))
}

fn is_changed(resolved: &Resolved, id: Id) -> bool {
    let spec = id.spec();
    spec.kind.read(spec.default).as_ref() != Some(resolved.value(id))
}

fn remote(resolved: &Resolved, address: &Address) -> RemoteConfig {
    RemoteConfig {
        protocol: match word(resolved, Id::RemoteProtocol) {
            "meta" => Some(Protocol::Meta),
            "binary" => Some(Protocol::Binary),
            "text" => Some(Protocol::Text),
            _ => None,
        },
        connections: narrow(resolved, Id::RemoteConnections),
        request_timeout: duration(resolved, Id::RemoteTimeout),
        connect_timeout: duration(resolved, Id::RemoteConnectTimeout),
        item_max: narrow(resolved, Id::MaxItemSize),
        // How keys are hashed is for the stack to choose: all its stores do it alike.
        ..RemoteConfig::new(address.clone(), KeyHash::seeded(0))
    }
}

fn choice(resolved: &Resolved, id: Id) -> &TierChoice {
    match resolved.value(id) {
        Value::Tier(choice) => choice,
        other => unreachable!("the table makes {id:?} a tier, not {other:?}"),
    }
}

fn promotion(resolved: &Resolved) -> Promotion {
    match resolved.value(Id::Promote) {
        Value::Promotion(promotion) => *promotion,
        other => unreachable!("the table makes this a promotion, not {other:?}"),
    }
}
