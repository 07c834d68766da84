//! What a server understands.

use std::str::FromStr;

/// The protocol spoken on a connection, for its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `mg`, `ms` and their kin (memcached 1.6, Moneta): everything of an item in one reply.
    Meta,
    /// The binary protocol: any key, CAS values of writes, but nothing of expiration times.
    Binary,
    /// Classic text: understood by everything, tells least.
    Text,
}

impl Protocol {
    /// Its name in options and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Binary => "binary",
            Self::Text => "text",
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Meta, Self::Binary, Self::Text]
            .into_iter()
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| format!("\"{text}\" is none of meta, binary, text"))
    }
}

/// The protocol and what of it the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The protocol.
    pub protocol: Protocol,
    /// Meta `E`: the client may choose an item's CAS value.
    pub explicit_cas: bool,
    /// The server has granted that expiration times beyond 2038 are taken as they are on this connection, as Moneta does when
    /// asked; else what a line names and 31 bits do not hold is expired at once.
    pub wide_times: bool,
    /// The server has said that it knows versions: it takes writes, deletes and flushes by version, and shows versions.
    pub versions: bool,
}

impl Dialect {
    /// The least that every server of `protocol` understands.
    pub fn least(protocol: Protocol) -> Self {
        Self { protocol, explicit_cas: false, wide_times: false, versions: false }
    }
}
