//! The subcommands, a thin file each.

pub mod config;
