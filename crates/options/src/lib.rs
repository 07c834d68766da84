//! Options of a process: declared once, and what is made of the declarations.
//!
//! Flags, environment variables, keys of the TOML file, the printed reference and what a reload changes all come from the
//! declarations ([`declaration`]), so that an option exists everywhere or nowhere. A process has a list of
//! [`declaration::Section`]s of its own; this crate knows none of them.

pub mod declaration;
pub mod document;
pub mod file;
pub mod flags;
pub mod kinds;
mod nearest;
pub mod report;
pub mod sources;
pub mod stray;
pub mod subscribers;
pub mod values;

pub use declaration::{Declaration, Opt, Section};
pub use nearest::nearest;
pub use report::{Origin, Refusal, Refused};
pub use values::Values;
