//! Who holds a slot.
//!
//! A slot is its holder's while that renews, or answers a probe of its port. Another instance that wants it is a spare, until the
//! holder is away, or gone, and does not answer: then the spare gets it, in a new epoch. No key moves.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::leases::Moment;
use crate::record::Record;
use crate::state::Environment;
use crate::topology::{Document, Slot};

/// What an instance has of the slot that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holding {
    /// It holds it.
    Held,
    /// Another does; it waits.
    Spare,
}

/// How a slot stands for an instance that wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// There is no such slot, or the instance wants none.
    None,
    /// It is the instance's, and the document says so.
    Held,
    /// The instance may have it.
    Free,
    /// Another holds it, and no place is known where that could be asked.
    Taken,
    /// Another holds it that is not away: the instance may have it if connections are refused there. A port that refuses them is of a
    /// process that has ended; one that is silent may be cut off from here alone.
    Contested {
        /// Where to ask.
        address: String,
    },
    /// Another holds it, or just an address is known, and that other does not renew: the instance may have it if nothing answers
    /// there.
    Doubtful {
        /// Where to ask.
        address: String,
    },
}

/// How the slot that `record` wants stands for its instance, which is `id`.
pub(crate) fn claim(environment: &Environment, app: &Arc<str>, id: &str, record: &Record, now: Moment) -> Claim {
    let Some((_, document)) = environment.topology(app) else { return Claim::None };
    let (Some(slot), Some(address)) = (wanted(document, record), record.address()) else { return Claim::None };
    let is_own = slot.holder.as_deref() == Some(id);
    if is_own && slot.address.as_deref() == Some(address) && slot.admin.as_deref() == record.admin() {
        return Claim::Held;
    }
    let is_at_home = slot.holder.is_none() && slot.address.as_deref() == Some(address);
    if is_own || is_at_home {
        return Claim::Free;
    }
    match (&slot.holder, &slot.address) {
        (Some(holder), held) if environment.is_here(app, holder, now) => match held {
            Some(address) => Claim::Contested { address: address.clone() },
            None => Claim::Taken,
        },
        (_, Some(held)) => Claim::Doubtful { address: held.clone() },
        (_, None) => Claim::Free,
    }
}

/// Assigns each vacant slot to a live instance that claims it; of several, to the one whose status is oldest. A topology that is made
/// anew thus names its nodes at once, and proxies do not wait until each node has registered again.
///
/// # Errors
/// None that can come to pass: the slots are those of the document.
pub(crate) fn fill(
    document: &mut Document,
    environment: &Environment,
    app: &Arc<str>,
    now: Moment,
) -> Result<(), Refusal> {
    let Some(of) = environment.apps.get(app) else { return Ok(()) };
    let recorded = of.instances.iter().filter_map(|(id, known)| Some((id, &known.record.as_ref()?.1)));
    let mut wanting: Vec<_> = recorded.filter(|(id, _)| environment.is_here(app, id, now)).collect();
    wanting.sort_by_key(|(id, record)| (record.since, Arc::clone(id)));
    for (id, record) in wanting {
        let (Some(place), Some(address)) = (record.wanted(), record.address()) else { continue };
        let is_vacant = wanted(document, record).is_some_and(|slot| slot.holder.is_none() && slot.address.is_none());
        if is_vacant && !document.holds(id) {
            document.hold(place, Some(id), address, record.admin())?;
        }
    }
    Ok(())
}

/// The slot that a record wants, if the document has it.
pub(crate) fn wanted<'a>(document: &'a Document, record: &Record) -> Option<&'a Slot> {
    let (replica, slot) = record.wanted()?;
    document.slot(replica, slot)
}

/// What an instance has of the slot that it wants, as the document says, and who holds it.
pub(crate) fn holding(document: Option<&Document>, id: &str, record: &Record) -> (Option<Holding>, Option<String>) {
    let Some(slot) = document.and_then(|document| wanted(document, record)) else { return (None, None) };
    match &slot.holder {
        Some(holder) if holder == id => (Some(Holding::Held), Some(holder.clone())),
        holder => (Some(Holding::Spare), holder.clone()),
    }
}
