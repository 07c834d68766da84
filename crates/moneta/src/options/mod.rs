//! Every option of `moneta serve`: declared once ([`sections`]), and what is made of the declarations.
//!
//! The flags, the environment variables, the keys of the TOML file, `moneta config`, `docs/options.md` and what SIGHUP changes all
//! come from the declarations, so that an option exists everywhere or nowhere.

pub mod app;
pub mod declaration;
pub mod document;
pub mod extended;
pub mod file;
pub mod flags;
pub mod foreign;
pub mod kinds;
pub mod listener;
pub mod live;
pub mod machine;
mod nearest;
pub mod report;
pub mod resolve;
pub mod sections;
pub mod settings;
pub mod stray;
pub mod values;
