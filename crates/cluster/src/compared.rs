//! Which keys on nodes a process compares: a node tells of the keys of all apps that have it, and copies of one app have no
//! keys of another.

/// The keys that may be compared.
pub(crate) struct Compared<'a> {
    /// The app's.
    pub(crate) prefix: &'a [u8],
    /// Longer prefixes, of other apps.
    pub(crate) others: &'a [Vec<u8>],
    /// Other apps have nodes of this one.
    pub(crate) is_shared: bool,
}

impl Compared<'_> {
    /// Whether a key is one of them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        !self.is_shared || (key.starts_with(self.prefix) && !self.others.iter().any(|other| key.starts_with(other)))
    }
}
