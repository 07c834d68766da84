//! Which engine a tier has, as an operator writes it.

use std::fmt;

use moneta_net::Address;
use moneta_options::kinds::Kind;

/// What an operator may write for a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierChoice {
    /// The engine that is given a place, or none.
    Auto,
    /// No such tier.
    None,
    /// RAM of this process.
    Memory,
    /// Regions on SSD.
    Flash,
    /// RocksDB.
    Rocks,
    /// LMDB.
    Lmdb,
    /// A server in another process that speaks a memcached protocol.
    Remote(Address),
}

impl TierChoice {
    /// The choices that are a word.
    const BY_WORD: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("none", Self::None),
        ("memory", Self::Memory),
        ("flash", Self::Flash),
        ("rocks", Self::Rocks),
        ("lmdb", Self::Lmdb),
    ];
}

/// What stands before a peer's address.
const REMOTE: &str = "remote:";

/// Which engine a tier has: one of a few words, or a remote server, which every tier may be.
pub struct Tier(pub &'static [&'static str]);

impl Kind for Tier {
    type Value = TierChoice;

    fn read(&self, text: &str) -> Option<TierChoice> {
        if let Some(address) = text.strip_prefix(REMOTE) {
            return address.trim().parse().ok().map(TierChoice::Remote);
        }
        let choice = TierChoice::BY_WORD.iter().find(|(word, _)| *word == text).map(|(_, choice)| choice.clone());
        choice.filter(|_| self.0.contains(&text))
    }

    fn write(&self, choice: &TierChoice) -> String {
        choice.to_string()
    }

    fn range(&self) -> String {
        format!(
            "one of {}, or remote: with the address of a server, as remote:127.0.0.1:11311 or remote:/run/memcached.sock",
            self.0.join(", ")
        )
    }

    fn placeholder(&self) -> String {
        format!("{}|remote:ADDRESS", self.0.join("|"))
    }
}

impl fmt::Display for TierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => write!(f, "{REMOTE}{address}"),
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Memory => f.write_str("memory"),
            Self::Flash => f.write_str("flash"),
            Self::Rocks => f.write_str("rocks"),
            Self::Lmdb => f.write_str("lmdb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPPER: Tier = Tier(&["memory", "none"]);

    #[test]
    fn a_tier_is_one_of_its_words_or_remote() {
        assert_eq!(UPPER.read("memory"), Some(TierChoice::Memory));
        assert_eq!(UPPER.read("flash"), None);
        for text in ["remote:127.0.0.1:11311", "remote:[::1]:11311", "remote:cache.example:1", "remote:/run/l1.sock"] {
            assert_eq!(UPPER.read(text).map(|tier| tier.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_remote_needs_an_address_that_can_be_dialled() {
        for text in ["remote", "remote:", "remote:localhost", "remote:127.0.0.1:0"] {
            assert_eq!(UPPER.read(text), None, "{text}");
        }
    }
}
