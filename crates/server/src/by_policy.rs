//! One of something for each policy that a listener can have.

use crate::node::Policy;

/// What requests of either policy use: of a tiered store two handles, of a plain one the same twice.
#[derive(Clone, Debug)]
pub struct ByPolicy<T> {
    /// For interactive traffic.
    pub online: T,
    /// For bulk traffic.
    pub batch: T,
}

impl<T> ByPolicy<T> {
    /// The same for both.
    pub fn same(both: T) -> Self
    where
        T: Clone,
    {
        Self { online: both.clone(), batch: both }
    }

    /// The one for a policy.
    #[inline]
    pub fn of(&self, policy: Policy) -> &T {
        match policy {
            Policy::Online => &self.online,
            Policy::Batch => &self.batch,
        }
    }

    /// The same of each.
    pub fn map<R>(self, make: impl Fn(T) -> R) -> ByPolicy<R> {
        ByPolicy { online: make(self.online), batch: make(self.batch) }
    }
}
