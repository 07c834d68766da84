//! The options as typed values, checked against each other: what the rest of the program works with.

use std::path::PathBuf;
use std::time::Duration;

use moneta_memory::MemoryConfig;
use moneta_server::config::Commands;

use crate::options::address::{HostPort, ListenAddress};
use crate::options::listener::ExtraListener;
use crate::options::report::{Refusal, Refused};
use crate::options::resolve::Resolved;
use crate::options::stack::{self, StackSettings};
use crate::options::table::Id;
use crate::options::value::{MIB, Value};

/// Everything `moneta serve` was asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP port of addresses without one of their own.
    pub port: u16,
    /// TCP addresses; empty if only Unix sockets are wanted.
    pub listen: Vec<ListenAddress>,
    /// TCP port for bulk traffic on the hosts of `listen`, if any.
    pub batch_port: Option<u16>,
    /// Unix socket, if any.
    pub unix_socket: Option<PathBuf>,
    /// Permissions of Unix sockets.
    pub unix_mask: u32,
    /// Further listeners, from the file.
    pub extra_listeners: Vec<ExtraListener>,
    /// Waiting connections per listener.
    pub backlog: u32,
    /// Most connections at once.
    pub max_connections: usize,
    /// `None`: idle connections stay open.
    pub idle_timeout: Option<Duration>,
    /// Unsent bytes a connection may pile up.
    pub output_limit: usize,
    /// Memory for items, bytes.
    pub memory: u64,
    /// Memory for what clients have not sent whole or not read, bytes.
    pub client_memory: usize,
    /// Whether items are evicted to make room.
    pub evictions: bool,
    /// Largest value, bytes.
    pub max_item_size: usize,
    /// The tiers.
    pub stack: StackSettings,
    /// Worker threads.
    pub threads: usize,
    /// Requests of one connection in a row.
    pub requests_per_event: u32,
    /// File of users; `None`: nobody has to log in.
    pub auth_file: Option<PathBuf>,
    /// Users log in by SASL, not by text.
    pub sasl: bool,
    /// Time to log in; zero: for ever.
    pub login_timeout: Duration,
    /// Log-ins that a connection may fail.
    pub login_attempts: u32,
    /// `shutdown` is obeyed.
    pub shutdown_enabled: bool,
    /// `flush_all` is obeyed.
    pub flush_enabled: bool,
    /// Keys may be listed.
    pub dump_enabled: bool,
    /// `watch` is obeyed.
    pub watch_enabled: bool,
    /// Commands of operators that listeners obey.
    pub admin_commands: Commands,
    /// Admin HTTP, unless it is off.
    pub admin: Option<HostPort>,
    /// How long a graceful stop goes on accepting.
    pub lame_duck: Duration,
    /// Longest graceful stop.
    pub drain_timeout: Duration,
    /// What is logged, and how.
    pub log: LogSettings,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// One JSON object a line, rather than text.
    pub json: bool,
    /// Least level that is logged whatever the verbosity.
    pub base: tracing::Level,
    /// memcached's count of `-v`.
    pub verbosity: u32,
}

impl LogSettings {
    /// The least level that is logged.
    pub fn level(&self) -> tracing::Level {
        crate::logging::level(self.base, self.verbosity)
    }
}

