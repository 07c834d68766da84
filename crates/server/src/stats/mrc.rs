//! `stats mrc`: the curve of misses over RAM.

use moneta_curve::{Curve, HALF_LIFE, Room};

use super::lister::Lister;
use crate::node::Node;

/// Writes it, at each power of two within it and halfway between: by bytes, then by items.
pub(super) fn miss_curve(node: &Node, lister: &mut Lister<'_>) {
    lister.put_flag("mrc_enabled", node.keeps_miss_curve());
    let Some(told) = node.told_curve() else { return };
    let curve = &told.curve;
    lister.put("sampled_one_in", told.sampled_one_in);
    lister.put("half_life", HALF_LIFE);
    lister.put("gets", curve.gets as u64);
    lister.put("items", told.footprint.0);
    lister.put("bytes", told.footprint.1);
    lister.put("cold", format_args!("{:.4}", curve.cold));
    let mut list = |name: &str, points: &[(u64, f64)], room: fn(u64) -> Room| {
        for at in Curve::rooms(points) {
            lister.put(&format!("{name}:{at}"), format_args!("{:.4}", curve.miss_ratio(room(at))));
        }
    };
    list("bytes", &curve.by_bytes, Room::Bytes);
    list("items", &curve.by_objects, Room::Objects);
}
