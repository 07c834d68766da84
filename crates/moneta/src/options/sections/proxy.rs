//! A proxy: it keeps no items and answers from the nodes of a cluster.

use std::time::Duration;

use moneta_client::wire::Protocol;
use moneta_cluster::{Ack, Cluster, ClusterConfig, Fallback};
use moneta_net::Address;
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Milliseconds, Number, Share, Size, Switch};
use moneta_options::kinds::paths::File;
use moneta_options::kinds::units::{KIB, MIB, TIB};
use moneta_options::kinds::words::{Choice, Name};
use moneta_options::section;
use moneta_options::subscribers::Subscribers;
use moneta_options::values::Values;
use moneta_remote::RemoteConfig;
use moneta_server::node::NodeSettings;

use crate::options::kinds::topology::TopologySource;
use crate::options::kinds::words::Zone;
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::{cluster, remote};

section! {
    "Proxy";

    /// Where it is said which nodes hold which copies of the data (topology.md).
    TOPOLOGY: TopologySource = Opt::new("topology", TopologySource, || None)
        .when("For `moneta proxy`, and only for it. Changes are taken within seconds.");

    /// The zone of this process: reads of a proxy go to the copies there first, and the control plane is told of it.
    ZONE: Zone = Opt::new("zone", Zone, || None)
        .when("Where there is more than one zone.");

    /// The app's name in metrics, messages and files of hints, and at the control plane.
    APP: Name = Opt::new("app", Name, || Some("default".into()))
        .when("Where several proxies run on one machine. For several apps on one proxy see the [[app]] tables.");

    /// This proxy answers as before, and says that clients are to go to another one: OUT_OF_SERVICE at the control plane, and not
    /// ready to health checks.
    DRAIN: Switch = Opt::new("drain", Switch, || false)
        .live()
        .when("As a property: `moneta region drain` sets it for all proxies of a region (docs/relay.md).");

    /// How many copies must have taken a write before it is answered; `quorum` is more than half, and of two copies the one that
    /// answers while the other is away.
    ACK: Choice<Ack> = Opt::new(
        "ack",
        Choice(&[
            ("none", Ack::None),
            ("one", Ack::One),
            ("quorum", Ack::Quorum),
            ("all-but-one", Ack::AllButOne),
            ("all", Ack::All),
        ]),
        || Ack::Quorum,
    )
    .live()
        .when(
            "one: writes go on while one copy is left, and may be lost with it. all: every zone reads what any other \
             wrote, and no write succeeds while a copy is down.",
        );

    /// When a read goes to another zone's copy: when the near one fails, also when it misses, or never.
    READ_FALLBACK: Choice<Fallback> = Opt::new(
        "read_fallback",
        Choice(&[("none", Fallback::None), ("error", Fallback::Error), ("miss", Fallback::Miss)]),
        || Fallback::Miss,
    )
    .live()
        .when("error: where most misses are keys that no copy has.");

    /// Reads that may go to a second copy, in percent of all reads.
    RETRY_BUDGET: Share = Opt::new("retry_budget", Share { max: 100 }, || 50)
        .live()
        .when("Higher where a whole zone may come back empty and should be filled fast.");

    /// How long a request to a node may take; a second more for each MiB that moves on its connection meanwhile.
    NODE_TIMEOUT: Milliseconds =
        Opt::new("node_timeout", Milliseconds { min: 1, max: 60_000 }, || Duration::from_millis(250))
            .live()
            .when("Shorter where a read should go to another copy sooner.");

    /// Connections of each worker thread to each node; large values have one more.
    NODE_CONNECTIONS: Number<usize> = Opt::new("node_connections", Number { min: 1, max: 64 }, || 1)
        .when("Higher where one does not carry what a thread asks of a node.");

    /// Requests that wait for an answer on one connection to a node, at most. More are not sent: a read goes to another copy, a
    /// write becomes a hint.
    NODE_REQUESTS: Number<usize> =
        Opt::new("node_requests", Number { min: 1, max: RemoteConfig::IN_FLIGHT_MAX }, || 16 << 10)
            .when("Lower where a slow node should hold up fewer requests.");

    /// Bytes that wait to be sent on one connection to a node, at most; more are not sent.
    NODE_BUFFER: Size<usize> = Opt::new("node_buffer", Size::in_bytes(KIB, TIB), || 64 << 20)
        .when("Lower where memory is short: nodes that hang cost it, times threads and connections.");

    /// Failures of a node in a row after which it is not asked until it answers a probe (cluster.md).
    EJECT_AFTER: Number<u32> = Opt::new("eject_after", Number { min: 1, max: 10_000 }, || 5)
        .live()
        .when("Higher where single failures mean nothing.");

    /// A node that takes longer than this to answer, on average, is ejected if others are far faster and writes have enough
    /// copies without it. 0: none is.
    EJECT_SLOW: Milliseconds = Opt::new("eject_slow", Milliseconds { min: 0, max: 60_000 }, || Duration::from_millis(100))
        .live()
        .when("Longer than what the farthest zone and slow devices take on a bad day.");

    /// How many times slower than the median of others a slow node is, at least.
    EJECT_SLOW_TIMES: Number<u32> = Opt::new("eject_slow_times", Number { min: 1, max: 10_000 }, || 5)
        .live()
        .when("Higher where nodes differ by nature, as SSD and RAM do.");

    /// Requests over which a node is judged to be slow, at least.
    EJECT_SLOW_REQUESTS: Number<u32> = Opt::new("eject_slow_requests", Number { min: 1, max: 1_000_000 }, || 10)
        .live()
        .when("Higher where a few slow requests mean nothing.");

    /// Nodes of a zone, in percent, that may be ejected at once for being slow or silent; at 0% one, unless it has the last copy
    /// of a key.
    EJECT_SHARE: Share = Opt::new("eject_share", Share { max: 100 }, || 0)
        .live()
        .when("Higher where zones have many nodes.");

    /// Operations a second of each app; 0 sets no limit.
    APP_OPERATIONS: Number<u64> = Opt::new("app_operations", Number { min: 0, max: 1_000_000_000 }, || 0)
        .live()
        .when("Where one app must not take what others need. Of each proxy: with ten, a tenth.");

    /// Bytes a second of each app, keys and values, in requests and replies; 0 sets no limit.
    APP_BYTES: Size<u64> = Opt::new("app_bytes", Size::in_bytes(0, TIB), || 0)
        .live()
        .when("Where one app must not fill the network.");

    /// Client connections of each app at once, over all listeners that are its own; 0 sets no limit.
    APP_CONNECTIONS: Number<usize> = Opt::new("app_connections", Number { min: 0, max: 1_000_000 }, || 0)
        .live()
        .when("Where an app must not take the connections of others.");

    /// Folder for what outlives this process: the last good topology, and hints, the writes that nodes have missed.
    HINT_DIR: File = Opt::new("hint_dir", File, || None)
        .when("In production. Two proxies of an app cannot share it.");

    /// Memory for the hints of one node. Where more was missed, keys are in doubt until they were compared with other copies.
    HINT_MEMORY: Size<u64> = Opt::new("hint_memory", Size::in_bytes(1024, TIB), || 16 * MIB)
        .when("Larger where a node may be away for long: a hint takes about 100 bytes and twice its key.");

    /// Hints given to a node in a second, at most.
    HINT_RATE: Number<u32> = Opt::new("hint_rate", Number { min: 1, max: 10_000_000 }, || 5000)
        .live()
        .when("Lower where many proxies may have hints for one node.");

    /// After how long without a word from another proxy of the app its last writes are compared on all copies (cluster.md); each
    /// proxy that lives makes it a second longer. 0: this proxy neither does that nor says that it lives.
    MEND_AFTER: Milliseconds = Opt::new("mend_after", Milliseconds { min: 0, max: 120_000 }, || Duration::from_secs(40))
        .when("The same for all proxies of an app. Shorter where copies must not differ for long after a proxy is killed.");
}

