//! Where clients connect, and what a connection may take.

use std::sync::Arc;
use std::time::Duration;

use moneta_options::declaration::{Declaration, Opt};
use moneta_options::kinds::address::{Addresses, ListenAddress};
use moneta_options::kinds::numbers::{Mode, Number, OptionalPort, Seconds, Size};
use moneta_options::kinds::paths::File;
use moneta_options::kinds::units::{GIB, KIB, TIB};
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::subscribers::Subscribers;
use moneta_options::values::Values;
use moneta_server::config::{AddressLimits, Limits, ServerConfig};
use moneta_server::node::{Node, NodeSettings};

section! {
    "Network";

    /// TCP port for clients, on every address of --listen that names none; 0 takes a free one.
    PORT: Number<u16> = Opt::new("port", Number { min: 0, max: 65_535 }, || 11_211)
        .short('p')
        .when("When 11211 is taken. (memcached's -p 0 closes TCP; here --listen '' does.)");

    /// TCP addresses to listen on; may be repeated; an empty value: none.
    LISTEN: Addresses = Opt::new("listen", Addresses, || vec![ListenAddress { host: "127.0.0.1".into(), port: None, tls: None }])
        .short('l')
        .when(
            "When clients are on other machines: the interface they come through, or 0.0.0.0 and :: for all \
             (security.md).",
        );

    /// TCP port for bulk traffic, which leaves the RAM tier as it is, on the hosts of --listen; 0 takes a free one.
    BATCH_PORT: OptionalPort = Opt::new("batch_port", OptionalPort, || None)
        .example("11212")
        .when("When loads or copies run beside interactive traffic. 11212 is usual.");

    /// Unix socket to listen on, in place of TCP unless --listen is given too.
    UNIX_SOCKET: File = Opt::new("unix_socket", File, || None)
        .short('s')
        .example("\"\"")
        .when("When file permissions are to decide who may connect.");

    /// Permissions of the Unix socket.
    UNIX_MASK: Mode = Opt::new("unix_mask", Mode, || 0o700)
        .short('a')
        .when("When clients run as another user: 770 admits the node's group.");

    /// Connections the kernel keeps waiting for each listener, up to net.core.somaxconn.
    BACKLOG: Number<u32> = Opt::new("backlog", Number { min: 1, max: 65_535 }, || 1024)
        .short('b')
        .alias("listen-backlog")
        .when("When many clients connect at once and see timeouts.");

    /// Most client connections at once; more are told so and closed.
    MAX_CONNECTIONS: Number<usize> = Opt::new("max_connections", Number { min: 1, max: 1_000_000 }, || 1024)
        .short('c')
        .alias("conn-limit")
        .live()
        .when("When clients times their pool size comes near it.");

    /// Operations a second of each listener (operating.md); 0 sets no limit. A [[listener]] may have its own.
    MAX_OPERATIONS: Number<u64> = Opt::new("max_operations", Number { min: 0, max: 1_000_000_000 }, || 0)
        .live()
        .when("Where clients of one listener must not take the machine.");

    /// Bytes a second of each listener, requests and replies; 0 sets no limit. A [[listener]] may have its own.
    MAX_BYTES: Size<u64> = Opt::new("max_bytes", Size::in_bytes(0, TIB), || 0)
        .live()
        .when("Where clients of one listener must not fill the network.");

    /// Connections of one client address at once, over all TCP listeners; 0 sets no limit.
    ADDRESS_CONNECTIONS: Number<usize> = Opt::new("address_connections", Number { min: 0, max: 1_000_000 }, || 0)
        .live()
        .when("Where one client must not take the connections of all.");

    /// Operations a second of one client address; 0 sets no limit.
    ADDRESS_OPERATIONS: Number<u64> = Opt::new("address_operations", Number { min: 0, max: 1_000_000_000 }, || 0)
        .live()
        .when("Where one client that loops must not slow down all.");

    /// Bytes a second of one client address, requests and replies; 0 sets no limit.
    ADDRESS_BYTES: Size<u64> = Opt::new("address_bytes", Size::in_bytes(0, TIB), || 0)
        .live()
        .when("Where one client must not fill the network.");

    /// Close connections that sent nothing for this long; 0 never does.
    IDLE_TIMEOUT: Seconds = Opt::new("idle_timeout", Seconds { min: 0, max: 31_536_000 }, || Duration::ZERO)
        .extended()
        .live()
        .when("When clients vanish without closing, as behind some load balancers.");

    /// How long a TCP client may be silent before its machine is asked whether it is there; closed after half as long again. 0
    /// leaves it to the system.
    TCP_KEEPALIVE: Seconds = Opt::new("tcp_keepalive", Seconds { min: 0, max: 86_400 }, || ServerConfig::TCP_KEEPALIVE)
        .when("Longer where clients are paused for minutes.");

    /// Unsent replies of one connection after which its requests wait until it reads.
    OUTPUT_LIMIT: Size<usize> = Opt::new("output_limit", Size::in_bytes(16 * KIB, GIB), || ServerConfig::OUTPUT_LIMIT)
        .live()
        .when("Lower with very many slow readers; higher if large multi-gets stall.");

    /// How long a client may take nothing of its dump of keys before it is closed; one dump is served at a time.
    DUMP_TIMEOUT: Seconds = Opt::new("dump_timeout", Seconds { min: 1, max: 86_400 }, || ServerConfig::DUMP_TIMEOUT)
        .live()
        .when("Longer where what reads a dump works on each part.");
}