impl Settings {
    /// Takes what is in force, if it fits together.
    ///
    /// # Errors
    /// [`Refused`] with every pair of options that cannot be had together.
    pub fn new(resolved: &Resolved) -> Result<Self, Refused> {
        let seconds = |id| Duration::from_secs(number(resolved, id));
        let idle_timeout = seconds(Id::IdleTimeout);
        let unix_socket = path(resolved, Id::UnixSocket);
        // As with memcached, a Unix socket takes the place of TCP; asking for both by name gives both.
        let tcp = unix_socket.is_none() || resolved.is_set(Id::Listen);
        let settings = Self {
            port: narrow(resolved, Id::Port),
            listen: if tcp { addresses(resolved) } else { Vec::new() },
            batch_port: batch_port(resolved),
            unix_socket,
            unix_mask: mode(resolved),
            extra_listeners: resolved.listeners.iter().map(|(listener, _)| listener.clone()).collect(),
            backlog: narrow(resolved, Id::Backlog),
            max_connections: narrow(resolved, Id::MaxConnections),
            idle_timeout: (!idle_timeout.is_zero()).then_some(idle_timeout),
            output_limit: narrow(resolved, Id::OutputLimit),
            memory: number(resolved, Id::Memory),
            client_memory: client_memory(resolved),
            evictions: !switch(resolved, Id::NoEvict),
            max_item_size: narrow(resolved, Id::MaxItemSize),
            stack: StackSettings::new(resolved),
            threads: narrow(resolved, Id::Threads),
            requests_per_event: narrow(resolved, Id::RequestsPerEvent),
            auth_file: path(resolved, Id::AuthFile),
            sasl: switch(resolved, Id::EnableSasl),
            login_timeout: seconds(Id::LoginTimeout),
            login_attempts: narrow(resolved, Id::LoginAttempts),
            shutdown_enabled: switch(resolved, Id::EnableShutdown),
            flush_enabled: !switch(resolved, Id::DisableFlushAll),
            dump_enabled: !switch(resolved, Id::DisableDumping),
            watch_enabled: !switch(resolved, Id::DisableWatch),
            admin_commands: commands(resolved),
            admin: admin(resolved),
            lame_duck: seconds(Id::LameDuck),
            drain_timeout: seconds(Id::DrainTimeout),
            log: log(resolved),
        };
        let refusals = settings.contradictions(resolved);
        if refusals.is_empty() { Ok(settings) } else { Err(Refused(refusals)) }
    }

    fn contradictions(&self, resolved: &Resolved) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |id: Id, range: &str| refusals.push(Refusal::entry(resolved.entry(id), range));
        let needed = MemoryConfig::limit_min(self.max_item_size);
        if self.stack.has_memory() && needed > self.memory {
            let memory = resolved.entry(Id::Memory);
            let range = format!(
                "so that two such values and their bookkeeping, {}, fit into memory, which is {} ({})",
                Value::Size(needed.next_multiple_of(MIB)),
                memory.value,
                memory.origin
            );
            refuse(Id::MaxItemSize, &range);
        }
        if self.client_memory < self.max_item_size.saturating_mul(CLIENT_MEMORY_ITEMS_MIN) {
            let needed = (self.max_item_size * CLIENT_MEMORY_ITEMS_MIN) as u64;
            let range = format!(
                "at least four times --max-item-size, {}, so that a request with such a value can be waited for",
                Value::Size(needed.next_multiple_of(MIB))
            );
            refuse(Id::ClientMemory, &range);
        }
        if self.sasl && self.auth_file.is_none() {
            refuse(Id::EnableSasl, "given together with auth_file, the file of users who may log in");
        }
        if self.listen.is_empty() && self.unix_socket.is_none() && self.extra_listeners.is_empty() {
            refuse(Id::Listen, "at least one address, unless unix_socket or a [[listener]] says where to listen");
        }
        if self.batch_port.is_some() && self.listen.is_empty() {
            refuse(Id::BatchPort, "given together with a host in listen, on which it is opened");
        }
        if self.batch_port.is_some_and(|batch| batch != 0 && self.is_listened_on(batch)) {
            refuse(Id::BatchPort, "another port than those of port and listen");
        }
        refusals.extend(stack::contradictions(resolved));
        refusals
    }

    fn is_listened_on(&self, port: u16) -> bool {
        self.listen.iter().any(|address| address.port.unwrap_or(self.port) == port)
    }
}

/// Least of the client memory, in largest values: a request is admitted if it takes half of what is left up to seven eighths.
const CLIENT_MEMORY_ITEMS_MIN: usize = 4;
/// Client memory in largest values, where it was not said and the values are large.
const CLIENT_MEMORY_ITEMS: usize = 8;

