//! What a run found.

use std::collections::BTreeMap;

use moneta_client::wire::Seen;
use serde::Serialize;

use crate::comparison::Sight;
use moneta_store::escape::escape_key;

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One server.
    pub a: Endpoint,
    /// The other.
    pub b: Endpoint,
    /// How it ended.
    pub conclusion: Conclusion,
    /// Why it did not come to its end; the rest of the report is what it had by then.
    pub incomplete: Option<String>,
    /// Whether both servers tell expiration times, and they were to be compared.
    pub expiry_compared: bool,
    /// How many keys of which kind.
    pub counts: Counts,
    /// Some keys of each kind.
    pub examples: BTreeMap<Kind, Vec<Example>>,
    /// How long it took.
    pub seconds: f64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// All keys are equal, or are now that they were repaired.
    Equal,
    /// Some differ.
    Different,
    /// Not all keys could be compared.
    Incomplete,
}

/// A server, or a copy of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Where it listens; a copy's name.
    pub address: String,
    /// How many servers it has.
    pub nodes: usize,
    /// The version it says it is, or its servers say they are; empty if it does not.
    pub version: String,
    /// The protocol spoken with it, the poorest of several: `meta`, `binary` or `text`.
    pub protocol: &'static str,
}

/// Numbers of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Listed by A, those outside the sample included.
    pub walked_a: u64,
    /// Listed by B, those outside the sample included.
    pub walked_b: u64,
    /// Listed by a node of a copy that its ring does not name for them: no reader finds them there, and they were not compared.
    pub strays: u64,
    /// Looked at on both sides.
    pub compared: u64,
    /// Listed by B and looked for in A.
    pub looked_for: u64,
    /// Of those compared, equal.
    pub equal: u64,
    /// Different in any way: each key once.
    pub different: u64,
    /// Only A has it.
    pub only_in_a: u64,
    /// Only B has it.
    pub only_in_b: u64,
    /// Both have it, with different values.
    pub value: u64,
    /// Both have it, with different flags.
    pub flags: u64,
    /// Both have it, and expire it at different times.
    pub expiry: u64,
    /// Of the different ones that both sides have, the version of A is the newer one.
    pub newer_in_a: u64,
    /// The version of B is.
    pub newer_in_b: u64,
    /// Both have it under one version, with different contents.
    pub same_version: u64,
    /// Could not be compared.
    pub errors: u64,
    /// Gone from both sides by the time they were looked at, or about to expire on the only side that has it.
    pub gone: u64,
    /// Changed whenever they were looked at, and were not equal then.
    pub changing: u64,
    /// Looked different when the run was broken off.
    pub undecided: u64,
    /// Written to the other side, equal then, and still so at the end of the run.
    pub repaired: u64,
    /// Different still, although repairs were asked for.
    pub unrepaired: u64,
}

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only A has it.
    OnlyInA,
    /// Only B has it.
    OnlyInB,
    /// Values differ.
    Value,
    /// Flags differ.
    Flags,
    /// Expiration times differ.
    Expiry,
    /// It could not be compared.
    Errors,
    /// It could not be repaired.
    Unrepaired,
}

/// A key of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The key, percent-encoded where it is not visible ASCII.
    pub key: String,
    /// What A has; nothing for a key that it does not have or could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<Sighting>,
    /// What B has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Sighting>,
    /// Offset of the first byte in which the values differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs_at: Option<usize>,
    /// Why it could not be compared or repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An item, but for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sighting {
    /// Length of the value in bytes.
    pub size: usize,
    /// Client flags.
    pub flags: u32,
    /// Seconds left to live, -1 for ever; `None` where the server does not tell.
    pub ttl: Option<i64>,
}

impl Example {
    /// A key with what both sides had.
    pub(crate) fn of_items(key: &[u8], a: &Sight, b: &Sight) -> Self {
        let sighting = |sight: &Sight| match sight {
            Sight::Item(Seen { size, flags, ttl, .. }) => Some(Sighting { size: *size, flags: *flags, ttl: *ttl }),
            Sight::Nothing | Sight::Trouble(_) => None,
        };
        let differs_at = match (a, b) {
            (Sight::Item(a), Sight::Item(b)) => first_difference(&a.value, &b.value),
            _ => None,
        };
        Self { key: escape_key(key), a: sighting(a), b: sighting(b), differs_at, reason: None }
    }

    /// A key and why something could not be done with it.
    pub(crate) fn of_reason(key: &[u8], reason: String) -> Self {
        Self { key: escape_key(key), a: None, b: None, differs_at: None, reason: Some(reason) }
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

impl Counts {
    /// The number that goes with a kind.
    pub(crate) fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::OnlyInA => &mut self.only_in_a,
            Kind::OnlyInB => &mut self.only_in_b,
            Kind::Value => &mut self.value,
            Kind::Flags => &mut self.flags,
            Kind::Expiry => &mut self.expiry,
            Kind::Errors => &mut self.errors,
            Kind::Unrepaired => &mut self.unrepaired,
        }
    }

    /// How a run with these counts ended; `incomplete`: before its end.
    pub(crate) fn conclusion(&self, incomplete: bool, repairs: bool) -> Conclusion {
        let left = if repairs { self.unrepaired } else { self.different };
        if incomplete || self.errors > 0 {
            Conclusion::Incomplete
        } else if left > 0 {
            Conclusion::Different
        } else {
            Conclusion::Equal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_is_found() {
        assert_eq!(first_difference(b"", b""), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"abcd"), Some(3));
        assert_eq!(first_difference(b"x", b""), Some(0));
    }

    #[test]
    fn the_conclusion_follows_from_the_counts() {
        let counts = Counts { different: 2, repaired: 2, ..Counts::default() };
        assert_eq!(counts.conclusion(false, true), Conclusion::Equal);
        assert_eq!(counts.conclusion(false, false), Conclusion::Different);
        assert_eq!(counts.conclusion(true, false), Conclusion::Incomplete);
        let counts = Counts { unrepaired: 1, ..counts };
        assert_eq!(counts.conclusion(false, true), Conclusion::Different);
        assert_eq!(Counts { errors: 1, ..counts }.conclusion(false, true), Conclusion::Incomplete);
        assert_eq!(Counts { changing: 1, gone: 1, ..Counts::default() }.conclusion(false, false), Conclusion::Equal);
    }
}
