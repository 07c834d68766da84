//! One of something for each policy that a listener can have.

use crate::node::Policy;

/// What requests of either policy use.
pub(crate) struct ByPolicy<T> {
    /// For interactive traffic.
    pub(crate) online: T,
    /// For bulk traffic.
    pub(crate) batch: T,
}

impl<T> ByPolicy<T> {
    /// The one for a policy.
    #[inline]
    pub(crate) fn of(&self, policy: Policy) -> &T {
        match policy {
            Policy::Online => &self.online,
            Policy::Batch => &self.batch,
        }
    }
}
