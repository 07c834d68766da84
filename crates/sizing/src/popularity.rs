//! The curve of misses of a load of which only figures are known: items, their size, how skewed requests are, how long items live.
//!
//! Requests are taken to be independent of each other. An item is then in a cache that keeps what was used last with the probability
//! that it was asked for within the cache's characteristic time (Che, Tung, Wang: "Hierarchical Web Caching Systems", 2002).

use moneta_curve::Curve;

/// A load by its figures.
#[derive(Clone, Copy, Debug)]
pub struct Popularity {
    /// Items.
    pub items: u64,
    /// The item of rank r is asked for in proportion to r to the power of minus this; 0: all alike.
    pub theta: f64,
    /// Bytes of RAM of an item.
    pub item_bytes: f64,
    /// Gets a second, and how many seconds an item lives; `None`: for ever.
    pub lives: Option<(f64, f64)>,
}

/// Groups of items with ranks of one size each.
const GROUPS: u32 = 400;
/// Points of the curve.
const POINTS: u32 = 400;

impl Popularity {
    /// Its curve.
    pub fn curve(&self) -> Curve {
        let groups = self.groups();
        // From where the hottest item is kept for a moment to where the rarest is always.
        let (fastest, slowest) = (groups[0].1, groups[groups.len() - 1].1);
        let (first, last) = (0.01 / fastest, 50.0 / slowest);
        let mut curve = Curve { gets: 1.0, cold: 0.0, by_objects: vec![(0, 1.0)], by_bytes: vec![(0, 1.0)] };
        for point in 0..=POINTS {
            let time = first * (last / first).powf(f64::from(point) / f64::from(POINTS));
            let (mut objects, mut hits) = (0.0, 0.0);
            for &(items, share) in &groups {
                let kept = self.kept(share, time);
                objects += items * kept;
                hits += items * share * kept;
            }
            let misses = 1.0 - hits;
            for (points, room) in [(&mut curve.by_objects, objects), (&mut curve.by_bytes, objects * self.item_bytes)] {
                let room = room.ceil() as u64;
                if points.last().is_some_and(|(before, _)| *before < room) {
                    points.push((room, misses));
                }
            }
        }
        curve.cold = curve.floor();
        curve
    }

    /// The share of time, and so of gets, in which an item is there that has this share of the gets; `time` is counted in gets.
    fn kept(&self, share: f64, time: f64) -> f64 {
        let kept = -(-share * time).exp_m1();
        let Some((rate, seconds)) = self.lives else { return kept };
        // It comes with a miss and goes after a time: in between it is asked for so often.
        let asked = share * rate * seconds;
        kept.min(asked / (1.0 + asked))
    }

    /// Numbers of items, and the share of all gets that each of them has; the hottest first.
    fn groups(&self) -> Vec<(f64, f64)> {
        let items = self.items.max(1) as f64;
        let ends = (0..=GROUPS).map(|group| items.powf(f64::from(group) / f64::from(GROUPS)).round());
        let mut groups = vec![(1.0, 1.0)];
        let mut begin = 1.0;
        for end in ends.filter(|end| *end > 1.0) {
            if end > begin {
                let middle = ((begin + 1.0) * end).sqrt();
                groups.push((end - begin, middle.powf(-self.theta)));
                begin = end;
            }
        }
        let all: f64 = groups.iter().map(|(items, weight)| items * weight).sum();
        groups.into_iter().map(|(items, weight)| (items, weight / all)).collect()
    }
}

#[cfg(test)]
mod tests {
    use moneta_curve::Room;

    use super::*;

    #[test]
    fn uniform_requests_hit_what_there_is_room_for() {
        let curve = Popularity { items: 1_000_000, theta: 0.0, item_bytes: 100.0, lives: None }.curve();
        for part in [0.1, 0.5, 0.9] {
            let misses = curve.miss_ratio(Room::Bytes((part * 1e8) as u64));
            assert!((misses - (1.0 - part)).abs() < 0.01, "{part}: {misses}");
        }
        assert!(curve.floor() < 1e-6);
    }

    #[test]
    fn an_item_that_lives_for_as_long_as_it_takes_to_be_asked_for_once_is_there_half_of_the_time() {
        let lives = Some((1000.0, 1000.0));
        let curve = Popularity { items: 1_000_000, theta: 0.0, item_bytes: 100.0, lives }.curve();
        assert!((curve.floor() - 0.5).abs() < 1e-6, "{}", curve.floor());
        assert!(curve.by_objects.last().unwrap().0.abs_diff(500_000) < 10);
    }
}
