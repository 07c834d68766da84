//! Is there one order of all commands on a key that explains every reply?
//!
//! [`history`] holds what happened and when, [`item`] is what a memcached item may do, and [`checker`] searches for the
//! order.

pub mod checker;
pub mod history;
pub mod item;
