//! Campaigns of the project's own: measurements of hours or of one machine that no user of a node runs. They stand on the load
//! generator ([`moneta_bench`]), and are in no binary that is shipped.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`ssd`] | servers that keep their items on an SSD: two side by side, or any number one after the other |
//! | [`fleet`] | a control plane with a large fleet: instances that renew, readers of feeds, changes |
//! | [`handshakes`] | open TLS connections beside a flood of handshakes |
//! | [`hostile`] | a server under attack by many clients at once |
//! | [`policies`] | known policies on the requests of a replay |

pub mod cli;
pub mod fleet;
pub mod handshakes;
pub mod hostile;
pub mod policies;
pub mod ssd;
