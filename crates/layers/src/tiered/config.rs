//! How two tiers work together.

/// Which reads that the lower tier answers bring their item into the upper one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// Every one.
    #[default]
    Always,
    /// Those of an item that was read before.
    SecondHit,
    /// That many in a hundred, by chance; more than 100 are 100.
    Percent(u8),
}

impl Promotion {
    /// Whether a hit is one that promotes. `fetched`: the item was read before.
    pub(super) fn wants(self, fetched: bool) -> bool {
        match self {
            Self::Always => true,
            Self::SecondHit => fetched,
            Self::Percent(percent) => fastrand::u8(0..100) < percent,
        }
    }
}

/// What a [`super::Tiered`] store is made with.
#[derive(Clone, Copy, Debug)]
pub struct TieredConfig {
    /// Which reads promote.
    pub promotion: Promotion,
    /// Bytes of items (key, value and header) that may be written to the lower tier in a day, to spare its device; `None`: any
    /// number. A write over the budget stays in the upper tier alone, and the key's older version below is dropped.
    pub write_budget: Option<u64>,
    /// Longest value, in bytes; not more than the lower tier takes.
    pub item_max: usize,
    /// Whether the store is one of several copies, as the lower tier then is.
    pub cluster: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_pick_the_reads_they_say() {
        assert!(Promotion::Always.wants(false));
        assert!(Promotion::SecondHit.wants(true) && !Promotion::SecondHit.wants(false));
        assert!((0..1000).all(|_| Promotion::Percent(100).wants(false) && !Promotion::Percent(0).wants(true)));
        let picked = (0..10_000).filter(|_| Promotion::Percent(30).wants(false)).count();
        assert!((2500..3500).contains(&picked), "{picked} of 10,000");
    }
}