/// The TCP addresses; none if only Unix sockets are wanted.
pub fn listen(options: &Values) -> Vec<ListenAddress> {
    // As with memcached, a Unix socket takes the place of TCP; asking for both by name gives both.
    let tcp = options.get(&UNIX_SOCKET).is_none() || options.is_set(&LISTEN);
    if tcp { options.get(&LISTEN) } else { Vec::new() }
}

/// Limits where 0 is none.
pub fn limits(operations: u64, bytes: u64) -> Limits {
    Limits { operations: (operations > 0).then_some(operations), bytes: (bytes > 0).then_some(bytes) }
}

/// What the connections of a listener may do together: what is `written` of it, else what the options say of each.
pub fn listener_limits(options: &Values, written: Limits) -> Limits {
    let operations = written.operations.unwrap_or_else(|| options.get(&MAX_OPERATIONS));
    limits(operations, written.bytes.unwrap_or_else(|| options.get(&MAX_BYTES)))
}

/// Tells the server what a connection may take, and sessions what `stats settings` shows of listeners.
pub fn configure(options: &Values, server: &mut ServerConfig, node: &mut NodeSettings) {
    let listen = listen(options);
    let (backlog, max_connections) = (options.get(&BACKLOG), options.get(&MAX_CONNECTIONS));
    let idle_timeout = options.get(&IDLE_TIMEOUT);
    server.max_connections = max_connections;
    server.backlog = backlog;
    server.idle_timeout = (!idle_timeout.is_zero()).then_some(idle_timeout);
    let connections = options.get(&ADDRESS_CONNECTIONS);
    server.address = AddressLimits {
        connections: (connections > 0).then_some(connections),
        rates: limits(options.get(&ADDRESS_OPERATIONS), options.get(&ADDRESS_BYTES)),
    };
    let keepalive = options.get(&TCP_KEEPALIVE);
    server.tcp_keepalive = (!keepalive.is_zero()).then_some(keepalive);
    server.output_limit = options.get(&OUTPUT_LIMIT);
    server.dump_timeout = options.get(&DUMP_TIMEOUT);
    node.max_connections = max_connections as u64;
    node.tcp_port = if listen.is_empty() { 0 } else { options.get(&PORT) };
    node.interface = if listen.is_empty() { String::new() } else { LISTEN.in_force(options) };
    node.unix_socket = options.get(&UNIX_SOCKET).map(|path| path.display().to_string());
    node.unix_mode = options.get(&UNIX_MASK);
    node.backlog = backlog;
    node.idle_timeout = u32::try_from(idle_timeout.as_secs()).unwrap_or(u32::MAX);
}

