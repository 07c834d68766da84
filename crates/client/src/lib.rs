//! A memcached server from its client's side: its [`Address`], and the [`wire`] formats of its three protocols. What keeps
//! connections (`moneta_remote`) and what asks one server at a time ([`wire::blocking`]) share them.

mod address;
pub mod wire;

pub use address::Address;
