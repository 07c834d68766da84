//! Which keys on nodes a process compares: a node tells of the keys of all apps that have it, and copies of one app have no
//! keys of another.

use moneta_store::{ErrorKind, StoreError};

use crate::shared::ClusterShared;

/// The keys that may be compared.
pub(crate) struct Compared<'a> {
    prefix: &'a [u8],
    /// Longer prefixes, of other apps.
    others: &'a [Vec<u8>],
    is_shared: bool,
}

impl Compared<'_> {
    /// Whether a key is one of them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        !self.is_shared || (key.starts_with(self.prefix) && !self.others.iter().any(|other| key.starts_with(other)))
    }
}

impl ClusterShared {
    /// The keys that may be compared now.
    ///
    /// # Errors
    /// If none may: another app has nodes of this one, and keys do not tell whose they are.
    pub(crate) fn compared(&self) -> Result<Compared<'_>, StoreError> {
        let is_shared = !self.board.lock().other_apps(self.clock.millis()).is_empty();
        if is_shared && self.config.prefix.is_empty() {
            let why = "another app has nodes of this one, and keys do not tell whose they are";
            return Err(StoreError::new(ErrorKind::Unsupported, why));
        }
        Ok(Compared { prefix: &self.config.prefix, others: &self.config.others, is_shared })
    }
}
