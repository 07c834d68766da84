//! TLS on the listeners of a node: a client that is not protected although it should be, one that hangs, and one that pays for
//! others' handshakes.

mod common;
#[path = "tls/files.rs"]
mod files;
#[path = "tls/openssl.rs"]
mod openssl;
#[path = "tls/wire.rs"]
mod wire;
