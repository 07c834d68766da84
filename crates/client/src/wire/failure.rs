//! The two ways in which bytes and requests do not fit together.

/// The server's protocol has no form for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub &'static str);

/// The received bytes are not the expected reply. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// Of a server that has not said that it knows versions.
pub const NO_VERSIONS: Unsupported = Unsupported("the server keeps no versions");
