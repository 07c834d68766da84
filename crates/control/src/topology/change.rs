//! What changes a document: values, each of which gives the next document or says why not.

use moneta_cluster::topology::RingKind;
use serde::{Deserialize, Serialize};

use super::document::{Document, Replica, Slot};
use crate::error::Refusal;

/// What is asked of a topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The epoch that the one who asks has seen; another one in force refuses the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_epoch: Option<u64>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The change.
    pub change: Change,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The first document.
    Create {
        /// How keys are divided.
        #[serde(default)]
        ring: RingKind,
        /// The copies.
        replicas: Vec<NewReplica>,
    },
    /// One copy more.
    AddReplica {
        /// Its name.
        name: String,
        /// Where it stands.
        zone: String,
        /// Its slots.
        slots: Vec<NewSlot>,
        /// Whether it answers no reads yet; so it is, unless this says otherwise.
        #[serde(default = "yes")]
        write_only: bool,
    },
    /// One copy less.
    RemoveReplica {
        /// Its name.
        name: String,
    },
    /// Another node in a slot.
    Replace {
        /// The replica.
        replica: String,
        /// The slot.
        slot: String,
        /// The instance that takes it, which is registered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// Or the address of a node that does not register.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// Nodes that are to be asked no more: of a zone, of a replica, or in one slot of that.
    Drain {
        /// All replicas of a zone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        /// A replica.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replica: Option<String>,
        /// A slot of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<String>,
        /// False takes it back.
        #[serde(default = "yes")]
        on: bool,
    },
    /// Whether a replica answers reads.
    WriteOnly {
        /// The replica.
        replica: String,
        /// Whether it takes writes alone.
        on: bool,
    },
    /// Other slots of a replica. Those that stay keep who holds them; the keys of the others move.
    Slots {
        /// The replica.
        replica: String,
        /// All its slots.
        slots: Vec<NewSlot>,
        /// Whether it answers no reads until told otherwise; so it is, unless this says otherwise.
        #[serde(default = "yes")]
        write_only: bool,
    },
    /// Another share of the keys for a slot.
    Weight {
        /// The replica.
        replica: String,
        /// The slot.
        slot: String,
        /// Its share.
        weight: u32,
    },
    /// As it was in an earlier epoch. Slots that are there now keep who holds them.
    Rollback {
        /// The epoch.
        epoch: u64,
    },
}

/// A replica as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewReplica {
    name: String,
    zone: String,
    #[serde(default)]
    write_only: bool,
    slots: Vec<NewSlot>,
}

/// A slot as it is asked for: its name, or more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NewSlot {
    /// The name alone.
    Name(String),
    /// All of it.
    Whole(Slot),
}

fn yes() -> bool {
    true
}

/// What a change may have to know beside the document.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Where the instance serves that [`Change::Replace`] names: its address and its admin side.
    pub instance: Option<(String, Option<String>)>,
    /// The document of the epoch that [`Change::Rollback`] names.
    pub earlier: Option<Document>,
}