/// What the cluster store of the app `name` is told.
pub fn config(options: &Values, name: &str, allow_flush: bool) -> ClusterConfig {
    ClusterConfig {
        zone: options.get(&ZONE),
        ack: options.get(&ACK),
        fallback: options.get(&READ_FALLBACK),
        retry_budget: options.get(&RETRY_BUDGET).into(),
        eject_after: options.get(&EJECT_AFTER),
        eject_slow: options.get(&EJECT_SLOW),
        eject_slow_times: options.get(&EJECT_SLOW_TIMES),
        eject_slow_requests: options.get(&EJECT_SLOW_REQUESTS),
        eject_share: options.get(&EJECT_SHARE).into(),
        under_way: ClusterConfig::under_way_of(options.get(&NODE_TIMEOUT)),
        hint_bytes: options.get(&HINT_MEMORY),
        hint_dir: options.get(&HINT_DIR),
        hint_rate: options.get(&HINT_RATE),
        mend_after: options.get(&MEND_AFTER),
        clock_skew_max: Duration::from_millis(cluster::skew_max(options)),
        allow_flush,
        ..ClusterConfig::new(name)
    }
}

/// Lets a reload change by which rules an app's cluster reads and writes, and when it ejects nodes.
pub fn subscribe(subscribers: &mut Subscribers, cluster: &Cluster) {
    let of = || cluster.clone();
    let cluster = of();
    subscribers.set(&ACK, move |ack| cluster.rules().set_ack(ack));
    let cluster = of();
    subscribers.set(&READ_FALLBACK, move |fallback| cluster.rules().set_fallback(fallback));
    let cluster = of();
    subscribers.set(&RETRY_BUDGET, move |percent| cluster.rules().set_retry_budget(percent.into()));
    let cluster = of();
    subscribers.set(&EJECT_AFTER, move |failures| cluster.rules().set_eject_after(failures));
    let cluster = of();
    subscribers.set(&EJECT_SLOW, move |least| cluster.rules().set_eject_slow(least));
    let cluster = of();
    subscribers.set(&EJECT_SLOW_TIMES, move |times| cluster.rules().set_eject_slow_times(times));
    let cluster = of();
    subscribers.set(&EJECT_SLOW_REQUESTS, move |requests| cluster.rules().set_eject_slow_requests(requests));
    let cluster = of();
    subscribers.set(&EJECT_SHARE, move |percent| cluster.rules().set_eject_share(percent.into()));
    let cluster = of();
    subscribers.set(&NODE_TIMEOUT, move |timeout| cluster.set_node_timeout(timeout));
    let cluster = of();
    subscribers.set(&DISABLE_FLUSH_ALL, move |is_off| cluster.rules().set_allow_flush(!is_off));
    let cluster = of();
    subscribers.set(&HINT_RATE, move |a_second| cluster.rules().set_hint_rate(a_second));
}

/// What is said of the nodes.
pub fn node(options: &Values, address: Address) -> RemoteConfig {
    let server = remote::server(options, address);
    RemoteConfig {
        endpoint: server.endpoint.patient(options.get(&NODE_TIMEOUT)),
        protocol: Some(Protocol::Meta),
        connections: options.get(&NODE_CONNECTIONS),
        in_flight_max: options.get(&NODE_REQUESTS),
        unsent_max: options.get(&NODE_BUFFER),
        request_timeout: options.get(&NODE_TIMEOUT).into(),
        may_be_unknown: true,
        // A cluster shows none of them.
        asks_statistics: false,
        large_apart: true,
        ..server
    }
}

/// Tells sessions that clients cannot choose versions.
pub fn configure(is_proxy: bool, node: &mut NodeSettings) {
    node.cluster |= is_proxy;
    node.keeps_versions |= is_proxy;
}
