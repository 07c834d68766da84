//! How a store makes and keeps versions.

use moneta_item::{Lane, Origin, Version, VersionClock};

/// How a store makes and keeps versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versioning {
    /// Who makes the versions of what clients write here.
    pub origin: Origin,
    /// Where counters begin depends on it: different on each node.
    pub salt: u64,
    /// CAS values are counted up from the one after this, as memcached's are, and are no versions: the store takes none. `None`:
    /// they are versions. A store that has kept versions before, on a device, goes on with those.
    pub counts_from: Option<u64>,
    /// Whether the store is one of several copies. Then every delete leaves a tombstone, whether the key was there or not, and
    /// a touch that shortens a life is a new version.
    pub cluster: bool,
    /// How far ahead of its clock a store takes versions, in milliseconds.
    pub skew_max: u64,
    /// Bound on the memory of tombstones, in bytes.
    pub tombstone_bytes: u64,
    /// How long tombstones are kept, in seconds, if the bound allows.
    pub tombstone_ttl: u32,
}

impl Default for Versioning {
    /// A lone store of region 0 that makes versions.
    fn default() -> Self {
        Self {
            origin: Origin::default(),
            salt: 0,
            counts_from: None,
            cluster: false,
            skew_max: 500,
            tombstone_bytes: 1 << 20,
            tombstone_ttl: 3600,
        }
    }
}

impl Versioning {
    /// Clock `number` of `count`, a power of two, that has made and seen nothing.
    pub fn clock(&self, number: u64, count: u64) -> VersionClock {
        VersionClock::new(self.origin, Lane::of(self.salt, number, count))
    }

    /// Whether a value that was current at `as_of`, by another node's clock, may have been deleted since: deletes are known since
    /// `horizon`, by this node's clock, and both clocks are as far apart as may be.
    #[inline]
    pub fn is_unsure(&self, as_of: u64, horizon: u64) -> bool {
        as_of < horizon.saturating_add(self.skew_max)
    }

    /// Whether a version is further ahead of `millis` (since the Unix epoch) than a store takes.
    #[inline]
    pub fn is_ahead(&self, version: Version, millis: u64) -> bool {
        version.millis() > millis + self.skew_max
    }
}