impl Change {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::AddReplica { .. } => "add_replica",
            Self::RemoveReplica { .. } => "remove_replica",
            Self::Replace { .. } => "replace",
            Self::Drain { .. } => "drain",
            Self::WriteOnly { .. } => "write_only",
            Self::Slots { .. } => "slots",
            Self::Weight { .. } => "weight",
            Self::Rollback { .. } => "rollback",
        }
    }

    /// The document after it, whose epoch is the next; `None`: there was none before.
    ///
    /// # Errors
    /// 400, 404 or 409 with why it cannot be; the document is checked.
    pub fn apply(&self, before: Option<&Document>, found: Found) -> Result<Document, Refusal> {
        let mut after = match (self, before) {
            (Self::Create { ring, replicas }, None) => {
                let replicas = replicas.iter().cloned().map(NewReplica::made).collect();
                Document { v: 1, epoch: 0, ring: *ring, replicas }
            }
            (Self::Create { .. }, Some(_)) => return Err(Refusal::conflict("the app has a topology already")),
            (_, None) => return Err(Refusal::missing("the app has no topology: create it")),
            (_, Some(before)) => before.clone(),
        };
        match self {
            Self::Create { .. } => {}
            Self::AddReplica { name, zone, slots, write_only } => {
                let slots = slots.clone();
                let new = NewReplica { name: name.clone(), zone: zone.clone(), write_only: *write_only, slots };
                after.replicas.push(new.made());
            }
            Self::RemoveReplica { name } => {
                after.replica_mut(name)?;
                after.replicas.retain(|replica| replica.name != *name);
            }
            Self::Replace { replica, slot, instance, address } => {
                let (address, admin) = match (instance, address, found.instance) {
                    (Some(_), None, Some(at)) => at,
                    (Some(id), None, None) => {
                        return Err(Refusal::conflict(format!(
                            "no instance `{id}` of this app with addresses.cache is registered"
                        )));
                    }
                    (None, Some(address), _) => (address.clone(), None),
                    _ => return Err(Refusal::invalid("a replacement is an instance or an address")),
                };
                after.hold((replica, slot), instance.as_deref(), &address, admin.as_deref())?;
            }
            Self::Drain { zone, replica, slot, on } => drain(&mut after, zone, replica, slot, *on)?,
            Self::WriteOnly { replica, on } => after.replica_mut(replica)?.write_only = *on,
            Self::Slots { replica, slots, write_only } => {
                let replica = after.replica_mut(replica)?;
                let wanted = NewReplica {
                    name: replica.name.clone(),
                    zone: replica.zone.clone(),
                    write_only: *write_only,
                    slots: slots.clone(),
                };
                let mut new = wanted.made();
                for slot in &mut new.slots {
                    if let Some(before) = replica.slots.iter().find(|before| before.slot == slot.slot) {
                        *slot = Slot { weight: slot.weight, ..before.clone() };
                    }
                }
                *replica = new;
            }
            Self::Weight { replica, slot, weight } => after.slot_mut(replica, slot)?.weight = *weight,
            Self::Rollback { epoch } => {
                let missing = || Refusal::missing(format!("the epoch {epoch} is not kept"));
                after = rolled_back(&after, found.earlier.ok_or_else(missing)?);
            }
        }
        let epoch = before.map_or(0, |before| before.epoch);
        if before.is_some_and(|before| Document { epoch, ..after.clone() } == *before) {
            return Err(Refusal::conflict("the topology is so already"));
        }
        after.epoch = epoch + 1;
        after.check()?;
        Ok(after)
    }
}

impl NewReplica {
    fn made(self) -> Replica {
        let slots = self.slots.into_iter().map(|slot| match slot {
            NewSlot::Name(slot) => Slot { slot, weight: 1, holder: None, address: None, admin: None, leaving: false },
            NewSlot::Whole(slot) => slot,
        });
        Replica { name: self.name, zone: self.zone, write_only: self.write_only, slots: slots.collect() }
    }
}

fn drain(
    document: &mut Document,
    zone: &Option<String>,
    replica: &Option<String>,
    slot: &Option<String>,
    on: bool,
) -> Result<(), Refusal> {
    match (zone, replica, slot) {
        (Some(zone), None, None) => {
            let mut of_zone = document.replicas.iter_mut().filter(|replica| replica.zone == *zone).peekable();
            if of_zone.peek().is_none() {
                return Err(Refusal::missing(format!("the topology has no replica in the zone `{zone}`")));
            }
            of_zone.flat_map(|replica| &mut replica.slots).for_each(|slot| slot.leaving = on);
        }
        (None, Some(replica), None) => {
            document.replica_mut(replica)?.slots.iter_mut().for_each(|slot| slot.leaving = on);
        }
        (None, Some(replica), Some(slot)) => document.slot_mut(replica, slot)?.leaving = on,
        _ => return Err(Refusal::invalid("drain names a zone, a replica, or a slot of a replica")),
    }
    if on && document.slots().all(|(replica, slot)| slot.leaving || replica.write_only) {
        return Err(Refusal::conflict("nothing that answers reads would be left"));
    }
    Ok(())
}

/// The earlier one, in which the slots of now have the holders of now.
fn rolled_back(now: &Document, mut earlier: Document) -> Document {
    for replica in &mut earlier.replicas {
        for slot in &mut replica.slots {
            if let Some(held) = now.slot(&replica.name, &slot.slot) {
                (slot.holder, slot.address, slot.admin) =
                    (held.holder.clone(), held.address.clone(), held.admin.clone());
            } else if now.slots().any(|(_, other)| {
                (other.holder.is_some() && other.holder == slot.holder)
                    || (other.address.is_some() && other.address == slot.address)
            }) {
                // It serves elsewhere by now.
                (slot.holder, slot.address, slot.admin) = (None, None, None);
            }
        }
    }
    Document { epoch: now.epoch, ..earlier }
}
