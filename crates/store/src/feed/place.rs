//! Where a reader of a feed is.

use std::fmt;
use std::str::FromStr;

/// A place in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedPlace {
    /// Of the feed: another where it begins anew.
    pub incarnation: u64,
    /// Grows with what is before it.
    pub position: u64,
    /// Behind the last gap that was told, as a position; 0: none was.
    pub told: u64,
}

/// As the cursors of readers.
impl fmt::Display for FeedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.incarnation, self.position)?;
        if self.told == 0 { Ok(()) } else { write!(f, "-{}", self.told) }
    }
}

/// The text is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor of a feed")]
pub struct NoPlace;

impl FromStr for FeedPlace {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let mut parts = text.split('-');
        let incarnation = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or(NoPlace)?;
        let position = parts.next().and_then(|part| part.parse().ok()).ok_or(NoPlace)?;
        let told = parts.next().map_or(Ok(0), |part| part.parse().map_err(|_| NoPlace))?;
        if parts.next().is_some() { Err(NoPlace) } else { Ok(Self { incarnation, position, told }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_from_its_text() {
        for place in [
            FeedPlace { incarnation: u64::MAX, position: 0, told: 0 },
            FeedPlace { incarnation: 7, position: u64::MAX, told: 12 },
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "7", "7-", "x-1", "7-1-", "7-1-2-3", "7-1-x", "-7-1"] {
            assert_eq!(wrong.parse::<FeedPlace>(), Err(NoPlace), "{wrong}");
        }
    }
}
