//! What a node is told at its start.

use moneta_store::Origin;

use crate::client_memory::ClientMemory;

/// Settings that sessions obey or show, at the start. Those of [`Live`](crate::Live) may change.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Largest value, in bytes (`-I`).
    pub item_max: usize,
    /// Limit on memory, in bytes (`-m`).
    pub memory: u64,
    /// Most connections at once (`-c`).
    pub max_connections: u64,
    /// Worker threads.
    pub threads: usize,
    /// TCP port, 0 for none; shown by `stats settings`.
    pub tcp_port: u16,
    /// Interfaces listened on, as given; empty for all.
    pub interface: String,
    /// Path of the Unix socket, if any.
    pub unix_socket: Option<String>,
    /// Access mask of the Unix socket.
    pub unix_mode: u32,
    /// Verbosity at start.
    pub verbosity: u32,
    /// Limit on memory held for clients, in bytes.
    pub client_memory: usize,
    /// Whether items are evicted to make room (off under `-M`).
    pub evictions: bool,
    /// Whether `flush_all` is answered.
    pub flush_enabled: bool,
    /// Whether `lru_crawler metadump` and `mgdump` are answered.
    pub dump_enabled: bool,
    /// Whether `watch` is answered.
    pub watch_enabled: bool,
    /// Whether `shutdown` is answered (`-A`).
    pub shutdown_enabled: bool,
    /// Requests of one connection executed in a row before others get their turn (`-R`).
    pub requests_per_event: u32,
    /// Pending connections the kernel keeps for a listener (`-b`).
    pub backlog: u32,
    /// Seconds after which an idle connection is closed; 0 never.
    pub idle_timeout: u32,
    /// Seconds in which a client has to log in, if it must, before it is closed; 0: no limit.
    pub login_timeout: u32,
    /// Failed log-ins after which a connection is closed, at least 1.
    pub login_attempts: u32,
    /// Failed log-ins in a minute after which an address has to wait; 0: no limit.
    pub login_failures: u32,
    /// Whether users may send their secrets over connections that are not encrypted and come from other machines.
    pub login_in_clear: bool,
    /// Who makes the versions of what is written here; told to clients that ask.
    pub origin: Origin,
    /// Whether CAS values are versions, and the node takes what has a version. A lone node's are counted: to other nodes it is as a
    /// memcached.
    pub keeps_versions: bool,
    /// Whether this node is one of several copies (`--cluster`): then no client may choose CAS values.
    pub cluster: bool,
    /// Whether clients may name the versions of what they write.
    pub client_versions: ClientVersions,
    /// Whether the keys that clients ask for most are found.
    pub hot_keys: bool,
    /// Keep the curve of misses over RAM.
    pub miss_curve: bool,
    /// Milliseconds from which a request's wait for the store is kept in the slow log; 0: none is.
    pub slow_milliseconds: u32,
    /// Bytes from which a value that is read or written is kept there; 0: none is.
    pub slow_bytes: usize,
    /// How far ahead of this node's clock the version of a flush from elsewhere may be, in milliseconds.
    pub skew_max: u64,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            item_max: 1024 * 1024,
            memory: 64 * 1024 * 1024,
            client_memory: ClientMemory::LIMIT,
            max_connections: 1024,
            threads: 4,
            tcp_port: 11211,
            interface: String::new(),
            unix_socket: None,
            unix_mode: 0o700,
            verbosity: 0,
            evictions: true,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            requests_per_event: 20,
            backlog: 1024,
            idle_timeout: 0,
            login_timeout: 10,
            login_attempts: 5,
            login_failures: 60,
            login_in_clear: false,
            origin: Origin::default(),
            keeps_versions: true,
            cluster: false,
            client_versions: ClientVersions::Taken,
            hot_keys: true,
            miss_curve: true,
            slow_milliseconds: 100,
            slow_bytes: 512 << 10,
            skew_max: 500,
        }
    }
}

/// Whether clients may name the versions of what they write and flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientVersions {
    /// They may.
    Taken,
    /// Only on listeners with the policy batch.
    Batch,
    /// They may not.
    Refused,
}
