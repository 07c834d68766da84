//! The operations a load can be mixed from.

use serde::Serialize;

use crate::keys::KeySpace;
use crate::weighted::{Weighted, parse_weighted};

/// One cache command, independent of the protocol that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are memcached's own")]
pub enum Operation {
    Get,
    Gets,
    Gat,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
    Touch,
}

impl Operation {
    /// Every operation, in the order reports list them.
    pub const ALL: [Self; 12] = [
        Self::Get,
        Self::Gets,
        Self::Gat,
        Self::Set,
        Self::Add,
        Self::Replace,
        Self::Append,
        Self::Prepend,
        Self::Delete,
        Self::Incr,
        Self::Decr,
        Self::Touch,
    ];

    /// The command's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Gets => "gets",
            Self::Gat => "gat",
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Delete => "delete",
            Self::Incr => "incr",
            Self::Decr => "decr",
            Self::Touch => "touch",
        }
    }

    /// Whether a hit brings the value.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Gets | Self::Gat)
    }

    /// Whether the command carries a value.
    pub const fn stores(self) -> bool {
        matches!(self, Self::Set | Self::Add | Self::Replace | Self::Append | Self::Prepend)
    }

    /// The keys the operation works on: those that change a value in place stay off the keys whose values are verified.
    pub const fn key_space(self) -> KeySpace {
        match self {
            Self::Incr | Self::Decr => KeySpace::Counter,
            Self::Append | Self::Prepend => KeySpace::Growing,
            _ => KeySpace::Value,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|operation| operation.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|operation| operation.name()).collect();
            format!("{text:?} is none of {}", names.join(", "))
        })
    }
}

/// Parses an operation mix such as `get=90,set=10`.
///
/// # Errors
/// The reason, naming the part that cannot be read.
pub fn parse_mix(text: &str) -> Result<Weighted<Operation>, String> {
    parse_weighted(text, Operation::parse)
}
