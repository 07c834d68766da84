//! Which engine a tier has, as an operator writes it.

use std::fmt;

use moneta_remote::Address;

/// What an operator may write for a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierChoice {
    /// Whichever engine has a place of its own to keep items.
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
    /// A server of its own that speaks a memcached protocol.
    Remote(Address),
}

/// What stands before a peer's address.
const REMOTE: &str = "remote:";

/// Reads what a tier is to be, if it is one of `words` or, as every tier may be, a remote server.
pub fn read(text: &str, words: &[&str]) -> Option<TierChoice> {
    if let Some(address) = text.strip_prefix(REMOTE) {
        return address.trim().parse().ok().map(TierChoice::Remote);
    }
    if !words.contains(&text) {
        return None;
    }
    Some(match text {
        "auto" => TierChoice::Auto,
        "none" => TierChoice::None,
        "memory" => TierChoice::Memory,
        "flash" => TierChoice::Flash,
        "rocks" => TierChoice::Rocks,
        "lmdb" => TierChoice::Lmdb,
        _ => return None,
    })
}

/// What may be written, as the end of the sentence "it must be ...".
pub fn range(words: &[&str]) -> String {
    format!(
        "one of {}, or remote: with the address of a server, as remote:127.0.0.1:11311 or remote:/run/memcached.sock",
        words.join(", ")
    )
}

impl fmt::Display for TierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Memory => "memory",
            Self::Flash => "flash",
            Self::Rocks => "rocks",
            Self::Lmdb => "lmdb",
            Self::Remote(address) => return write!(f, "{REMOTE}{address}"),
        };
        f.write_str(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] = &["memory", "none"];

    #[test]
    fn a_tier_is_one_of_its_words_or_remote() {
        assert_eq!(read("memory", WORDS), Some(TierChoice::Memory));
        assert_eq!(read("flash", WORDS), None);
        for text in ["remote:127.0.0.1:11311", "remote:[::1]:11311", "remote:cache.example:1", "remote:/run/l1.sock"] {
            assert_eq!(read(text, WORDS).map(|tier| tier.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_remote_needs_an_address_that_can_be_dialled() {
        for text in ["remote", "remote:", "remote:localhost", "remote:127.0.0.1:0"] {
            assert_eq!(read(text, WORDS), None, "{text}");
        }
    }
}
