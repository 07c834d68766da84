//! The subcommands, a thin file each.

mod archives;
pub mod bench;
pub mod cluster;
pub mod config;
pub mod control;
pub mod copy;
pub mod dump;
pub mod feed;
pub mod flash;
mod moving;
pub mod populate;
pub mod property;
pub mod proxy;
pub mod query;
pub mod relay;
pub mod repair;
pub mod route;
pub mod segments;
pub mod serve;
pub mod set_option;
pub mod status;
pub mod topology;
pub mod user;
pub mod verify;
pub mod watch;
