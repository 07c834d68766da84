//! Kinds of values that only nodes and proxies have; all others are in [`moneta_options::kinds`].

pub mod control;
pub mod device;
pub mod pem;
pub mod promotion;
pub mod share;
pub mod tier;
pub mod topic;
pub mod topology;
pub mod users;
pub mod words;
