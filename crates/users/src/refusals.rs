//! What users were refused, counted by user: of a bounded number of names.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::rights::Right;

/// Names that are counted by themselves; the refusals of all others are counted together.
const NAMES: usize = 64;
/// The name under which those are.
const OTHERS: &str = "others";

/// Refusals since the start, by user and right.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    // Taken for refusals only, for an addition.
    by_name: Mutex<BTreeMap<Box<str>, [u64; Right::ALL.len()]>>,
}

impl Refusals {
    /// Counts one.
    pub(crate) fn count(&self, user: &str, right: Right) {
        let mut by_name = self.by_name.lock();
        let name = if by_name.len() < NAMES || by_name.contains_key(user) { user } else { OTHERS };
        match by_name.get_mut(name) {
            Some(counts) => counts[right as usize] += 1,
            None => {
                let mut counts = [0; Right::ALL.len()];
                counts[right as usize] = 1;
                by_name.insert(name.into(), counts);
            }
        }
    }

    /// Those that are not 0: user, right, count.
    pub(crate) fn all(&self) -> Vec<(String, Right, u64)> {
        let by_name = self.by_name.lock();
        let each = by_name.iter().flat_map(|(name, counts)| {
            Right::ALL.into_iter().zip(counts).map(move |(right, count)| (name.to_string(), right, *count))
        });
        each.filter(|(_, _, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_themselves_up_to_a_number() {
        let refusals = Refusals::default();
        for number in 0..1000 {
            refusals.count(&format!("user-{number}"), Right::Write);
        }
        refusals.count("user-1", Right::Write);
        let all = refusals.all();
        assert_eq!(all.len(), NAMES + 1);
        assert!(all.contains(&("user-1".into(), Right::Write, 2)));
        assert!(all.contains(&(OTHERS.into(), Right::Write, 1000 - NAMES as u64)));
    }
}
