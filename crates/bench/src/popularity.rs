//! How often each key is asked for.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::weighted::Weighted;

/// How the popularity of the keys is spread.
#[derive(Debug, Clone)]
pub enum Popularity {
    /// Every key as often as every other.
    Uniform,
    /// The key of rank r is asked for in proportion to r to the power of minus theta.
    Zipf {
        /// The exponent, 0 or above.
        theta: f64,
    },
    /// One key after the other, from the first to the last and again.
    Sequential,
    /// Groups of keys of similar popularity, as CacheLib's cachebench describes a production workload.
    Groups(Arc<Groups>),
}

impl Popularity {
    /// Parses `uniform`, `sequential`, `zipf` (theta 0.99) or `zipf:THETA`.
    ///
    /// # Errors
    /// The reason, for any other text.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "0.99")) {
            ("uniform", _) => Ok(Self::Uniform),
            ("sequential", _) => Ok(Self::Sequential),
            ("zipf", theta) => match theta.parse::<f64>() {
                Ok(theta) if theta >= 0.0 && theta.is_finite() => Ok(Self::Zipf { theta }),
                _ => Err(format!("theta {theta:?} is not a number of at least 0")),
            },
            _ => Err("expected uniform, zipf[:THETA] or sequential".to_owned()),
        }
    }
}

/// Popularity given as groups: a group is drawn by weight, then a key within it uniformly.
///
/// This is the format of `popularityBuckets` and `popularityWeights` of
/// [CacheLib's cachebench](https://cachelib.org/docs/Cache_Library_User_Guides/Cachebench_FB_HW_eval/): bucket i holds so many
/// objects, which together were asked for so many times.
#[derive(Debug)]
pub struct Groups {
    choice: Weighted<Group>,
    objects: u64,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    first: u64,
    count: u64,
}

impl Groups {
    /// Groups of `(objects, weight)`, the most popular first.
    ///
    /// # Errors
    /// The reason, when no group has objects and weight.
    pub fn new(groups: impl IntoIterator<Item = (u64, f64)>) -> Result<Self, String> {
        let mut first = 0;
        let mut weighted = Vec::new();
        for (count, weight) in groups.into_iter().filter(|(count, _)| *count > 0) {
            weighted.push((Group { first, count }, weight));
            first += count;
        }
        Ok(Self { choice: Weighted::new(weighted)?, objects: first })
    }

    /// How many objects all groups hold together.
    pub fn objects(&self) -> u64 {
        self.objects
    }
}

/// Draws key numbers below `keys` for one stream of requests.
#[derive(Debug)]
pub struct Sampler {
    keys: u64,
    draw: Draw,
    scramble: Scramble,
}

#[derive(Debug)]
enum Draw {
    Uniform,
    Zipf(Zipf<f64>),
    Sequential { next: u64, step: u64 },
    Groups(Arc<Groups>),
}

impl Sampler {
    /// A sampler over `keys` keys for stream `stream` of `streams`; sequential streams take turns.
    ///
    /// # Errors
    /// The reason, when there are no keys.
    pub fn new(popularity: &Popularity, keys: u64, stream: u64, streams: u64) -> Result<Self, String> {
        if keys == 0 {
            return Err("at least one key is needed".to_owned());
        }
        let draw = match popularity {
            Popularity::Uniform => Draw::Uniform,
            Popularity::Zipf { theta } => {
                Draw::Zipf(Zipf::new(keys as f64, *theta).map_err(|error| error.to_string())?)
            }
            Popularity::Sequential => Draw::Sequential { next: stream % keys, step: streams },
            Popularity::Groups(groups) => Draw::Groups(Arc::clone(groups)),
        };
        Ok(Self { keys, draw, scramble: Scramble::new(keys) })
    }

    /// The number of the next key.
    #[inline]
    pub fn next(&mut self, random: &mut SmallRng) -> u64 {
        match &mut self.draw {
            Draw::Uniform => random.random_range(0..self.keys),
            Draw::Zipf(zipf) => {
                let rank = (zipf.sample(random) as u64).clamp(1, self.keys) - 1;
                self.scramble.apply(rank)
            }
            Draw::Sequential { next, step } => {
                let current = *next;
                *next = (current + *step) % self.keys;
                current
            }
            Draw::Groups(groups) => {
                let group = groups.choice.pick(random.random());
                let object = group.first + random.random_range(0..group.count);
                // As cachebench does it: with fewer keys than objects neighbours share one key.
                let rank = (u128::from(object) * u128::from(self.keys) / u128::from(groups.objects)) as u64;
                self.scramble.apply(rank)
            }
        }
    }
}

/// Spreads popular ranks over the key numbers, one to one, so that a fill in the order of the numbers does not write the
/// popular keys first.
#[derive(Debug)]
pub(crate) struct Scramble {
    keys: u64,
    factor: u64,
}

