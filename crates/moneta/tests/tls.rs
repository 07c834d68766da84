//! TLS on the listeners of a node: a client that is not protected although it should be, one that hangs, one that pays for others'
//! handshakes, and a certificate that is believed too long or not at all.

#[path = "tls/admin.rs"]
mod admin;
#[path = "tls/clients.rs"]
mod clients;
mod common;
#[path = "tls/files.rs"]
mod files;
#[path = "tls/floods.rs"]
mod floods;
#[path = "tls/openssl.rs"]
mod openssl;
#[path = "tls/options.rs"]
mod options;
#[path = "tls/replaced.rs"]
mod replaced;
#[path = "tls/storm.rs"]
mod storm;
#[path = "tls/wire.rs"]
mod wire;
