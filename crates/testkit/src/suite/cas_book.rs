//! Which CAS value of the store stands for which of the model's.

use std::collections::HashMap;

use super::operation::CasChoice;

/// From here on CAS values are clients' own, the same in both stores; the stores pick theirs below.
pub(super) const EXPLICIT: u64 = 1 << 63;

/// A CAS value that no version ever has.
const UNKNOWN: u64 = u64::MAX;

/// Versions of a key that are remembered: enough for one that is long past.
const REMEMBERED: usize = 12;

/// The same version's CAS value in either store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CasPair {
    pub(super) model: u64,
    pub(super) store: u64,
}

impl CasPair {
    fn same(cas: u64) -> Self {
        Self { model: cas, store: cas }
    }
}

/// One key's versions, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    pairs: Vec<CasPair>,
    highest: u64,
}

impl Versions {
    /// Takes note that one version has these values. Equal ones must stay equal, different ones different, and those the
    /// store picks must grow.
    pub(super) fn observe(&mut self, model: u64, store: u64) -> Result<(), String> {
        if model >= EXPLICIT {
            return if store == model {
                Ok(())
            } else {
                Err(format!("CAS value {store} instead of the client's {model}"))
            };
        }
        if let Some(pair) = self.pairs.iter().find(|pair| pair.model == model) {
            return if pair.store == store {
                Ok(())
            } else {
                Err(format!("the version's CAS value changed from {} to {store}", pair.store))
            };
        }
        if store <= self.highest || store >= EXPLICIT {
            return Err(format!("a new version has CAS value {store} after {}", self.highest));
        }
        self.highest = store;
        self.pairs.push(CasPair { model, store });
        if self.pairs.len() > REMEMBERED {
            self.pairs.remove(0);
        }
        Ok(())
    }

    fn of_model(&self, cas: u64) -> Option<CasPair> {
        if cas >= EXPLICIT {
            return Some(CasPair::same(cas));
        }
        self.pairs.iter().copied().find(|pair| pair.model == cas)
    }
}

/// All keys' versions.
#[derive(Debug, Default)]
pub(super) struct CasBook {
    keys: HashMap<usize, Versions>,
}

impl CasBook {
    /// A key's versions, to try observations on.
    pub(super) fn versions(&self, key: usize) -> Versions {
        self.keys.get(&key).cloned().unwrap_or_default()
    }

    /// Keeps what a trial brought.
    pub(super) fn keep(&mut self, key: usize, versions: Versions) {
        self.keys.insert(key, versions);
    }

    /// The values that a choice means, where the model's item has `current`.
    pub(super) fn choose(&self, key: usize, choice: CasChoice, current: Option<u64>) -> CasPair {
        let versions = self.versions(key);
        let chosen = match choice {
            CasChoice::Current => current.and_then(|cas| versions.of_model(cas)),
            CasChoice::Older => versions.pairs.iter().copied().find(|pair| Some(pair.model) != current),
            CasChoice::Unknown => None,
        };
        chosen.unwrap_or(CasPair::same(UNKNOWN))
    }
}
