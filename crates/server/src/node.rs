//! State shared by all workers of one server: settings, clock, counters, watchers, users, and how to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use moneta_audit::Audit;
use moneta_process::logging::LogHandle;
use moneta_process::phases::Phases;
use moneta_store::Clock;
use moneta_store::offload::Offload;
pub use moneta_store::{Door, Policy};
use moneta_users::Users;
use parking_lot::Mutex;

use crate::auth::Authenticator;
use crate::certificates::Certificates;
use crate::client_memory::ClientMemory;
use crate::connection_registry::{ConnectionRegistry, RegistryView};
pub use crate::connections::{ConnectionView, ListConnections};
use crate::counters::Registry;
use crate::feed::{Answering, Answers, Readers};
use crate::limits::{Allowance, Refused};
use crate::live::Live;
use crate::login_failures::LoginFailures;
use crate::miss_curve::{self, Choice, MissCurve, Noted};
pub use crate::peer::{Commands, Peer, SocketKind};
use crate::prefixes::Prefixes;
pub use crate::settings::{ClientVersions, NodeSettings};
use crate::slow_log::SlowLog;
use crate::turnstile::Turnstile;
use crate::watch::Hub;

/// Where keys go, supplied by a store of several nodes.
pub trait Routes: Send + Sync {
    /// The app of a key that comes through `door`.
    fn app(&self, door: Door, key: &[u8]) -> Option<&str>;

    /// The apps that a command on everything is for, by where it came in.
    fn apps_behind(&self, door: Door) -> Vec<&str>;

    /// What `stats route` shows of a key that comes through `door`: names and values.
    fn route(&self, door: Door, key: &[u8]) -> Vec<(String, String)>;

    /// All nodes and how they are, for the admin side.
    fn status(&self) -> serde_json::Value;
}

/// What the apps of a proxy may do in a second, supplied by who knows their keys.
pub trait AppLimits: Send + Sync {
    /// The allowance of the app of a key that comes through `door`, if it has one.
    fn of(&self, door: Door, key: &[u8]) -> Option<&Allowance>;

    /// Whether any app has a limit now.
    fn are_there(&self) -> bool;

    /// What was refused, by app.
    fn refused(&self) -> Vec<(&str, &Refused)>;
}

/// What a node works with that is not its own.
#[derive(Default)]
pub struct Surroundings {
    /// The phases of its process, which clients may end.
    pub phases: Arc<Phases>,
    /// The log, whose level clients may change.
    pub log: Option<LogHandle>,
    /// Where keys go; `None` where all of them stay here.
    pub routes: Option<Arc<dyn Routes>>,
    /// What apps may do; `None` where there are no apps.
    pub app_limits: Option<Box<dyn AppLimits>>,
    /// What requests wait for that are not answered at once, in a word; `None`: the store's name is not known, and it is `store`.
    pub waits_for: Option<&'static str>,
    /// The connections that `stats conns` shows; `None`: those of the server.
    pub connections: Option<Box<dyn ListConnections>>,
    /// Who may do what, on listeners whose clients have to be users; `None`: all clients may.
    pub users: Option<Arc<Users>>,
    /// What the listeners' TLS stands on, if some have it.
    pub certificates: Option<Arc<Certificates>>,
    /// Where log-ins that fail and commands of operators are written down, if anywhere.
    pub audit: Option<Arc<Audit>>,
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
    pub readers: Arc<Readers>,
    /// The users of `-Y` and `-S`, and whether clients have to log in as one of them.
    pub authenticator: Authenticator,
    /// Who may do what, on listeners whose clients have to be users.
    pub users: Option<Arc<Users>>,
    /// What the listeners' TLS stands on.
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Where log-ins that fail and commands of operators are written down, if anywhere.
    pub audit: Option<Arc<Audit>>,
    /// Log-ins that failed lately.
    pub(crate) login_failures: LoginFailures,
    /// Unix second of the start.
    pub started: u32,
    /// Counts by key prefix (`stats detail`).
    pub prefixes: Prefixes,
    // Held while the store's observer is set, so that the last one to set it has seen the changes of the others.
    pub(crate) observing: Mutex<()>,
    /// Requests that waited long, and large values.
    pub slow_log: Arc<SlowLog>,
    /// What its gets would miss with more RAM or less.
    miss_curve: MissCurve,
    /// What requests wait for that are not answered at once.
    pub(crate) waits_for: &'static str,
    /// Settings that may change.
    pub live: Arc<Live>,
    /// The phases of the process.
    pub phases: Arc<Phases>,
    verbosity: AtomicU32,
    log: Option<LogHandle>,
    /// Whether items may be walked for `lru_crawler`.
    crawler: AtomicBool,
    /// A dump is in progress.
    dumping: Arc<AtomicBool>,
    pub(crate) connection_registry: Arc<ConnectionRegistry>,
    connections: Box<dyn ListConnections>,
    routes: Option<Arc<dyn Routes>>,
    /// The thread that waits for other servers' statistics, once one was asked for.
    asking: OnceLock<Option<Offload>>,
    app_limits: Option<Box<dyn AppLimits>>,
    /// Whether any app has a limit: all that requests ask while none has.
    apps_are_limited: AtomicBool,
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
    /// A node by itself that starts now.
    pub fn new(settings: NodeSettings, clock: Arc<Clock>, authenticator: Authenticator) -> Self {
        Self::within(Surroundings::default(), settings, clock, authenticator)
    }

