//! A value for each policy that a listener can have.

use crate::node::Policy;

/// A value for each policy.
pub(crate) struct ByPolicy<T> {
    /// For interactive traffic.
    pub(crate) online: T,
    /// For bulk traffic.
    pub(crate) batch: T,
}

impl<T> ByPolicy<T> {
    /// The value for a policy.
    #[inline]
    pub(crate) fn of(&self, policy: Policy) -> &T {
        match policy {
            Policy::Online => &self.online,
            Policy::Batch => &self.batch,
        }
    }
}