/// Lets a reload change what a connection may take.
pub fn subscribe(subscribers: &mut Subscribers, node: &Arc<Node>) {
    let live = Arc::clone(&node.live);
    subscribers.set(&MAX_CONNECTIONS, move |most| live.set_max_connections(most));
    let node_of_idle = Arc::clone(node);
    subscribers.set(&IDLE_TIMEOUT, move |timeout| {
        node_of_idle.live.set_idle_timeout(timeout);
        // Workers that have nothing to do look at the time of idle connections only from their next turn on.
        node_of_idle.phases.wake_all();
    });
    let some = |most: u64| (most > 0).then_some(most);
    let live = Arc::clone(&node.live);
    subscribers.set(&MAX_OPERATIONS, move |most| live.set_operations(some(most)));
    let live = Arc::clone(&node.live);
    subscribers.set(&MAX_BYTES, move |most| live.set_bytes(some(most)));
    let live = Arc::clone(&node.live);
    subscribers.set(&ADDRESS_CONNECTIONS, move |most| live.addresses.set_connections((most > 0).then_some(most)));
    let live = Arc::clone(&node.live);
    subscribers.set(&ADDRESS_OPERATIONS, move |most| live.addresses.rates.set_operations(some(most)));
    let live = Arc::clone(&node.live);
    subscribers.set(&ADDRESS_BYTES, move |most| live.addresses.rates.set_bytes(some(most)));
    let live = Arc::clone(&node.live);
    subscribers.set(&DUMP_TIMEOUT, move |timeout| live.set_dump_timeout(timeout));
    let live = Arc::clone(&node.live);
    subscribers.set(&OUTPUT_LIMIT, move |bytes| live.set_output_limit(bytes));
}

/// What cannot be had together; `has_more`: whether there are listeners beside those of the options.
pub fn contradictions(options: &Values, has_more: bool) -> Vec<Refusal> {
    let listen = listen(options);
    let batch_port = options.get(&BATCH_PORT);
    let is_listened_on = |port| listen.iter().any(|address| address.port.unwrap_or(options.get(&PORT)) == port);
    let mut refusals = Vec::new();
    if listen.is_empty() && options.get(&UNIX_SOCKET).is_none() && !has_more {
        let range = "at least one address, unless unix_socket or a [[listener]] says where to listen";
        refusals.push(options.refuse(&LISTEN, range));
    }
    if batch_port.is_some() && listen.is_empty() {
        refusals.push(options.refuse(&BATCH_PORT, "given together with a host in listen, on which it is opened"));
    }
    if batch_port.is_some_and(|port| port != 0 && is_listened_on(port)) {
        refusals.push(options.refuse(&BATCH_PORT, "another port than those of port and listen"));
    }
    refusals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::serve;
    use crate::options::resolve::Resolved;

    #[test]
    fn what_is_said_of_connections_reaches_the_server() {
        let flags = ["serve", "--idle-timeout", "9", "--dump-timeout", "7", "-b", "5"];
        let resolved = Resolved::gather(&serve::command().get_matches_from(flags), |_| None).expect("they are allowed");
        let (mut server, mut node) = (ServerConfig::default(), NodeSettings::default());
        configure(&resolved.values, &mut server, &mut node);
        assert_eq!((server.idle_timeout, node.idle_timeout), (Some(Duration::from_secs(9)), 9));
        assert_eq!(server.dump_timeout, Duration::from_secs(7));
        assert_eq!((server.backlog, node.backlog), (5, 5));
    }
}
