//! A discrete distribution driven by given random bits, so that a choice can be a pure function of a key.

use crate::random::unit;

/// Items with weights; picking costs a binary search over them.
#[derive(Debug, Clone)]
pub struct Weighted<T> {
    items: Vec<T>,
    cumulative: Vec<f64>,
}

impl<T> Weighted<T> {
    /// A distribution that always gives `item`.
    pub fn only(item: T) -> Self {
        Self { items: vec![item], cumulative: vec![1.0] }
    }

    /// A distribution over `items` with weights that need not sum to one.
    ///
    /// Items of weight zero are left out.
    ///
    /// # Errors
    /// A reason, when a weight is negative or not a number, or none is positive.
    pub fn new(items: impl IntoIterator<Item = (T, f64)>) -> Result<Self, String> {
        let mut kept = Vec::new();
        let mut cumulative = Vec::new();
        let mut sum = 0.0;
        for (item, weight) in items {
            if !weight.is_finite() || weight < 0.0 {
                return Err(format!("weight {weight} is not a number of at least 0"));
            }
            if weight > 0.0 {
                sum += weight;
                kept.push(item);
                cumulative.push(sum);
            }
        }
        if kept.is_empty() {
            return Err("no item has a weight above 0".to_owned());
        }
        cumulative.iter_mut().for_each(|bound| *bound /= sum);
        Ok(Self { items: kept, cumulative })
    }

    /// The item that 64 uniform random bits choose.
    #[inline]
    pub fn pick(&self, random: u64) -> &T {
        if self.items.len() == 1 {
            return &self.items[0];
        }
        let point = unit(random);
        let index = self.cumulative.partition_point(|bound| *bound <= point);
        &self.items[index.min(self.items.len() - 1)]
    }

    /// The items, each with its share of the whole.
    pub fn shares(&self) -> impl Iterator<Item = (&T, f64)> {
        let lower = std::iter::once(0.0).chain(self.cumulative.iter().copied());
        self.items.iter().zip(self.cumulative.iter().zip(lower)).map(|(item, (upper, lower))| (item, upper - lower))
    }
}

/// Parses `item:weight,item:weight`, or a single `item`.
///
/// # Errors
/// A reason that names the part that cannot be read.
pub fn parse_weighted<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Weighted<T>, String> {
    let mut items = Vec::new();
    for part in text.split(',') {
        let (item, weight) = match part.split_once([':', '=']) {
            Some((item, weight)) => {
                let weight: f64 = weight.trim().parse().map_err(|_| format!("{weight:?} is not a weight"))?;
                (item, weight)
            }
            None => (part, 1.0),
        };
        items.push((parse(item.trim())?, weight));
    }
    Weighted::new(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn picks_follow_the_weights() {
        let weighted =
            parse_weighted("0:50,60:30,3600:20", |text| text.parse::<u32>().map_err(|e| e.to_string())).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for index in 0..100_000 {
            *counts.entry(*weighted.pick(mix(index))).or_insert(0u32) += 1;
        }
        // Four standard deviations of a binomial with n = 100,000 are below 640.
        for (item, expected) in [(0, 50_000u32), (60, 30_000), (3600, 20_000)] {
            assert!(counts[&item].abs_diff(expected) < 640, "{item}: {}", counts[&item]);
        }
    }

    #[test]
    fn shares_sum_to_one_and_skip_weight_zero() {
        let weighted = parse_weighted("a=3,b=0,c=1", |text| Ok(text.to_owned())).unwrap();
        let shares: Vec<_> = weighted.shares().map(|(item, share)| (item.as_str(), share)).collect();
        assert_eq!(shares, [("a", 0.75), ("c", 0.25)]);
    }

    #[test]
    fn refuses_weights_that_are_none() {
        assert!(parse_weighted("1:-2", |_| Ok(())).is_err());
        assert!(parse_weighted("1:0", |_| Ok(())).is_err());
        assert!(parse_weighted("1:x", |_| Ok(())).is_err());
    }
}
