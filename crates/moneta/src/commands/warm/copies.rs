//! The end of a job: both replicas compared key by key, before the target is read again.

use anyhow::{Context, bail};
use moneta_cluster::{Ring, Topology};
use moneta_link::worker::{End, Held, Word};
use moneta_net::{Address, Outward};
use moneta_verify::{ComparedPlace, Counts, KeyFilter, Observer, Progress, Verify, VerifyConfig};
use serde_json::json;

use super::Order;
use super::direct::source;
use super::watching::Stop;
use crate::outward;

/// Compares the source with the target, and keeps what it found.
///
/// # Errors
/// If a node does not answer, values differ, or the target lacks too much.
pub fn compare(order: &Order, held: &Held, stop: Stop<'_>) -> anyhow::Result<End> {
    let topology = crate::proxy::topology(&source(held))?;
    let from = copy(&topology, &order.from)?;
    let (to, only) = match &order.slot {
        Some(slot) => node(&topology, &order.to, slot, None)?,
        None => (copy(&topology, &order.to)?, None),
    };
    judged(VerifyConfig { outward: outward::of_command(), only, ..VerifyConfig::new(from, to) }, order, held, stop)
}

/// Compares the keys of the order's slot in the source with the node that holds it, which is at `own`.
///
/// # Errors
/// As [`compare`].
pub fn compare_own(
    order: &Order,
    held: &Held,
    stop: Stop<'_>,
    topology: &Topology,
    (own, outward): (Address, Outward),
) -> anyhow::Result<End> {
    let slot = order.slot.as_ref().context("the job names no slot")?;
    let (to, only) = node(topology, &order.to, slot, Some(own))?;
    let from = copy(topology, &order.from)?;
    judged(VerifyConfig { outward, only, ..VerifyConfig::new(from, to) }, order, held, stop)
}

fn judged(config: VerifyConfig, order: &Order, held: &Held, stop: Stop<'_>) -> anyhow::Result<End> {
    let report = Verify::new(config).run(&Comparing { held, stop })?;
    if held.word() != Word::Go || stop() {
        return Ok(End::Released);
    }
    if let Some(why) = report.incomplete {
        bail!("not all could be compared: {why}");
    }
    let counts = report.counts;
    held.checkpoint(&json!({ "text": words(&counts), "counts": counts }), || false)?;
    judge(&counts, order.may_lack)?;
    Ok(End::Done)
}

fn words(counts: &Counts) -> String {
    let Counts { compared, equal, only_in_a, only_in_b, value, flags, .. } = counts;
    format!(
        "{compared} keys compared, {equal} equal, {} with other values, {only_in_a} only in the source, {only_in_b} only in the target",
        value + flags
    )
}

/// Whether the target may be read.
fn judge(counts: &Counts, may_lack: f64) -> anyhow::Result<()> {
    // What is newer in the target came from clients meanwhile, and the source lacks it: it was away.
    if counts.newer_in_a + counts.same_version + counts.errors > 0 {
        bail!("the target is not as new as the source: {}", words(counts));
    }
    let allowed = counts.compared as f64 * may_lack / 100.0;
    if counts.only_in_a as f64 > allowed {
        bail!("the target lacks more than {may_lack} of a hundred keys: {}", words(counts));
    }
    Ok(())
}

fn copy(topology: &Topology, name: &str) -> anyhow::Result<ComparedPlace> {
    let replica = topology.replicas.iter().find(|replica| replica.name == name);
    let replica = replica.with_context(|| format!("there is no replica {name}"))?;
    let ring = Ring::new(topology.ring, &replica.nodes)?;
    let nodes = replica.nodes.iter().map(|node| node.address.clone()).collect();
    Ok(ComparedPlace::copy(name, nodes, move |key| ring.node(key)))
}

/// The node of a slot, which is at `at` or where the topology says, and the keys that are its own.
fn node(
    topology: &Topology,
    name: &str,
    slot: &str,
    at: Option<Address>,
) -> anyhow::Result<(ComparedPlace, Option<KeyFilter>)> {
    let replica = topology.replicas.iter().find(|replica| replica.name == name);
    let replica = replica.with_context(|| format!("there is no replica {name}"))?;
    let number = replica.nodes.iter().position(|node| node.slot == slot);
    let number = number.with_context(|| format!("the replica {name} has no slot {slot}"))?;
    let ring = Ring::new(topology.ring, &replica.nodes)?;
    let at = at.unwrap_or_else(|| replica.nodes[number].address.clone());
    let only = KeyFilter::of(move |key| ring.node(key) == number);
    Ok((ComparedPlace::copy(format!("{name} {slot}"), vec![at], |_| 0), Some(only)))
}

struct Comparing<'a> {
    held: &'a Held,
    stop: Stop<'a>,
}

impl Observer for Comparing<'_> {
    fn progress(&self, progress: Progress) {
        let Progress { keys, different, suspects } = progress;
        let text = format!("{keys} keys, {different} different, {suspects} looked at again");
        self.held.progress(json!({ "text": text, "keys": keys, "different": different }));
    }

    fn should_stop(&self) -> bool {
        self.held.word() != Word::Go || (self.stop)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_other_values_is_not_read_and_one_that_lacks_too_much_neither() {
        let counts = Counts { compared: 200, equal: 198, only_in_a: 2, ..Counts::default() };
        assert!(judge(&counts, 1.0).is_ok());
        assert!(judge(&counts, 0.9).unwrap_err().to_string().contains("lacks more than 0.9"));
        let older = Counts { value: 1, newer_in_a: 1, ..counts };
        assert!(judge(&older, 100.0).unwrap_err().to_string().contains("1 with other values"));
        assert!(judge(&Counts { value: 1, newer_in_b: 1, ..counts }, 1.0).is_ok());
        let unread = Counts { errors: 1, only_in_a: 0, ..counts };
        assert!(judge(&unread, 100.0).is_err());
    }
}
