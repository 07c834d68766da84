//! A share of the keys: one of so many equal ranges of the buckets of a ring of slots. All nodes of a copy divide keys so, whatever
//! ring places them, so any copy can be read for a share.

use std::fmt;
use std::str::FromStr;

use moneta_feed::Buckets;

/// Most shares.
pub const SHARES_MAX: u16 = 64;
/// Buckets of a ring of slots.
const BUCKETS: u32 = 1 << 16;

/// One of several shares, as text `NUMBER/OF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// From 1 on.
    pub number: u16,
    /// How many there are, up to [`SHARES_MAX`].
    pub of: u16,
}

impl Share {
    /// All keys.
    pub const ALL: Self = Self { number: 1, of: 1 };

    /// Whether there are others.
    pub fn is_all(self) -> bool {
        self.of == 1
    }

    /// Its buckets; `None`: all of them.
    pub fn buckets(self) -> Option<Buckets> {
        let edge = |number: u16| u32::from(number) * BUCKETS / u32::from(self.of.max(1));
        let text = format!("{}-{}", edge(self.number - 1), edge(self.number) - 1);
        if self.is_all() { None } else { text.parse().ok() }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The text is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no share: NUMBER/OF, as 1/3, of at most {SHARES_MAX}")]
pub struct NoShare;

impl FromStr for Share {
    type Err = NoShare;

    fn from_str(text: &str) -> Result<Self, NoShare> {
        let (number, of) = text.split_once('/').ok_or(NoShare)?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let (number, of): (u16, u16) = (plain(number).ok_or(NoShare)?, plain(of).ok_or(NoShare)?);
        if (1..=of).contains(&number) && of <= SHARES_MAX { Ok(Self { number, of }) } else { Err(NoShare) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_one_share() {
        for of in [1, 2, 3, 7, SHARES_MAX] {
            let shares: Vec<Share> = (1..=of).map(|number| Share { number, of }).collect();
            for key in 0..500u32 {
                let key = key.to_le_bytes();
                let has = |share: &&Share| share.buckets().is_none_or(|buckets| buckets.has(&key));
                assert_eq!(shares.iter().filter(has).count(), 1, "of {of}");
            }
            assert!(shares.iter().all(|share| share.to_string().parse() == Ok(*share)));
        }
        for wrong in ["", "0/3", "4/3", "1/0", "1/65", "1", "+1/3", "1/3/3", "a/b"] {
            assert_eq!(wrong.parse::<Share>(), Err(NoShare), "{wrong}");
        }
    }
}
