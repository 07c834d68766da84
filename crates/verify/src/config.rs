//! What to compare, and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use moneta_client::wire::Protocol;
use moneta_net::Outward;
use moneta_store::KeyHash;

use crate::error::{Side, VerifyError};
use crate::place::ComparedPlace;

/// Where the keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Both servers list theirs (`lru_crawler metadump all`).
    Walked,
    /// A file with a key a line, or what a server answered to `lru_crawler metadump` or `mgdump`. Nothing is walked, so keys
    /// that are not in the file are not looked for.
    File(PathBuf),
    /// The same from standard input.
    Stdin,
}

/// Which side is made like the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A is right: B is written.
    AToB,
    /// B is right: A is written.
    BToA,
    /// Of each key the newer version is right, and the side that lacks it is written. Both servers must know versions.
    Newer,
}

impl Direction {
    /// The side that is read; `None` if each key has its own.
    pub fn source(self) -> Option<Side> {
        match self {
            Self::AToB => Some(Side::A),
            Self::BToA => Some(Side::B),
            Self::Newer => None,
        }
    }

    /// The side that is written; `None` if each key has its own.
    pub fn target(self) -> Option<Side> {
        self.source().map(Side::other)
    }
}

/// What to do about differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Which side is made like the other.
    pub direction: Direction,
    /// Delete what only the target has.
    pub delete_extra: bool,
}

type Wants = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Which keys are compared.
#[derive(Clone)]
pub struct KeyFilter(Arc<Wants>);

impl KeyFilter {
    /// Those for which `wants` holds.
    pub fn of(wants: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(wants))
    }
}

impl fmt::Debug for KeyFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a filter of keys")
    }
}

/// What [`crate::Verify`] is told.
#[derive(Clone, Debug)]
pub struct VerifyConfig {
    /// One side.
    pub a: ComparedPlace,
    /// The other.
    pub b: ComparedPlace,
    /// Where the keys come from.
    pub keys: Keys,
    /// Only these keys; `None`: all.
    pub only: Option<KeyFilter>,
    /// Share of the keys that is compared, above 0 and up to 1. A key's hash decides, so both sides' walks choose the same.
    pub share: f64,
    /// Compare only so many keys: the first of each walk, or of the file.
    pub first: Option<u64>,
    /// The protocol to speak; `None`: the best that each server knows. Only meta tells expiration times.
    pub protocol: Option<Protocol>,
    /// Whether expiration times are compared.
    pub compare_expiry: bool,
    /// By how many seconds expiration times may differ. An item that only one side has, and that is to expire within as many,
    /// is no difference either.
    pub tolerance: u32,
    /// How long a difference has to last before it is one. It is looked at four more times meanwhile, after growing pauses.
    pub settle: Duration,
    /// How many keys of each kind of difference the report names.
    pub examples: usize,
    /// Whether [`Repair::delete_extra`] goes on when the side that is read lists no keys, and so deletes all that is compared.
    pub allow_empty_source: bool,
    /// Whether differences are repaired.
    pub repair: Option<Repair>,
    /// Threads, each with a connection to either server; 1 to [`VerifyConfig::CONNECTIONS_MAX`].
    pub connections: usize,
    /// Keys that are asked for at once on a connection; 1 to [`VerifyConfig::BATCH_MAX`].
    pub batch: usize,
    /// The most keys that are looked at in a second, on all connections together, those looked at again included.
    pub rate: Option<f64>,
    /// Longest wait for a server at any point. After a timeout, one attempt on a new connection follows.
    pub timeout: Duration,
    /// How servers are reached.
    pub outward: Outward,
}

/// How keys are hashed for a sample; by any function, as long as it is the same for both walks.
const SAMPLE: KeyHash = KeyHash::seeded(0x6d6f_6e65_7461);

impl VerifyConfig {
    /// The most of [`VerifyConfig::connections`].
    pub const CONNECTIONS_MAX: usize = 64;
    /// The most of [`VerifyConfig::batch`].
    pub const BATCH_MAX: usize = 10_000;

    /// Defaults: all keys of both sides, 2 seconds of tolerance, 4 connections, no limit of the rate, nothing is written.
    pub fn new(a: impl Into<ComparedPlace>, b: impl Into<ComparedPlace>) -> Self {
        Self {
            a: a.into(),
            b: b.into(),
            keys: Keys::Walked,
            only: None,
            share: 1.0,
            first: None,
            protocol: None,
            compare_expiry: true,
            tolerance: 2,
            settle: Duration::from_secs(2),
            examples: 10,
            allow_empty_source: false,
            repair: None,
            connections: 4,
            batch: 100,
            rate: None,
            timeout: Duration::from_secs(5),
            outward: Outward::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), VerifyError> {
        let wrong = |what: &str| Err(VerifyError::Config(what.to_owned()));
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("the share of keys to compare is above 0 and up to 1");
        }
        if self.first == Some(0) {
            return wrong("the number of keys to compare must be more than nothing");
        }
        if !(1..=Self::CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("there are 1 to 64 connections to each server");
        }
        if !(1..=Self::BATCH_MAX).contains(&self.batch) {
            return wrong("a batch has 1 to 10000 keys");
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return wrong("the rate is a number of keys a second above 0");
        }
        if self.timeout.is_zero() {
            return wrong("the timeout must be more than nothing");
        }
        if self.settle > Duration::from_secs(3600) {
            return wrong("a difference is waited for at most an hour to go away");
        }
        if self.repair.is_some_and(|repair| repair.delete_extra && repair.direction == Direction::Newer) {
            return wrong("where the newer version is right, versions tell what is to be deleted");
        }
        let of_cluster = [&self.a, &self.b].iter().any(|place| place.is_copy());
        if of_cluster && self.repair.is_some_and(|repair| repair.direction != Direction::Newer) {
            // Any other repair is a write of its own, which would outrank those of clients that are under way.
            return wrong("copies of a cluster are repaired by version: the direction is `newer`");
        }
        Ok(())
    }

    pub(crate) fn place(&self, side: Side) -> &ComparedPlace {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// Whether `key` is wanted, and belongs to the sample.
    pub(crate) fn chooses(&self, key: &[u8]) -> bool {
        let is_wanted = self.only.as_ref().is_none_or(|only| (only.0)(key));
        is_wanted && self.is_sampled(key)
    }

    fn is_sampled(&self, key: &[u8]) -> bool {
        self.share >= 1.0 || (SAMPLE.hash(key) as f64) < self.share * 2f64.powi(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> VerifyConfig {
        let address: moneta_net::Address = "127.0.0.1:11211".parse().expect("an address");
        VerifyConfig::new(address.clone(), address)
    }

    #[test]
    fn a_sample_has_its_share_of_the_keys() {
        let config = VerifyConfig { share: 0.1, ..config() };
        let chosen = (0..100_000).filter(|number| config.chooses(format!("key:{number}").as_bytes())).count();
        assert!((9_000..11_000).contains(&chosen), "{chosen}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        config().check().expect("the defaults make sense");
        let wrong = [
            VerifyConfig { share: 0.0, ..config() },
            VerifyConfig { share: f64::NAN, ..config() },
            VerifyConfig { share: 1.1, ..config() },
            VerifyConfig { first: Some(0), ..config() },
            VerifyConfig { connections: 0, ..config() },
            VerifyConfig { batch: 0, ..config() },
            VerifyConfig { rate: Some(0.0), ..config() },
            VerifyConfig { timeout: Duration::ZERO, ..config() },
        ];
        for config in wrong {
            assert!(config.check().is_err(), "{config:?}");
        }
    }
}
