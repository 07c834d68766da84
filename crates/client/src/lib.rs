//! A memcached server from its client's side: the [`wire`] formats of its three protocols. What keeps connections
//! (`moneta_remote`) and what asks one server at a time ([`wire::blocking`]) share them.

pub mod wire;
