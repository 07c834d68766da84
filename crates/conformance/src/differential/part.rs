//! What a reply is cut into to be compared.

use std::fmt;

use super::stream::printable;

/// A reply, or a part of one, in the form that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Must be equal byte for byte.
    Exact(Vec<u8>),
    /// A CAS value; each server counts its own.
    Cas(u64),
    /// Seconds; may differ by one, by two if they are left of an absolute expiration time.
    Seconds(i64),
    /// Each server has its own; only that it is there is compared.
    Own,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(bytes) => write!(formatter, "{}", printable(bytes)),
            Self::Cas(value) => write!(formatter, "<cas {value}>"),
            Self::Seconds(seconds) => write!(formatter, "<{seconds} s>"),
            Self::Own => formatter.write_str("<its own>"),
        }
    }
}
