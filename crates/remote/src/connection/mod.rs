//! One connection to a server: requests to send, expected replies, and their fate when the connection is lost.

mod apart;
mod carrying;
mod connect;
mod disconnect;
mod entry;
mod halfway;
mod late;
mod link;
pub(crate) mod outcome;
mod receive;
mod replies;
mod stage;
#[cfg(test)]
mod tests;
mod together;
mod watch;

pub(crate) use entry::{Entry, OwnedRequest, Target};
pub(crate) use link::{Link, NO_MEMORY, Turn};
pub(crate) use outcome::{Claim, Outcome, Won, giving_back, wins};
pub(crate) use replies::Replies;
pub(crate) use together::ReadTold;
