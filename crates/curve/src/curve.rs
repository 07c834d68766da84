//! A curve of misses over room.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Room of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// So many items.
    Objects(u64),
    /// Items of so many bytes together.
    Bytes(u64),
}

/// Misses over room, of a cache that keeps what was used last. Between two points it is a straight line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Gets that it was made from; older ones weigh less.
    pub gets: f64,
    /// The share of gets that miss whatever the room: the first of their key, and those after its delete or expiry.
    pub cold: f64,
    /// Room in items, and the share of gets that miss with it: ever more room, ever fewer misses.
    pub by_objects: Vec<(u64, f64)>,
    /// The same of room in bytes.
    pub by_bytes: Vec<(u64, f64)>,
}

impl Curve {
    /// The curve of so many gets, of which `cold` miss whatever the room, and the others need what the histograms have.
    pub(crate) fn new(gets: f64, cold: f64, objects: &Histogram, bytes: &Histogram) -> Self {
        let cold_share = if gets > 0.0 { (cold / gets).min(1.0) } else { 0.0 };
        let points = |histogram| points(gets, cold, histogram);
        Self { gets, cold: cold_share, by_objects: points(objects), by_bytes: points(bytes) }
    }

    /// Misses over gets with this room, 0 to 1; 1 where nothing was got.
    pub fn miss_ratio(&self, room: Room) -> f64 {
        let (points, room) = match room {
            Room::Objects(room) => (&self.by_objects, room),
            Room::Bytes(room) => (&self.by_bytes, room),
        };
        let after = points.partition_point(|(at, _)| *at <= room);
        let Some(&(from, high)) = after.checked_sub(1).and_then(|before| points.get(before)) else { return 1.0 };
        let Some(&(to, low)) = points.get(after) else { return high };
        high - (high - low) * (room - from) as f64 / (to - from) as f64
    }

    /// The least bytes with which no larger share of gets misses; `None` if there is no such room.
    pub fn bytes_for(&self, miss_ratio: f64) -> Option<u64> {
        room_for(&self.by_bytes, miss_ratio)
    }

    /// The same in items.
    pub fn objects_for(&self, miss_ratio: f64) -> Option<u64> {
        room_for(&self.by_objects, miss_ratio)
    }

    /// Sizes to show of one of its lists of points: each power of two and what is halfway, from where more room begins to help to where
    /// it helps no more.
    pub fn rooms(points: &[(u64, f64)]) -> impl Iterator<Item = u64> {
        let (most, least) = (points.get(1).map_or(1.0, |point| point.1), points.last().map_or(1.0, |point| point.1));
        let first = points.iter().rfind(|point| point.1 >= most - 0.0005).map_or(0, |point| point.0 / 2);
        let last = points.iter().find(|point| point.1 <= least + 0.0005).map_or(0, |point| point.0);
        let rooms = (0..48_u32).flat_map(|bits| [1_u64 << bits, (1_u64 << bits) + (1_u64 << bits >> 1)]);
        rooms.skip_while(move |room| *room < first).take_while(move |room| *room < last).chain([last])
    }

    /// The misses of a cache that has room for everything, over gets.
    pub fn floor(&self) -> f64 {
        self.by_bytes.last().map_or(1.0, |point| point.1)
    }
}

fn room_for(points: &[(u64, f64)], miss_ratio: f64) -> Option<u64> {
    let reached = points.iter().position(|(_, misses)| *misses <= miss_ratio)?;
    let (to, low) = points[reached];
    let Some(&(from, high)) = reached.checked_sub(1).map(|before| &points[before]) else { return Some(to) };
    let share = if high > low { (high - miss_ratio) / (high - low) } else { 0.0 };
    Some(from + ((to - from) as f64 * share).ceil() as u64)
}

fn points(gets: f64, cold: f64, histogram: &Histogram) -> Vec<(u64, f64)> {
    let mut points = vec![(0, 1.0)];
    if gets <= 0.0 {
        return points;
    }
    let misses = |hits: f64| (1.0 - hits / gets).clamp(0.0, 1.0);
    // What the samples have too little or too much: of hot keys, which need the least room.
    let mut hits = gets - cold - histogram.total();
    let mut last = 1;
    points.push((last, misses(hits)));
    for (begin, end, weight) in histogram.filled() {
        if begin > last + 1 {
            let before = points[points.len() - 1].1;
            points.push((begin - 1, before));
        }
        hits += weight;
        last = end - 1;
        if last == 1 {
            points.pop();
        }
        points.push((last, misses(hits)));
    }
    points
}
