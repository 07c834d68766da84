//! What a store under test is made with, and how it is compared with the model.

use super::operation::Operation;

/// The second at which every run begins.
pub(super) const START: u32 = 1_700_000_000;

/// What a store under test is to be made with.
#[derive(Clone, Copy, Debug)]
pub struct SuiteConfig {
    /// Limit on all memory of the store, in bytes.
    pub memory: u64,
    /// Longest value it takes, in bytes of the value alone; longer ones are [`moneta_store::Written::TooLarge`].
    pub value_max: usize,
}

/// Whether a store may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Memory is ample: every answer equals the model's, and a walk shows exactly the live items.
    Exact,
    /// Memory is short: an item may be gone at any time, and then the store answers as if it had never been. What it does
    /// show is the newest version of that key, never one that was overwritten, deleted, flushed or evicted before. Of what
    /// was just stored it must hold at least half.
    Lossy,
}

/// How to run the suite.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub(super) mode: Mode,
    pub(super) config: SuiteConfig,
    pub(super) rounds: u32,
    pub(super) operations: usize,
    pub(super) keys: usize,
    pub(super) keys_per_hash: usize,
    pub(super) last_access_slack: u32,
    pub(super) fetched_slack: bool,
    pub(super) counts_parts: bool,
    pub(super) items_estimated: bool,
    pub(super) asks: fn(&Operation) -> bool,
    pub(super) real_time: bool,
    pub(super) plain_keys: bool,
    pub(super) expiry_slack: u32,
    pub(super) bare_numbers: bool,
    pub(super) bare_items: bool,
    pub(super) restarts: bool,
    pub(super) versions_unknown: bool,
    pub(super) counted: bool,
}

impl Options {
    /// For a store with 256 MiB, which is more than the suite ever stores at once, and values of up to 1 MiB.
    pub fn exact() -> Self {
        Self {
            mode: Mode::Exact,
            config: SuiteConfig { memory: 256 << 20, value_max: 1 << 20 },
            rounds: 20,
            operations: 2000,
            keys: 300,
            keys_per_hash: 1,
            last_access_slack: 0,
            fetched_slack: false,
            counts_parts: false,
            items_estimated: false,
            asks: |_| true,
            real_time: false,
            plain_keys: false,
            expiry_slack: 0,
            bare_numbers: false,
            bare_items: false,
            restarts: false,
            versions_unknown: false,
            counted: false,
        }
    }

    /// For a store with 4 MiB, which a few hundred keys overflow, and values of up to 64 KiB.
    pub fn lossy() -> Self {
        Self {
            mode: Mode::Lossy,
            config: SuiteConfig { memory: 4 << 20, value_max: 64 << 10 },
            keys: 1000,
            operations: 6000,
            ..Self::exact()
        }
    }

    /// Gives the store other limits.
    #[must_use]
    pub fn config(self, config: SuiteConfig) -> Self {
        Self { config, ..self }
    }

    /// How many sequences to try, each on a new store; 20 by default.
    #[must_use]
    pub fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// How many operations a sequence has; 2000 unless told, 6000 in lossy mode: enough to overflow its 4 MiB.
    #[must_use]
    pub fn operations(self, operations: usize) -> Self {
        Self { operations, ..self }
    }

    /// The most keys a sequence uses, at least 1; many sequences use far fewer. 300 unless told, 1000 in lossy mode.
    #[must_use]
    pub fn keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// How many keys share each 64-bit hash, at least 1, which is the default and means their true hashes. For a store
    /// that takes [`moneta_store::Key::hash`] as it comes, 3 shows that it tells keys apart by their bytes.
    #[must_use]
    pub fn keys_per_hash(self, keys_per_hash: usize) -> Self {
        Self { keys_per_hash, ..self }
    }

    /// By how many seconds a store's last access may differ from the true one; 0 unless told. For engines that write it
    /// down only now and then, or take the time of a write for it.
    #[must_use]
    pub fn last_access_slack(self, seconds: u32) -> Self {
        Self { last_access_slack: seconds, ..self }
    }

    /// Lets a store say of an item that was read that it was not. For tiers that do not hear of every read.
    #[must_use]
    pub fn fetched_slack(self) -> Self {
        Self { fetched_slack: true, ..self }
    }

    /// Leaves out operations that `asks` does not hold for. For stores that cannot do everything.
    #[must_use]
    pub fn asks(self, asks: fn(&Operation) -> bool) -> Self {
        Self { asks, ..self }
    }

    /// Runs by the system's clock: time passes by itself, nothing expires but what is dead at once, and flushes are not
    /// delayed. For stores whose clock is beyond the suite's reach; they need slack in what they say of times.
    #[must_use]
    pub fn real_time(self) -> Self {
        Self { real_time: true, ..self }
    }

    /// Uses keys of printable ASCII only.
    #[must_use]
    pub fn plain_keys(self) -> Self {
        Self { plain_keys: true, ..self }
    }

    /// By how many seconds a store's expiration times may differ from the true ones; 0 unless told. For stores that go by
    /// another clock.
    #[must_use]
    pub fn expiry_slack(self, seconds: u32) -> Self {
        Self { expiry_slack: seconds, ..self }
    }

    /// Compares of the item that a number is in nothing but CAS value and expiration times. For stores behind protocols that
    /// tell no more.
    #[must_use]
    pub fn bare_numbers(self) -> Self {
        Self { bare_numbers: true, ..self }
    }

    /// Compares of items nothing but value, flags and CAS value, and lets writes leave their CAS value at 0. For stores behind
    /// protocols that tell no more.
    #[must_use]
    pub fn bare_items(self) -> Self {
        Self { bare_items: true, bare_numbers: true, ..self }
    }

    /// Lets a store take CAS values that clients chose for versions. For stores behind protocols that do not tell.
    #[must_use]
    pub fn versions_unknown(self) -> Self {
        Self { versions_unknown: true, ..self }
    }

    /// Has a store count its CAS values, near to 0.
    #[must_use]
    pub fn counted(self) -> Self {
        Self { counted: true, versions_unknown: true, ..self }
    }

    /// Takes any gauge of items. For engines on libraries that count versions and not keys.
    #[must_use]
    pub fn items_estimated(self) -> Self {
        Self { items_estimated: true, ..self }
    }

    /// Lets a store's gauge of items be larger than there are items. For those that count an item's parts.
    #[must_use]
    pub fn counts_parts(self) -> Self {
        Self { counts_parts: true, ..self }
    }
}
