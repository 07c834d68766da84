//! Every option of `moneta serve`: one table, and what is derived from it.
//!
//! The flags, the environment variables, the keys of the TOML file, `moneta config` and `docs/options.md` all come from
//! [`table::TABLE`], so that an option exists everywhere or nowhere.

pub mod address;
pub mod device;
pub mod document;
pub mod extended;
pub mod file;
pub mod flags;
pub mod flash;
pub mod foreign;
pub mod listener;
pub mod lmdb;
pub mod machine;
mod nearest;
pub mod promotion;
pub mod report;
pub mod resolve;
pub mod rocks;
pub mod settings;
pub mod stack;
pub mod stray;
pub mod table;
pub mod tier;
pub mod value;
