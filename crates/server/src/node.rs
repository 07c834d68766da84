//! State shared by all workers of one server: settings, clock, counters, watchers, users, and how to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use moneta_store::offload::Offload;
use moneta_store::{Clock, Origin};
pub use moneta_store::{Door, Policy};
use parking_lot::Mutex;

use crate::auth::Authenticator;
use crate::client_memory::ClientMemory;
use crate::counters::Registry;
use crate::feed::{Answering, Answers, Readers};
use crate::limits::{Allowance, Refused};
use crate::login_failures::LoginFailures;
pub use crate::peer::{Commands, Peer, SocketKind};
use crate::prefixes::Prefixes;
use crate::turnstile::Turnstile;
use crate::watch::Hub;

/// Settings that sessions obey or show; fixed at start, except verbosity.
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
    /// Who makes the versions of what is written here; told to clients that ask.
    pub origin: Origin,
    /// Whether CAS values are versions, and the node takes what has a version. A lone node's are counted: to other nodes it is as a
    /// memcached.
    pub keeps_versions: bool,
    /// Whether this node is one of several copies (`--cluster`): then no client may choose CAS values.
    pub cluster: bool,
    /// Whether clients may name the versions of what they write.
    pub client_versions: ClientVersions,
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
            origin: Origin::default(),
            keeps_versions: true,
            cluster: false,
            client_versions: ClientVersions::Taken,
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

/// Lines that the process's log dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLeftOut {
    /// Because the queue to the log's reader was full.
    pub queue: u64,
    /// Because similar lines had been written too often.
    pub repeated: u64,
}

/// How to stop the node, supplied by the server.
pub trait Lifecycle: Send + Sync {
    /// Asks the node to stop and returns at once; `graceful` drains connections first.
    fn request_shutdown(&self, graceful: bool);
}

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

/// The list of open connections, supplied by the server.
pub trait ListConnections: Send + Sync {
    /// Connections open now, in the order of their numbers: at most `most` of those after the number `after`.
    fn connections(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView>;
}

/// Where keys go, supplied by a store of several nodes.
pub trait Routes: Send + Sync {
    /// What `stats route` shows of a key that comes through `door`: names and values.
    fn route(&self, door: Door, key: &[u8]) -> Vec<(String, String)>;

    /// All nodes and how they are, for the admin side.
    fn status(&self) -> serde_json::Value;
}

/// What the apps of a proxy may do in a second, supplied by who knows their keys.
pub trait AppLimits: Send + Sync {
    /// The allowance of the app of a key that comes through `door`, if it has one.
    fn of(&self, door: Door, key: &[u8]) -> Option<&Allowance>;

    /// What was refused, by app.
    fn refused(&self) -> Vec<(&str, &Refused)>;
}

/// State shared by all workers of one server.
pub struct Node {
    /// Settings as of start.
    pub settings: NodeSettings,
    /// The clock that items are timed by.
    pub clock: Arc<Clock>,
    /// Counters of all workers.
    pub registry: Registry,
    /// Memory held for clients.
    pub client_memory: ClientMemory,
    /// The watchers.
    pub watchers: Arc<Hub>,
    /// What proxies tell each other.
    pub(crate) board: crate::board::NodeBoard,
    /// The readers of the feed that have a name.
    pub readers: Readers,
    /// The users, and whether clients have to log in.
    pub authenticator: Authenticator,
    /// Log-ins that failed lately.
    pub(crate) login_failures: LoginFailures,
    /// Unix second of the start.
    pub started: u32,
    /// Counts by key prefix (`stats detail`).
    pub prefixes: Prefixes,
    // Held while the store's observer is set, so that the last one to set it has seen the changes of the others.
    pub(crate) observing: Mutex<()>,
    verbosity: AtomicU32,
    /// Applies a change of verbosity to the log.
    on_verbosity: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
    /// Whether items may be walked for `lru_crawler`.
    crawler: AtomicBool,
    /// A dump is in progress.
    dumping: Arc<AtomicBool>,
    lifecycle: OnceLock<Box<dyn Lifecycle>>,
    log: OnceLock<Box<dyn Fn() -> LogLeftOut + Send + Sync>>,
    connections: OnceLock<Box<dyn ListConnections>>,
    routes: OnceLock<Arc<dyn Routes>>,
    /// The thread that waits for other servers' statistics, once one was asked for.
    asking: OnceLock<Option<Offload>>,
    app_limits: OnceLock<Box<dyn AppLimits>>,
    /// What limits of client addresses refused.
    pub(crate) address_refusals: Arc<Refused>,
}

impl Answering for Node {
    fn answers(&self) -> &Answers {
        &self.readers.answers
    }