impl Scramble {
    /// A permutation of the numbers below `keys`, at least one.
    pub(crate) fn new(keys: u64) -> Self {
        // Any factor without a common divisor with `keys` permutes; near the golden ratio it spreads evenly.
        let mut factor = ((keys as f64 * 0.618_033_988_749_895) as u64).max(1);
        while greatest_common_divisor(factor, keys) != 1 {
            factor += 1;
        }
        Self { keys, factor }
    }

    #[inline]
    /// Where `rank` goes.
    pub(crate) fn apply(&self, rank: u64) -> u64 {
        match rank.checked_mul(self.factor) {
            Some(product) => product % self.keys,
            None => (u128::from(rank) * u128::from(self.factor) % u128::from(self.keys)) as u64,
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;

    const DRAWS: u64 = 400_000;

    fn frequencies(popularity: &Popularity, keys: u64) -> Vec<u64> {
        let mut sampler = Sampler::new(popularity, keys, 0, 1).unwrap();
        let mut random = generator(11, 0);
        let mut counts = vec![0; keys as usize];
        for _ in 0..DRAWS {
            counts[sampler.next(&mut random) as usize] += 1;
        }
        counts
    }

    /// Pearson's statistic against expected shares; cells that expect under five draws are pooled.
    fn chi_squared(counts: &[u64], shares: &[f64]) -> (f64, usize) {
        let (mut sum, mut cells, mut pool) = (0.0, 0, (0.0, 0.0));
        for (count, share) in counts.iter().zip(shares) {
            let expected = share * DRAWS as f64;
            if expected < 5.0 {
                pool = (pool.0 + *count as f64, pool.1 + expected);
                continue;
            }
            sum += (*count as f64 - expected).powi(2) / expected;
            cells += 1;
        }
        if pool.1 > 0.0 {
            sum += (pool.0 - pool.1).powi(2) / pool.1;
            cells += 1;
        }
        (sum, cells - 1)
    }

    fn assert_fits(popularity: &Popularity, shares: &[f64]) {
        let (statistic, freedom) = chi_squared(&frequencies(popularity, shares.len() as u64), shares);
        // Mean plus five standard deviations of the chi-squared distribution.
        let bound = freedom as f64 + 5.0 * (2.0 * freedom as f64).sqrt();
        assert!(statistic < bound, "{popularity:?}: {statistic} with {freedom} degrees of freedom, bound {bound}");
    }

    #[test]
    fn zipf_follows_the_analytical_distribution() {
        for theta in [0.0, 0.6, 0.99, 1.0, 1.2, 1.9] {
            for keys in [10u64, 1000] {
                let scramble = Scramble::new(keys);
                let norm: f64 = (1..=keys).map(|rank| (rank as f64).powf(-theta)).sum();
                let mut shares = vec![0.0; keys as usize];
                for rank in 0..keys {
                    shares[scramble.apply(rank) as usize] = ((rank + 1) as f64).powf(-theta) / norm;
                }
                assert_fits(&Popularity::Zipf { theta }, &shares);
            }
        }
    }

    #[test]
    fn the_fit_test_rejects_a_wrong_theta() {
        let norm: f64 = (1..=100u64).map(|rank| (rank as f64).powf(-1.0)).sum();
        let scramble = Scramble::new(100);
        let mut shares = vec![0.0; 100];
        for rank in 0..100 {
            shares[scramble.apply(rank) as usize] = 1.0 / ((rank + 1) as f64 * norm);
        }
        let counts = frequencies(&Popularity::Zipf { theta: 0.95 }, 100);
        let (statistic, freedom) = chi_squared(&counts, &shares);
        assert!(statistic > 2.0 * freedom as f64, "{statistic}");
    }

    #[test]
    fn groups_draw_each_object_by_its_groups_weight() {
        let groups = Arc::new(Groups::new([(1, 50.0), (4, 40.0), (10, 10.0)]).unwrap());
        let scramble = Scramble::new(15);
        let mut shares = vec![0.0; 15];
        for rank in 0..15 {
            shares[scramble.apply(rank) as usize] = [0.5, 0.1, 0.01][usize::from(rank >= 1) + usize::from(rank >= 5)];
        }
        assert_fits(&Popularity::Groups(groups), &shares);
    }

    #[test]
    fn sequential_streams_cover_every_key_once_a_round() {
        let mut seen = vec![0; 12];
        for stream in 0..3 {
            let mut sampler = Sampler::new(&Popularity::Sequential, 12, stream, 3).unwrap();
            let mut random = generator(0, 0);
            for _ in 0..4 {
                seen[sampler.next(&mut random) as usize] += 1;
            }
        }
        assert_eq!(seen, [1; 12]);
    }

    #[test]
    fn scrambling_is_one_to_one() {
        for keys in [1, 2, 3, 10, 97, 1000, 4096] {
            let scramble = Scramble::new(keys);
            let reached: std::collections::BTreeSet<_> = (0..keys).map(|rank| scramble.apply(rank)).collect();
            assert_eq!(reached.len() as u64, keys);
        }
    }
}
