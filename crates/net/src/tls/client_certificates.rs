//! What clients show of themselves.

use std::fmt;
use std::str::FromStr;

/// What clients show of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientCertificates {
    /// Nothing is asked.
    #[default]
    None,
    /// They are asked for a certificate and need not have one; one that is shown must hold.
    Ask,
    /// Without a certificate that holds, the handshake fails.
    Require,
}

impl ClientCertificates {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Ask, Self::Require];
}

impl FromStr for ClientCertificates {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "ask" => Ok(Self::Ask),
            "require" => Ok(Self::Require),
            _ => Err("one of none, ask, require is wanted"),
        }
    }
}

impl fmt::Display for ClientCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Ask => "ask",
            Self::Require => "require",
        })
    }
}
