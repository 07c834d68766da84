//! The ring of a replica, drawn: an arc for each slot as long as its share of the keys, in the colour of how it is.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::hash::{Hash, Hasher};
use std::sync::Arc as Shared;

use maud::{Markup, html};
use moneta_cluster::ring::Ring;
use moneta_cluster::topology::{Node, RingKind};
use moneta_control::topology::{Replica, Slot};
use moneta_net::Address;
use parking_lot::Mutex;

use crate::words::{Health, percent};

/// Places of the ring that are looked at: a share is right to about a hundredth of itself with eight slots.
const LOOKS: u64 = 1 << 14;
/// A ring of more slots takes a tenth of a second and more to make: its arcs are drawn by their weights.
const SLOTS_MAX: usize = 96;
/// Arcs that are drawn one by one; others together.
const ARCS_MAX: usize = 64;

/// Rings whose shares are remembered.
const KNOWN: usize = 512;

/// Shares of rings that were looked at, by what the ring is made of.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<HashMap<u64, Shared<[f64]>>>);

impl Shares {
    /// What share of the keys each slot of a replica has, in the order of the slots. May take a while: not for the thread that
    /// answers requests.
    pub(crate) fn of(&self, kind: RingKind, replica: &Replica) -> Shared<[f64]> {
        let mut hasher = std::hash::DefaultHasher::new();
        format!("{kind:?}").hash(&mut hasher);
        replica.slots.iter().for_each(|slot| (&slot.slot, slot.weight).hash(&mut hasher));
        let made_of = hasher.finish();
        if let Some(known) = self.0.lock().get(&made_of) {
            return known.clone();
        }
        let shares: Shared<[f64]> = shares(kind, replica).into();
        let mut known = self.0.lock();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(made_of, shares.clone());
        shares
    }
}

fn shares(kind: RingKind, replica: &Replica) -> Vec<f64> {
    let all: f64 = replica.slots.iter().map(|slot| f64::from(slot.weight)).sum();
    let by_weight = || replica.slots.iter().map(|slot| f64::from(slot.weight) / all.max(1.0)).collect();
    if replica.slots.len() > SLOTS_MAX {
        return by_weight();
    }
    let Some(ring) = ring(kind, replica) else { return by_weight() };
    let mut counts = vec![0u32; replica.slots.len()];
    for look in 0..LOOKS {
        counts[ring.node(format!("look-{look}").as_bytes())] += 1;
    }
    counts.into_iter().map(|looks| f64::from(looks) / LOOKS as f64).collect()
}

/// The slot that has a key: its place among those of the replica. May take a while.
pub(crate) fn owner(kind: RingKind, replica: &Replica, key: &[u8]) -> Option<usize> {
    ring(kind, replica).map(|ring| ring.node(key))
}

fn ring(kind: RingKind, replica: &Replica) -> Option<Ring> {
    let node = |(place, slot): (usize, &Slot)| Node {
        slot: slot.slot.clone(),
        // No address matters to a ring, but that they differ.
        address: Address::tcp(format!("slot-{place}.invalid"), 11_211),
        admin: None,
        weight: slot.weight,
    };
    let nodes: Vec<Node> = replica.slots.iter().enumerate().map(node).collect();
    Ring::new(kind, &nodes).ok()
}

/// A slot, as its arc tells it.
pub(crate) struct Arc<'a> {
    pub(crate) slot: &'a str,
    pub(crate) share: f64,
    pub(crate) health: Health,
    pub(crate) word: &'a str,
}

/// The ring, with a number in its middle.
pub(crate) fn draw(name: &str, arcs: &[Arc<'_>], middle: &str, below: &str) -> Markup {
    let good = arcs.iter().filter(|arc| arc.health == Health::Good).count();
    let label = format!("Ring of {name}: {good} of {} slots serve", arcs.len());
    let mut from = 0.0;
    let mut paths = Vec::new();
    for arc in arcs.iter().take(ARCS_MAX) {
        paths.push((
            path(from, from + arc.share),
            arc.health.class(),
            format!("{}: {} of the keys, {}", arc.slot, percent(arc.share), arc.word),
        ));
        from += arc.share;
    }
    if let Some(others @ [_, ..]) = arcs.get(ARCS_MAX..) {
        let worst = others.iter().map(|arc| arc.health).max().unwrap_or(Health::Good);
        paths.push((path(from, 1.0), worst.class(), format!("{} more slots", others.len())));
    }
    html! {
        svg.ring viewBox="-50 -50 100 100" role="img" aria-label=(label) {
            @for (path, class, title) in &paths {
                path class=(class) d=(path) { title { (title) } }
            }
            text.middle y="1" { (middle) }
            text.below y="13" { (below) }
        }
    }
}

/// A part of a circle, from one share of it to another, with a gap at both ends.
fn path(from: f64, to: f64) -> String {
    const RADIUS: f64 = 42.0;
    // Half of the gap between two arcs, as a share of the circle.
    let gap = 0.004f64.min((to - from) / 4.0);
    let point = |share: f64| {
        let angle = share * TAU - TAU / 4.0;
        (RADIUS * angle.cos(), RADIUS * angle.sin())
    };
    let (begin, end) = (from + gap, to - gap);
    let ((x0, y0), (x1, y1)) = (point(begin), point(end));
    let is_large = u8::from(end - begin > 0.5);
    format!("M{x0:.2} {y0:.2}A{RADIUS} {RADIUS} 0 {is_large} 1 {x1:.2} {y1:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(weights: &[u32]) -> Replica {
        let slots: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(place, weight)| serde_json::json!({ "slot": format!("s{place}"), "weight": weight }))
            .collect();
        serde_json::from_value(serde_json::json!({ "name": "a", "zone": "a", "slots": slots })).unwrap()
    }

    #[test]
    fn a_slots_arc_is_as_long_as_its_weight() {
        let shares = shares(RingKind::Slots, &replica(&[1, 3]));
        assert!((shares[0] - 0.25).abs() < 0.02 && (shares[1] - 0.75).abs() < 0.02, "{shares:?}");
        assert_eq!(super::shares(RingKind::Slots, &replica(&[])), Vec::<f64>::new());
        assert!(owner(RingKind::Slots, &replica(&[1, 1]), b"key").is_some());
        assert_eq!(owner(RingKind::Slots, &replica(&[]), b"key"), None);
    }

    #[test]
    fn what_the_fleet_calls_its_slots_is_text() {
        let arcs = [Arc { slot: "</svg><script>", share: 1.0, health: Health::Bad, word: "\"away\"" }];
        let drawn = draw("<b>", &arcs, "1", "x").into_string();
        assert!(!drawn.contains("<script") && !drawn.contains("<b>"), "{drawn}");
        assert!(drawn.contains("class=\"bad\""), "{drawn}");
    }
}
