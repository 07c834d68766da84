//! The options of `moneta serve` and `moneta proxy`: the lists of them ([`sections`]), the tables of the file, and memcached's
//! own flags. What is made of declarations is in the crate `options`.

pub mod app;
pub mod contradictions;
pub mod document;
pub mod extended;
pub mod flags;
pub mod foreign;
pub mod kinds;
pub mod listener;
pub mod machine;
pub mod misspelt;
pub mod of_control;
pub mod of_relay;
pub mod resolve;
pub mod sections;
pub mod settings;
