//! The options, a file for each subject: their declarations, what cannot be had together, and what they tell the part of the node
//! that they are about.

pub mod access;
pub mod cluster;
pub mod flash;
pub mod lmdb;
pub mod memory;
pub mod network;
pub mod operation;
pub mod proxy;
pub mod remote;
pub mod rocks;
pub mod tiers;
pub mod workers;

use crate::options::declaration::{Declaration, Section};

/// All, in the order shown.
pub static ALL: [&Section; 12] = [
    &network::SECTION,
    &memory::SECTION,
    &tiers::SECTION,
    &flash::SECTION,
    &rocks::SECTION,
    &lmdb::SECTION,
    &remote::SECTION,
    &cluster::SECTION,
    &proxy::SECTION,
    &workers::SECTION,
    &access::SECTION,
    &operation::SECTION,
];

/// Every option, in the order shown.
pub fn options() -> impl Iterator<Item = &'static dyn Declaration> {
    ALL.iter().flat_map(|section| section.options.iter().copied())
}
