//! Open connections as operators see them.

/// One open connection, as `stats conns` shows it.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    /// The connection's number: unique while the process lives.
    pub id: u64,
    /// The client's address, as `tcp:127.0.0.1:40000` or `unix:/path`.
    pub address: String,
    /// The listener's address, in the same form.
    pub listener: String,
    /// What it is doing, in memcached's words: `conn_read`, `conn_watch`, `conn_mwrite`, …
    pub state: &'static str,
    /// Seconds since its last command.
    pub idle_seconds: u64,
}

/// The list of open connections.
pub trait ListConnections: Send + Sync {
    /// Connections open now, in the order of their numbers: at most `most` of those after the number `after`.
    fn connections(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView>;
}
