//! How all that a process connects to is reached.

use crate::address::Address;
use crate::endpoint::{Connector, Endpoint};
use crate::log_in::LogIn;

/// How a process protects its connections to others, and what it says of itself there. The default: not at all, and nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outward {
    /// What protects connections, unless an address says otherwise.
    pub connector: Connector,
    /// What they say of themselves.
    pub log_in: LogIn,
}

impl Outward {
    /// The server at `address`, which is waited for as long as it takes.
    pub fn to(&self, address: Address) -> Endpoint {
        self.over(Endpoint::new(address))
    }

    /// The same server, reached so.
    #[must_use]
    pub fn over(&self, endpoint: Endpoint) -> Endpoint {
        let Self { connector, log_in } = self.clone();
        Endpoint { connector, log_in, ..endpoint }
    }
}
