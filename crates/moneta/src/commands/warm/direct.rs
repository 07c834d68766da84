//! A node of the source copied into the nodes of the target, without files. It keeps nothing: who goes on begins with the node again,
//! which changes nothing of what is there.

use std::sync::Arc;

use anyhow::Context;
use moneta_bulk::{CopyConfig, Place, Which};
use moneta_link::worker::{End, Held};
use moneta_net::Endpoint;
use moneta_store::KeyHash;
use serde_json::json;

use super::Order;
use super::watching::{FAILURES, Stop, Watching};
use crate::commands::moving::{endpoint, place};

/// The largest value that nodes have.
pub const VALUE_MAX: usize = 64 << 20;

/// Copies what the node of the task's slot holds, and what changes there until all is there.
///
/// # Errors
/// If a node does not answer, or changes are missing: the task is tried again.
pub fn copy(order: &Order, held: &Held, stop: Stop<'_>) -> anyhow::Result<End> {
    let before = Placing::now(order, held)?;
    let config = CopyConfig {
        from: node(order, held)?.into(),
        to: target(order, held)?,
        which: Which::default(),
        follow: true,
        failures: FAILURES,
        strict: false,
        walk: false,
        rate: order.rate(),
        value_max: VALUE_MAX,
    };
    let watch = Watching::new(held, stop);
    let copied = moneta_bulk::copy(&config, &watch)?;
    let end = watch.end(copied.done);
    if end == End::Done {
        before.check(order, held)?;
        held.checkpoint(&json!({ "read": copied.base, "changes": copied.changes, "written": copied.written }), || {
            false
        })?;
    }
    Ok(end)
}

/// The nodes that are filled: those of a replica, or the one of a slot, to which other keys are not written.
///
/// # Errors
/// If there are no such nodes, or no topology is told.
fn target(order: &Order, held: &Held) -> anyhow::Result<Place> {
    let place = place(&order.to, Some(&source(held)))?;
    let Some(slot) = &order.slot else { return Ok(place) };
    let only = find(&source(held), &order.to, slot)?;
    let number = place.nodes.iter().position(|node| node.address == only.address).context("the slot has no node")?;
    let node_of = Arc::clone(&place.node_of);
    let node_of = Arc::new(move |key: &[u8]| if node_of(key) == number { 0 } else { usize::MAX });
    Ok(Place { name: format!("{} {slot}", order.to), nodes: vec![only], node_of })
}

/// How keys are divided among the nodes of the target: who holds a slot is no part of it.
#[derive(PartialEq)]
pub struct Placing(String);

impl Placing {
    /// As the topology says now.
    ///
    /// # Errors
    /// If there is no such replica, or no topology is told.
    pub fn now(order: &Order, held: &Held) -> anyhow::Result<Self> {
        let topology = crate::proxy::topology(&source(held))?;
        let replica = topology.replicas.iter().find(|replica| replica.name == order.to);
        let replica = replica.with_context(|| format!("there is no replica {}", order.to))?;
        let slots: Vec<_> = replica.nodes.iter().map(|node| (&node.slot, node.weight)).collect();
        Ok(Self(format!("{:?} {slots:?}", topology.ring)))
    }

    /// The same in a word.
    pub fn word(&self) -> String {
        format!("{:016x}", KeyHash::seeded(0).hash(self.0.as_bytes()))
    }

    /// Refuses what was written while it changed: some keys went to nodes that do not have them any more.
    ///
    /// # Errors
    /// If it is another now.
    pub fn check(&self, order: &Order, held: &Held) -> anyhow::Result<()> {
        anyhow::ensure!(*self == Self::now(order, held)?, "the ring of {} has changed: begun anew", order.to);
        Ok(())
    }
}

/// The topology of the job's app, as it is now: a node may have been replaced since the job began.
pub fn source(held: &Held) -> String {
    format!("control:{}", held.given.app)
}

/// The node in the slot of a task.
///
/// # Errors
/// If there is no such slot, or no topology is told.
pub fn node(order: &Order, held: &Held) -> anyhow::Result<Endpoint> {
    let slot = held.given.task_params["slot"].as_str().context("the task names no slot")?;
    find(&source(held), &order.from, slot)
}

fn find(topology: &str, replica: &str, slot: &str) -> anyhow::Result<Endpoint> {
    let topology = crate::proxy::topology(topology)?;
    let of = topology.replicas.iter().find(|known| known.name == replica);
    let of = of.with_context(|| format!("there is no replica {replica}"))?;
    let node = of.nodes.iter().find(|node| node.slot == slot);
    let node = node.with_context(|| format!("the replica {replica} has no slot {slot}"))?;
    Ok(endpoint(node.address.clone()))
}
