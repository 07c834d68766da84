//! What this program says that it is.

/// The version that clients see: that of the memcached whose behaviour this node has. Nothing else, since clients derive features
/// from it and disagree on how to parse more than three numbers.
pub const VERSION: &str = "1.6.45";
/// Moneta's version, which `stats` shows as `moneta_version`.
pub const MONETA_VERSION: &str = env!("CARGO_PKG_VERSION");