fn client_memory(resolved: &Resolved) -> usize {
    let given: usize = narrow(resolved, Id::ClientMemory);
    if resolved.is_set(Id::ClientMemory) {
        return given;
    }
    let item_max: usize = narrow(resolved, Id::MaxItemSize);
    given.max(item_max.saturating_mul(CLIENT_MEMORY_ITEMS))
}

/// A plain number, bytes or seconds.
pub fn number(resolved: &Resolved, id: Id) -> u64 {
    match resolved.value(id) {
        Value::Number(number) | Value::Size(number) | Value::Seconds(number) => *number,
        other => unreachable!("the table makes {id:?} a number, not {other:?}"),
    }
}

/// A time.
pub fn duration(resolved: &Resolved, id: Id) -> Duration {
    match resolved.value(id) {
        Value::Duration(time) => *time,
        other => unreachable!("the table makes {id:?} a time, not {other:?}"),
    }
}

/// A number whose range in the table is within `T`'s.
pub fn narrow<T: TryFrom<u64>>(resolved: &Resolved, id: Id) -> T {
    match T::try_from(number(resolved, id)) {
        Ok(number) => number,
        Err(_) => unreachable!("the table's range of {id:?} does not fit"),
    }
}

/// A directory with the bytes that may be kept in it.
pub fn place(resolved: &Resolved, id: Id) -> Option<(PathBuf, u64)> {
    match resolved.value(id) {
        Value::Place(place) => place.as_ref().map(|place| (place.path.clone(), place.bytes)),
        other => unreachable!("the table makes {id:?} a place, not {other:?}"),
    }
}

/// A switch.
pub fn switch(resolved: &Resolved, id: Id) -> bool {
    match resolved.value(id) {
        Value::Switch(on) => *on,
        other => unreachable!("the table makes {id:?} a switch, not {other:?}"),
    }
}

fn path(resolved: &Resolved, id: Id) -> Option<PathBuf> {
    match resolved.value(id) {
        Value::Path(path) => path.clone(),
        other => unreachable!("the table makes {id:?} a path, not {other:?}"),
    }
}

fn batch_port(resolved: &Resolved) -> Option<u16> {
    match resolved.value(Id::BatchPort) {
        Value::OptionalPort(port) => *port,
        other => unreachable!("the table makes this a port, not {other:?}"),
    }
}

fn mode(resolved: &Resolved) -> u32 {
    match resolved.value(Id::UnixMask) {
        Value::Mode(mode) => *mode,
        other => unreachable!("the table makes this a mode, not {other:?}"),
    }
}

fn addresses(resolved: &Resolved) -> Vec<ListenAddress> {
    match resolved.value(Id::Listen) {
        Value::Addresses(addresses) => addresses.clone(),
        other => unreachable!("the table makes these addresses, not {other:?}"),
    }
}

fn commands(resolved: &Resolved) -> Commands {
    match resolved.value(Id::AdminCommands) {
        Value::Commands(commands) => *commands,
        other => unreachable!("the table makes these commands, not {other:?}"),
    }
}

fn admin(resolved: &Resolved) -> Option<HostPort> {
    match resolved.value(Id::Admin) {
        Value::Admin(address) => address.clone(),
        other => unreachable!("the table makes this an admin address, not {other:?}"),
    }
}

/// One of a few words.
pub fn word(resolved: &Resolved, id: Id) -> &'static str {
    match resolved.value(id) {
        Value::Choice(word) => word,
        other => unreachable!("the table makes {id:?} a choice, not {other:?}"),
    }
}

fn log(resolved: &Resolved) -> LogSettings {
    use tracing::Level;
    let base = match word(resolved, Id::LogLevel) {
        "error" => Level::ERROR,
        "warn" => Level::WARN,
        "debug" => Level::DEBUG,
        "trace" => Level::TRACE,
        _ => Level::INFO,
    };
    let verbosity = narrow(resolved, Id::Verbose);
    LogSettings { json: word(resolved, Id::LogFormat) == "json", base, verbosity }
}
