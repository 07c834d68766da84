//! A node of the source copied into the nodes of the target, without files. It keeps nothing: who goes on begins with the node again,
//! which changes nothing of what is there.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use moneta_bulk::{CopyConfig, RateConfig, Which};
use moneta_link::worker::{End, Held};
use moneta_net::Endpoint;
use serde_json::json;

use super::Order;
use super::watching::Watching;
use crate::commands::moving::{endpoint, place};

/// The largest value that nodes have.
pub const VALUE_MAX: usize = 64 << 20;

/// Copies what the node of the task's slot holds, and what changes there until all is there.
///
/// # Errors
/// If a node does not answer, or changes are missing: the task is tried again.
pub fn copy(order: &Order, held: &Held, stop: &Arc<AtomicBool>) -> anyhow::Result<End> {
    let config = CopyConfig {
        from: node(order, held)?.into(),
        to: place(&order.to, Some(&source(held)))?,
        which: Which::default(),
        follow: true,
        strict: false,
        walk: false,
        rate: RateConfig { bytes: order.rate, operations: 0, p99_limit: None },
        value_max: VALUE_MAX,
    };
    let watch = Watching::new(held, stop);
    let copied = moneta_bulk::copy(&config, &watch)?;
    let end = watch.end(copied.done);
    if end == End::Done {
        held.checkpoint(&json!({ "read": copied.base, "changes": copied.changes, "written": copied.written }), || {
            false
        })?;
    }
    Ok(end)
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
    let topology = crate::proxy::topology(&source(held))?;
    let replica = topology.replicas.iter().find(|replica| replica.name == order.from);
    let replica = replica.with_context(|| format!("there is no replica {}", order.from))?;
    let node = replica.nodes.iter().find(|node| node.slot == slot);
    let node = node.with_context(|| format!("the replica {} has no slot {slot}", order.from))?;
    Ok(endpoint(node.address.clone()))
}
