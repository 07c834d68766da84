//! A circle of 2³² places with points on it: a place belongs to the next point at or after it.

/// The points of a ring, by place.
///
/// A search by halves over all of them would miss the processor's caches a dozen times. `starts` leads to the few points that
/// share the hash's leading bits.
#[derive(Clone, Debug)]
pub(super) struct Points {
    /// Where each point lies, ascending, no two on one place.
    places: Box<[u32]>,
    /// Whose each point is: an index among the ring's nodes.
    owners: Box<[u16]>,
    /// For each value of a place's leading bits the first point that has them or greater ones; and the number of points.
    starts: Box<[u32]>,
    /// Bits of a place that are none of the leading ones.
    shift: u32,
}

/// What becomes of two points on one place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clash {
    /// The one that was placed first stays.
    First,
    /// The one that was placed last stays.
    Last,
}

impl Points {
    /// The circle of `points`, which are places and owners in the order in which they were placed. At least one.
    pub(super) fn of(points: Vec<(u32, u16)>, clash: Clash) -> Self {
        let mut points = points;
        if clash == Clash::Last {
            points.reverse();
        }
        points.sort_by_key(|&(place, _)| place);
        points.dedup_by_key(|&mut (place, _)| place);

        // Between one and two values of the leading bits for a point.
        let bits = (points.len().next_power_of_two().trailing_zeros() + 1).min(24);
        let shift = 32 - bits;
        let places: Box<[u32]> = points.iter().map(|&(place, _)| place).collect();
        let starts = (0..1u64 << bits)
            .map(|leading| places.partition_point(|&place| u64::from(place) < leading << shift) as u32)
            .chain([places.len() as u32])
            .collect();
        Self { places, owners: points.iter().map(|&(_, owner)| owner).collect(), starts, shift }
    }

    /// Where the points lie: the last places of what each has.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.places.iter().copied()
    }

    /// The owner of the place `hash`.
    #[inline]
    pub(super) fn owner(&self, hash: u32) -> usize {
        let leading = (hash >> self.shift) as usize;
        let mut at = self.starts[leading] as usize;
        let end = self.starts[leading + 1] as usize;
        while at < end && self.places[at] < hash {
            at += 1;
        }
        // After the last point comes the first.
        usize::from(if at == self.owners.len() { self.owners[0] } else { self.owners[at] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_belongs_to_the_next_point_and_after_the_last_to_the_first() {
        let points = Points::of(vec![(u32::MAX - 1, 2), (10, 0), (20, 1)], Clash::First);
        for (hash, owner) in [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (u32::MAX - 1, 2), (u32::MAX, 0)] {
            assert_eq!(points.owner(hash), owner, "{hash}");
        }
        let one = Points::of(vec![(5, 0)], Clash::First);
        assert_eq!((one.owner(0), one.owner(5), one.owner(u32::MAX)), (0, 0, 0));
    }

    #[test]
    fn two_points_on_one_place_leave_the_one_that_was_asked_for() {
        let points = vec![(10, 0), (10, 1), (10, 2)];
        assert_eq!(Points::of(points.clone(), Clash::First).owner(3), 0);
        assert_eq!(Points::of(points, Clash::Last).owner(3), 2);
    }

    #[test]
    fn the_short_way_finds_what_a_search_over_all_points_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in [1, 2, 3, 160, 1000, 16000] {
            // Half of them close together, so that many share their leading bits.
            let points: Vec<(u32, u16)> = (0..count)
                .map(|owner| (if owner % 2 == 0 { random.u32(..) } else { random.u32(..1 << 16) }, owner))
                .collect();
            let circle = Points::of(points, Clash::First);
            for _ in 0..5000 {
                let hash = if random.bool() { random.u32(..) } else { random.u32(..1 << 16) };
                let at = circle.places.partition_point(|&place| place < hash) % circle.places.len();
                assert_eq!(circle.owner(hash), usize::from(circle.owners[at]), "{hash} of {count}");
            }
        }
    }
}