    /// A node that starts now.
    pub fn within(
        surroundings: Surroundings,
        settings: NodeSettings,
        clock: Arc<Clock>,
        authenticator: Authenticator,
    ) -> Self {
        let Surroundings { phases, log, routes, app_limits, waits_for, connections, users, audit, certificates } =
            surroundings;
        let slow_log = Arc::<SlowLog>::default();
        slow_log.set_milliseconds(settings.slow_milliseconds);
        slow_log.set_bytes(settings.slow_bytes);
        let connection_registry = Arc::<ConnectionRegistry>::default();
        let connections = connections.unwrap_or_else(|| {
            Box::new(RegistryView { registry: Arc::clone(&connection_registry), clock: Arc::clone(&clock) })
        });
        Self {
            slow_log,
            miss_curve: MissCurve::default(),
            waits_for: waits_for.unwrap_or("store"),
            live: Arc::new(Live::new(&settings)),
            phases,
            log,
            connection_registry,
            connections,
            routes,
            apps_are_limited: AtomicBool::new(app_limits.as_ref().is_some_and(|limits| limits.are_there())),
            app_limits,
            verbosity: AtomicU32::new(settings.verbosity),
            started: clock.now(),
            client_memory: ClientMemory::new(settings.client_memory),
            login_failures: LoginFailures::new(settings.login_failures),
            settings,
            clock,
            registry: Registry::default(),
            watchers: Arc::new(Hub::default()),
            board: Default::default(),
            readers: Arc::default(),
            authenticator,
            users,
            certificates,
            audit,
            prefixes: Prefixes::default(),
            observing: Mutex::default(),
            crawler: AtomicBool::new(true),
            dumping: Arc::default(),
            asking: OnceLock::new(),
            address_refusals: Arc::default(),
        }
    }

    /// The thread that waits for other servers' statistics; `None` if the system has none. One is enough: a client asks for one
    /// group at a time.
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
        if let Some(log) = &self.log {
            log.level.set_verbosity(level);
        }
    }

    /// Changes how many log-ins an address may fail in a minute; 0: any number.
    pub fn set_login_failures(&self, most: u32) {
        self.login_failures.set(most);
    }

    /// Finds the keys that clients ask for most from now on, or forgets those found.
    pub fn find_hot_keys(&self, are_found: bool) {
        self.live.set_hot_keys(are_found);
        if !are_found {
            self.registry.forget_hot_keys();
        }
    }

    /// Keeps the curve of misses over RAM from now on, or forgets it.
    pub fn keep_miss_curve(&self, is_kept: bool) {
        self.live.set_miss_curve(is_kept);
        if !is_kept {
            self.miss_curve.forget();
        }
    }

    /// Tells the curve what became of a sampled key.
    pub(crate) fn note_for_curve(&self, policy: Policy, choice: &Choice, noted: Noted) {
        if self.keeps_miss_curve() {
            self.miss_curve.note(self.clock.now(), || self.registry.served(), policy, choice, noted);
        }
    }

    /// Tells it that all items are gone from the Unix second `second` on.
    pub(crate) fn note_flush_for_curve(&self, second: u32) {
        self.miss_curve.flush(second, self.clock.now());
    }

    /// The curve; `None` if none is kept, or nothing was counted.
    pub(crate) fn told_curve(&self) -> Option<miss_curve::Told> {
        if self.keeps_miss_curve() { self.miss_curve.told(self.clock.now(), self.registry.served()) } else { None }
    }

    /// Whether it keeps that: where keys go to other nodes, these have one each.
    pub(crate) fn keeps_miss_curve(&self) -> bool {
        self.live.keeps_miss_curve() && self.routes.is_none()
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

    /// The app of a key that comes through `door`; `None` where keys have no apps.
    pub(crate) fn app(&self, door: Door, key: &[u8]) -> Option<&str> {
        self.routes.as_ref()?.app(door, key)
    }

    /// The apps that a command on everything is for, by where it came in; none where keys have no apps.
    pub(crate) fn apps_behind(&self, door: Door) -> Vec<&str> {
        self.routes.as_ref().map_or_else(Vec::new, |routes| routes.apps_behind(door))
    }

    /// Where keys go; `None` where all of them stay here.
    pub fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.routes.clone()
    }

    /// What apps may do; `None` while none has a limit.
    #[inline]
    pub(crate) fn app_limits(&self) -> Option<&dyn AppLimits> {
        if self.apps_are_limited.load(Ordering::Relaxed) { self.app_limits.as_deref() } else { None }
    }

    /// What limits of apps have refused, by app, whether or not there are any now.
    pub(crate) fn app_refusals(&self) -> Vec<(&str, &Refused)> {
        self.app_limits.as_ref().map_or_else(Vec::new, |limits| limits.refused())
    }

    /// Call after a change of what apps may do: connections that are open are under new limits from their next request on.
    pub fn app_limits_changed(&self) {
        let are_there = self.app_limits.as_ref().is_some_and(|limits| limits.are_there());
        self.apps_are_limited.store(are_there, Ordering::Relaxed);
    }

    /// Connections open now.
    pub fn connections(&self) -> Vec<ConnectionView> {
        self.connections_after(None, usize::MAX)
    }

    /// Some of them, as [`ListConnections::connections`].
    pub(crate) fn connections_after(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView> {
        self.connections.connections(after, most)
    }
}
