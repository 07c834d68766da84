//! One connection to a server: requests to send, expected replies, and their fate when the connection is lost.

mod connect;
mod disconnect;
mod entry;
mod link;
mod replies;
mod socket;
mod stage;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Claim, Entry, OwnedRequest, Target, Won};
pub(crate) use link::{Link, Turn};
pub(crate) use replies::{Outcome, Replies};
