//! Paired rounds: both servers run one after the other in each round, so the ratio within a round is free of slow drift.

use serde::Serialize;

use crate::table::median;

/// How sure the interval is.
const CONFIDENCE: f64 = 0.95;

/// The ratios B/A of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paired {
    /// Their median.
    pub median: f64,
    /// A 95 % confidence interval of the median, from order statistics (the sign test turned round), so no distribution is assumed.
    /// None below 6 rounds, where the extremes are not 95 % sure either.
    pub interval: Option<[f64; 2]>,
}

impl Paired {
    /// From one ratio a round; none without rounds.
    pub(super) fn new(mut ratios: Vec<f64>) -> Option<Self> {
        ratios.sort_by(f64::total_cmp);
        let interval = outside(ratios.len()).map(|left| [ratios[left], ratios[ratios.len() - 1 - left]]);
        Some(Self { median: median(ratios)?, interval })
    }
}

/// How many of `count` sorted values lie below the interval, and as many above it: the most for which the chance that the true
/// median lies outside, twice the binomial tail P(X ≤ left) with p = 1/2, stays within 5 %.
fn outside(count: usize) -> Option<usize> {
    let mut chance = 0.5_f64.powi(count as i32);
    let mut tail = 0.0;
    let mut left = None;
    for below in 0..count / 2 {
        tail += chance;
        if 2.0 * tail > 1.0 - CONFIDENCE {
            break;
        }
        left = Some(below);
        chance *= (count - below) as f64 / (below + 1) as f64;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_leaves_out_as_many_as_the_tables_of_the_sign_test_say() {
        // Critical values of the two-sided sign test at 5 %.
        for (count, left) in [
            (0, None),
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (20, Some(5)),
            (50, Some(17)),
        ] {
            assert_eq!(outside(count), left, "{count}");
        }
        assert_eq!(outside(1000), Some(468));
    }

    #[test]
    fn twenty_rounds_give_the_sixth_from_either_end() {
        let ratios: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(Paired::new(ratios), Some(Paired { median: 10.5, interval: Some([6.0, 15.0]) }));
    }

    #[test]
    fn few_rounds_have_a_median_alone() {
        assert_eq!(Paired::new(vec![1.0, 3.0, 2.0]), Some(Paired { median: 2.0, interval: None }));
        assert_eq!(Paired::new(vec![]), None);
    }
}