    fn memory(&self) -> &ClientMemory {
        &self.client_memory
    }
}

impl Node {
    /// A node that starts now.
    pub fn new(settings: NodeSettings, clock: Arc<Clock>, authenticator: Authenticator) -> Self {
        Self {
            verbosity: AtomicU32::new(settings.verbosity),
            on_verbosity: OnceLock::new(),
            started: clock.now(),
            client_memory: ClientMemory::new(settings.client_memory),
            login_failures: LoginFailures::new(settings.login_failures),
            settings,
            clock,
            registry: Registry::default(),
            watchers: Arc::new(Hub::default()),
            board: Default::default(),
            readers: Readers::default(),
            authenticator,
            prefixes: Prefixes::default(),
            observing: Mutex::default(),
            crawler: AtomicBool::new(true),
            dumping: Arc::default(),
            lifecycle: OnceLock::new(),
            log: OnceLock::new(),
            connections: OnceLock::new(),
            routes: OnceLock::new(),
            asking: OnceLock::new(),
            app_limits: OnceLock::new(),
            address_refusals: Arc::default(),
        }
    }

    /// The thread that waits for other servers' statistics; `None` if the system has none. One is enough: a client asks for one group at a
    /// time.
    pub(crate) fn asking(&self) -> Option<&Offload> {
        self.asking.get_or_init(|| Offload::start("statistics", 1).ok()).as_ref()
    }

    /// The verbosity of the log: 0 is the least.
    pub fn verbosity(&self) -> u32 {
        self.verbosity.load(Ordering::Relaxed)
    }

    /// Changes the verbosity of the log.
    pub fn set_verbosity(&self, level: u32) {
        self.verbosity.store(level, Ordering::Relaxed);
        if let Some(change) = self.on_verbosity.get() {
            change(level);
        }
    }

    /// Sets the function that applies a change of verbosity to the log. It is called on workers, so it must not block. Only the first
    /// call has an effect.
    pub fn on_verbosity(&self, change: Box<dyn Fn(u32) + Send + Sync>) {
        let _ = self.on_verbosity.set(change);
    }

    /// Whether `lru_crawler` may walk items.
    pub fn is_crawler_enabled(&self) -> bool {
        self.crawler.load(Ordering::Relaxed)
    }

    /// Allows or forbids `lru_crawler` to walk items; returns the previous setting.
    pub fn enable_crawler(&self, enabled: bool) -> bool {
        self.crawler.swap(enabled, Ordering::Relaxed)
    }

    /// Takes the permit for the only dump that may run, if it is free.
    pub(crate) fn begin_dump(&self) -> Option<Turnstile> {
        Turnstile::pass(&self.dumping)
    }

    /// Whether a dump is in progress.
    pub(crate) fn is_dumping(&self) -> bool {
        self.dumping.load(Ordering::Relaxed)
    }

    /// Sets how to stop the node. Only the first call has an effect.
    pub fn set_lifecycle(&self, lifecycle: Box<dyn Lifecycle>) {
        let _ = self.lifecycle.set(lifecycle);
    }

    /// Sets the source of the numbers of dropped log lines. Only the first call has an effect.
    pub fn set_log(&self, left_out: Box<dyn Fn() -> LogLeftOut + Send + Sync>) {
        let _ = self.log.set(left_out);
    }

    /// Log lines dropped since the start; 0 if no source is set.
    pub fn log_left_out(&self) -> LogLeftOut {
        self.log.get().map_or_else(LogLeftOut::default, |left_out| left_out())
    }

    /// Sets how to list connections. Only the first call has an effect.
    pub fn set_connections(&self, connections: Box<dyn ListConnections>) {
        let _ = self.connections.set(connections);
    }

    /// Sets where keys go. Only the first call has an effect.
    pub fn set_routes(&self, routes: Arc<dyn Routes>) {
        let _ = self.routes.set(routes);
    }

    /// Where keys go; `None` where all of them stay here.
    pub fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.routes.get().cloned()
    }

    /// Sets what apps may do; before the server starts. Only the first call has an effect.
    pub fn set_app_limits(&self, limits: Box<dyn AppLimits>) {
        let _ = self.app_limits.set(limits);
    }

    /// What apps may do; `None` where none has a limit.
    #[inline]
    pub(crate) fn app_limits(&self) -> Option<&dyn AppLimits> {
        self.app_limits.get().map(|limits| &**limits)
    }

    /// Asks the node to stop; false if no [`Lifecycle`] is set.
    pub fn request_shutdown(&self, graceful: bool) -> bool {
        match self.lifecycle.get() {
            Some(lifecycle) => {
                lifecycle.request_shutdown(graceful);
                true
            }
            None => false,
        }
    }

    /// Connections open now; empty while no list is set.
    pub fn connections(&self) -> Vec<ConnectionView> {
        self.connections_after(None, usize::MAX)
    }

    /// Some of them, as [`ListConnections::connections`].
    pub(crate) fn connections_after(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView> {
        self.connections.get().map_or_else(Vec::new, |list| list.connections(after, most))
    }
}
