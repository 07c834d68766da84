//! Which items are wanted.

use std::fmt;

use moneta_feed::Buckets;

use crate::moment::seconds;

/// Which items are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Those whose keys begin so.
    pub prefix: Vec<u8>,
    /// Those in these buckets of a ring of slots.
    pub buckets: Option<Buckets>,
    /// Those that have more seconds than this left to live, or live for ever.
    pub ttl_over: u32,
}

impl Which {
    /// Whether items of this key are wanted.
    pub fn has_key(&self, key: &[u8]) -> bool {
        (self.prefix.is_empty() || key.starts_with(&self.prefix)) && self.buckets.is_none_or(|buckets| buckets.has(key))
    }

    /// Whether items of some keys are not wanted.
    pub fn is_part(&self) -> bool {
        !self.prefix.is_empty() || self.buckets.is_some()
    }

    /// Whether an item lives for long enough that dies in this Unix second; 0: never.
    pub fn lives_on(&self, expiry: u32) -> bool {
        self.ttl_over == 0 || expiry == 0 || expiry > seconds().saturating_add(self.ttl_over)
    }
}

/// As words after the name of a source; nothing if all are wanted.
impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(f, " prefix {}", self.prefix.escape_ascii())?;
        }
        if let Some(buckets) = self.buckets {
            write!(f, " slots {buckets}")?;
        }
        if self.ttl_over > 0 { write!(f, " ttl over {}", self.ttl_over) } else { Ok(()) }
    }
}
