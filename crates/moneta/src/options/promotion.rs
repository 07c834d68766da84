//! Which hits on SSD bring their item into RAM.

use std::fmt;

use crate::options::value::percent;

/// The policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Every hit.
    Always,
    /// The second hit of an item.
    Second,
    /// That share of the hits, in percent, drawn by chance.
    Percent(u8),
}

impl Promotion {
    /// Reads `always`, `second` or a share with its sign: a number alone could be meant as a count of hits.
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "second" => Some(Self::Second),
            _ => text.ends_with('%').then(|| percent(text).map(Self::Percent))?,
        }
    }
}

impl fmt::Display for Promotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => write!(f, "always"),
            Self::Second => write!(f, "second"),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Promotion;

    #[test]
    fn a_share_needs_its_sign() {
        assert_eq!(Promotion::read("25%"), Some(Promotion::Percent(25)));
        assert_eq!(Promotion::read("0%"), Some(Promotion::Percent(0)));
        for text in ["2", "25", "101%", "%", "sometimes", ""] {
            assert_eq!(Promotion::read(text), None, "{text}");
        }
    }
}
