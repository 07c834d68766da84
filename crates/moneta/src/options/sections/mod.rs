//! The options, a file for each subject: their declarations, what cannot be had together, and what they tell the part of the node
//! that they are about.

pub mod access;
pub mod cluster;
pub mod control;
pub mod flash;
pub mod lmdb;
pub mod memory;
pub mod network;
pub mod operation;
pub mod proxy;
pub mod remote;
pub mod rocks;
pub mod tiers;
pub mod tls;
pub mod workers;

use moneta_options::declaration::{Declaration, Section};

/// All, in the order shown.
pub static ALL: [&Section; 14] = [
    &network::SECTION,
    &memory::SECTION,
    &tiers::SECTION,
    &flash::SECTION,
    &rocks::SECTION,
    &lmdb::SECTION,
    &remote::SECTION,
    &cluster::SECTION,
    &proxy::SECTION,
    &control::SECTION,
    &workers::SECTION,
    &tls::SECTION,
    &access::SECTION,
    &operation::SECTION,
];

/// Every option, in the order shown.
pub fn options() -> impl Iterator<Item = &'static dyn Declaration> {
    moneta_options::declaration::options(&ALL)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::options;

    #[test]
    fn every_default_is_read_back_and_every_text_is_there() {
        for option in options() {
            let (about, default) = (option.about(), option.default());
            assert_eq!(option.normal(&default).as_ref(), Some(&default), "the default of {}", about.key);
            assert!(!about.summary().is_empty() && !about.when.is_empty(), "{} lacks a sentence", about.key);
        }
    }

    #[test]
    fn no_two_options_share_a_flag() {
        let mut seen = HashSet::new();
        for about in options().map(|option| option.about()) {
            let names = [Some(about.long()), about.short.map(String::from), about.alias.map(String::from)];
            for name in names.into_iter().flatten() {
                assert!(seen.insert(name.clone()), "{name} is taken");
            }
        }
    }
}
