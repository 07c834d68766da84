//! The document.

use moneta_cluster::topology::{Node, Replica as Copy, RingKind, Topology};
use moneta_net::{Address, HostPort};
use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::names;

/// The most slots of a topology, over all its replicas.
pub const SLOTS_MAX: usize = 4_096;
/// The largest document, in bytes of JSON: a commit has it twice.
pub const DOCUMENT_MAX: usize = 400 << 10;

/// The topology of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The form of the document.
    #[serde(default = "one")]
    pub v: u32,
    /// Grows with every change, and never goes back.
    #[serde(default)]
    pub epoch: u64,
    /// How keys are divided among the slots of a replica.
    #[serde(default)]
    pub ring: RingKind,
    /// The copies of the data.
    pub replicas: Vec<Replica>,
}

/// One full copy of the data, in one zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// Its name, which no other has.
    pub name: String,
    /// Where it stands.
    pub zone: String,
    /// It takes writes and answers no reads.
    #[serde(default)]
    pub write_only: bool,
    /// Its slots. They stay, whoever holds them.
    pub slots: Vec<Slot>,
}

/// A place in the ring of a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// The name by which the ring places it.
    pub slot: String,
    /// Its share of the keys, relative to the others'.
    #[serde(default = "one")]
    pub weight: u32,
    /// The instance that holds it.
    #[serde(default)]
    pub holder: Option<String>,
    /// Where it is asked for items.
    #[serde(default)]
    pub address: Option<String>,
    /// Where its admin side is.
    #[serde(default)]
    pub admin: Option<String>,
    /// Whether it is to be asked no more, as its node is about to go.
    #[serde(default)]
    pub leaving: bool,
}

fn one() -> u32 {
    1
}

impl Document {
    /// Whether it can be in force: what `moneta_cluster` checks of each topology, and the bounds of one that is kept here.
    ///
    /// # Errors
    /// 400 with what is wrong; 413 if it is too large.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.v != 1 {
            return Err(Refusal::invalid(format!("a topology of the form {} is not known here", self.v)));
        }
        if self.slots().count() > SLOTS_MAX {
            return Err(Refusal::too_large(format!("a topology has at most {SLOTS_MAX} slots")));
        }
        for replica in &self.replicas {
            names::check("a replica", &replica.name)?;
            names::check("a zone", &replica.zone)?;
            for slot in &replica.slots {
                names::check_slot(&slot.slot)?;
                if let Some(holder) = &slot.holder {
                    names::check("an instance", holder)?;
                }
            }
        }
        self.as_topology()?.check().map_err(|error| Refusal::invalid(error.to_string()))?;
        if self.text().len() > DOCUMENT_MAX {
            return Err(Refusal::too_large(format!("a topology has at most {DOCUMENT_MAX} bytes")));
        }
        Ok(())
    }

    /// As rings have it. Slots without an address have each a name of their own that leads nowhere.
    fn as_topology(&self) -> Result<Topology, Refusal> {
        let mut unheld = 0;
        let mut replicas = Vec::with_capacity(self.replicas.len());
        for replica in &self.replicas {
            let mut nodes = Vec::with_capacity(replica.slots.len());
            for slot in &replica.slots {
                let address = match &slot.address {
                    Some(address) => read(address)?,
                    None => {
                        unheld += 1;
                        Address::tcp(format!("unheld-{unheld}.invalid"), 11_211)
                    }
                };
                let admin = slot.admin.as_deref().map(read).transpose()?;
                nodes.push(Node { slot: slot.slot.clone(), address, admin, weight: slot.weight });
            }
            let (name, zone) = (replica.name.clone(), replica.zone.clone());
            replicas.push(Copy { name, zone, write_only: replica.write_only, nodes });
        }
        Ok(Topology { epoch: self.epoch, ring: self.ring, replicas })
    }

    /// As it is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// All slots, each with its replica.
    pub fn slots(&self) -> impl Iterator<Item = (&Replica, &Slot)> {
        self.replicas.iter().flat_map(|replica| replica.slots.iter().map(move |slot| (replica, slot)))
    }

    /// A slot of a replica.
    pub fn slot(&self, replica: &str, slot: &str) -> Option<&Slot> {
        let replicas = self.replicas.iter().filter(|known| known.name == replica);
        replicas.flat_map(|replica| &replica.slots).find(|known| known.slot == slot)
    }

    pub(super) fn replica_mut(&mut self, name: &str) -> Result<&mut Replica, Refusal> {
        let missing = || Refusal::missing(format!("the topology has no replica `{name}`"));
        self.replicas.iter_mut().find(|replica| replica.name == name).ok_or_else(missing)
    }

    pub(super) fn slot_mut(&mut self, replica: &str, slot: &str) -> Result<&mut Slot, Refusal> {
        let missing = || Refusal::missing(format!("the replica `{replica}` has no slot `{slot}`"));
        self.replica_mut(replica)?.slots.iter_mut().find(|known| known.slot == slot).ok_or_else(missing)
    }

    /// Whether an instance holds a slot.
    pub fn holds(&self, id: &str) -> bool {
        self.replicas.iter().flat_map(|replica| &replica.slots).any(|slot| slot.holder.as_deref() == Some(id))
    }

    /// Gives a slot to an instance, which serves at these addresses. It keeps its name, so no key moves. An instance, and an address,
    /// is in one slot: others that have it are left without.
    ///
    /// # Errors
    /// 404 if there is no such slot.
    pub fn hold(
        &mut self,
        (replica, slot): (&str, &str),
        holder: Option<&str>,
        address: &str,
        admin: Option<&str>,
    ) -> Result<(), Refusal> {
        self.slot_mut(replica, slot)?;
        for other in self.replicas.iter_mut().flat_map(|replica| &mut replica.slots) {
            if (holder.is_some() && other.holder.as_deref() == holder) || other.address.as_deref() == Some(address) {
                (other.holder, other.address, other.admin) = (None, None, None);
            }
        }
        let slot = self.slot_mut(replica, slot)?;
        (slot.holder, slot.address) = (holder.map(str::to_owned), Some(address.to_owned()));
        (slot.admin, slot.leaving) = (admin.map(str::to_owned), false);
        Ok(())
    }
}

fn read(address: &str) -> Result<Address, Refusal> {
    let read: HostPort = address.parse().map_err(|error| Refusal::invalid(format!("an address: {error}")))?;
    Ok(Address::Tcp(read))
}
