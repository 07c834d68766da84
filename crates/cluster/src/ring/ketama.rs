//! Ketama by MD5: a node has 160 points on the circle, four for each of 40 strings made of its slot.
//!
//! The original is libketama (R. Jones, 2007). Its descendants share the points and differ in the string:
//!
//! | client | string for `host`, port `port` |
//! |---|---|
//! | libketama | `host:port-<i>` |
//! | libmemcached (`KETAMA_WEIGHTED`), twemproxy without names, spymemcached (format `LIBMEMCACHED`) | `host-<i>` for port 11211, `host:port-<i>` for others |
//! | spymemcached (default format) | `host/ip:port-<i>`; `ip:port-<i>` for an address given by number |
//! | twemproxy with names | `name-<i>` |
//! | EVCache | `host/ip:11211-<i>`, whatever the port |
//!
//! Here the string is `<slot>-<i>`, and `<slot>:11211-<i>` for EVCache: the slot's name chooses whose ring it is. Nodes without a
//! slot of their own are named as libmemcached does ([`RingKind::slot_of`](crate::topology::RingKind::slot_of)).

use md5::{Digest, Md5};

use super::points::{Clash, Points};
use super::words;
use crate::topology::Node;

/// Points of a node of average weight.
const POINTS: u32 = 160;

/// Points that one MD5 gives.
const POINTS_PER_STRING: u32 = 4;

/// As EVCache's client: no weights; of two points on one place the later one stays, as in a Java map.
pub(super) fn evcache(nodes: &[Node]) -> Points {
    let strings = POINTS / POINTS_PER_STRING;
    place(nodes, |_| strings, |slot, index| format!("{slot}:11211-{index}"), Clash::Last)
}

/// As libmemcached; of two points on one place the earlier one stays, as its sort and its search leave it.
pub(super) fn libketama(nodes: &[Node]) -> Points {
    let total: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    place(nodes, |node| strings(node.weight, total, nodes.len()), |slot, index| format!("{slot}-{index}"), Clash::First)
}

/// Strings of a node with `weight` of `total`. The steps and their roundings are those of libmemcached (`update_continuum` in
/// `hosts.cc`): 25 nodes of one weight have 156 points each by them, not 160.
fn strings(weight: u32, total: u64, nodes: usize) -> u32 {
    let share = weight as f32 / total as f32;
    let strings = share * POINTS as f32 / POINTS_PER_STRING as f32 * nodes as f32 + 1e-10;
    strings.floor() as u32
}

fn place(nodes: &[Node], strings: impl Fn(&Node) -> u32, string: impl Fn(&str, u32) -> String, clash: Clash) -> Points {
    let mut points = Vec::with_capacity(nodes.len() * POINTS as usize);
    for (node, owner) in nodes.iter().zip(0u16..) {
        for index in 0..strings(node) {
            let digest: [u8; 16] = Md5::digest(string(&node.slot, index)).into();
            points.extend(words(&digest).map(|place| (place, owner)));
        }
    }
    Points::of(points, clash)
}
