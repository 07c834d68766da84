//! How the node is watched, stopped and logged.

use std::sync::Arc;
use std::time::Duration;

use moneta_net::HostPort;
use moneta_options::declaration::Opt;
use moneta_options::kinds::address::{AdminAddress, HostNames};
use moneta_options::kinds::numbers::{Count, Milliseconds, Seconds, Size, Switch};
use moneta_options::kinds::units::GIB;
use moneta_options::kinds::words::Choice;
use moneta_options::section;
use moneta_options::subscribers::{Effect, Subscribers};
use moneta_options::values::Values;
use moneta_server::config::ServerConfig;
use moneta_server::node::{Node, NodeSettings};
use tracing::Level;

use crate::options::sections::control::CONTROL;
use moneta_process::logging::{LogFormat, LogLevel, LogSettings};

/// How long others may take to hear from the control plane that a process leaves.
const TOLD: Duration = Duration::from_secs(2);

section! {
    "Operation";

    /// Address of the admin HTTP listener, or `off`.
    ADMIN: AdminAddress =
        Opt::new("admin", AdminAddress, || Some(HostPort::new("127.0.0.1", 11_280)))
            .when(
                "When metrics are scraped from another machine, or several nodes share one. Beyond this machine it takes \
                 users, certificates, or admin_open.",
            );

    /// TLS on the admin listener, with tls_cert.
    ADMIN_TLS: Choice<bool> = Opt::new("admin_tls", Choice(&[("on", true), ("off", false)]), || true)
        .when("off where what asks it is on this machine and speaks no TLS.");

    /// Let the admin listener be beyond this machine where neither users nor certificates are asked for.
    ADMIN_OPEN: Switch = Opt::new("admin_open", Switch, || false)
        .when("Where the network keeps strangers out: they could read keys, and change how the process runs.");

    /// Answer /metrics also to those who would have to be users, or to show a certificate.
    ADMIN_METRICS_OPEN: Switch = Opt::new("admin_metrics_open", Switch, || false)
        .when("Where what scrapes metrics has no token.");

    /// Host names under which the admin listener is asked, beside addresses, `localhost` and this machine's name; others are
    /// refused.
    ADMIN_HOSTS: HostNames = Opt::new("admin_hosts", HostNames, Vec::new)
        .when("When what asks it goes by another name.");

    /// How long a graceful stop goes on serving, while /readyz answers 503 already. With a control plane 2 seconds where nothing
    /// is set.
    LAME_DUCK: Seconds = Opt::new("lame_duck", Seconds { min: 0, max: 3_600 }, || Duration::ZERO)
        .adjusted(|options, default| if options.get(&CONTROL).is_empty() { default } else { TOLD })
        .live()
        .when("Behind a balancer that goes by /readyz: two or three of its checks.");

    /// How long a graceful stop waits for replies to leave before it closes what is left.
    DRAIN_TIMEOUT: Seconds = Opt::new("drain_timeout", Seconds { min: 0, max: 3_600 }, || ServerConfig::DRAIN_TIMEOUT)
        .live()
        .when("Shorter than what the supervisor waits.");

    /// Find the keys that clients ask for most, from one command in 61.
    HOT_KEYS: Choice<bool> = Opt::new("hot_keys", Choice(&[("on", true), ("off", false)]), || true)
        .live()
        .when("off where keys must not be kept beside their items. It takes 150 KiB a worker.");

    /// Keep the curve of misses over RAM (size.md). A proxy keeps none.
    MISS_CURVE: Choice<bool> = Opt::new("miss_curve", Choice(&[("on", true), ("off", false)]), || true)
        .live()
        .when("off to save its 1 MiB of RAM, and half a percent of the CPU of a get.");

    /// How long a request waits for an SSD, a server or nodes before it is kept in the slow log; 0 keeps none.
    SLOW_LOG_TIME: Milliseconds = Opt::new("slow_log_time", Milliseconds { min: 0, max: 60_000 }, || Duration::from_millis(100))
        .live()
        .when("Where clients give up earlier or later. It is measured in turns of a worker: about a millisecond.");

    /// Size from which a value that is read or written is kept in the slow log; 0 keeps none.
    SLOW_LOG_BYTES: Size<usize> = Opt::new("slow_log_bytes", Size::in_bytes(0, GIB), || 512 << 10)
        .live()
        .when("Where values of that size are what clients are meant to store.");

    /// Form of the log on standard error.
    LOG_FORMAT: Choice<LogFormat> =
        Opt::new("log_format", Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]), || LogFormat::Text)
            .when("json where a collector reads the log.");

    /// Least level that is logged.
    LOG_LEVEL: Choice<Level> = Opt::new(
        "log_level",
        Choice(&[
            ("error", Level::ERROR),
            ("warn", Level::WARN),
            ("info", Level::INFO),
            ("debug", Level::DEBUG),
            ("trace", Level::TRACE),
        ]),
        || Level::INFO,
    )
    .live()
    .when("debug or trace while looking for a fault.");

    /// Log more, whatever --log-level says: -v debug, -vv and more trace.
    VERBOSE: Count = Opt::new("verbose", Count { max: 3 }, || 0)
        .short('v')
        .live()
        .when("On the command line while looking for a fault.");
}

/// What is logged, and how.
pub fn log(options: &Values) -> LogSettings {
    LogSettings { format: options.get(&LOG_FORMAT), base: options.get(&LOG_LEVEL), verbosity: options.get(&VERBOSE) }
}

/// Tells the server how it stops, and sessions what `stats settings` shows.
pub fn configure(options: &Values, server: &mut ServerConfig, node: &mut NodeSettings) {
    server.lame_duck = options.get(&LAME_DUCK);
    server.drain_timeout = options.get(&DRAIN_TIMEOUT);
    node.verbosity = options.get(&VERBOSE);
    node.hot_keys = options.get(&HOT_KEYS);
    node.miss_curve = options.get(&MISS_CURVE);
    node.slow_milliseconds = milliseconds(options.get(&SLOW_LOG_TIME));
    node.slow_bytes = options.get(&SLOW_LOG_BYTES);
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Lets a reload change how the process stops, and what is logged.
pub fn subscribe(subscribers: &mut Subscribers, node: &Arc<Node>, log_level: &LogLevel) {
    let phases = Arc::clone(&node.phases);
    subscribers.set(&LAME_DUCK, move |duration| phases.set_lame_duck(duration));
    let live = Arc::clone(&node.live);
    subscribers.set(&DRAIN_TIMEOUT, move |timeout| live.set_drain_timeout(timeout));
    let level = log_level.clone();
    subscribers.set(&LOG_LEVEL, move |base| level.set_base(base));
    let found = Arc::clone(node);
    subscribers.set(&HOT_KEYS, move |are_found| found.find_hot_keys(are_found));
    let kept = Arc::clone(node);
    subscribers.set(&MISS_CURVE, move |is_kept| kept.keep_miss_curve(is_kept));
    let slow_log = Arc::clone(&node.slow_log);
    subscribers.set(&SLOW_LOG_TIME, move |time| slow_log.set_milliseconds(milliseconds(time)));
    let slow_log = Arc::clone(&node.slow_log);
    subscribers.set(&SLOW_LOG_BYTES, move |bytes| slow_log.set_bytes(bytes));
    let (node, level) = (Arc::clone(node), log_level.clone());
    // Also where the option is the same: a client may have changed the verbosity.
    subscribers.on(&VERBOSE, move |change| {
        let (node, level) = (Arc::clone(&node), level.clone());
        Ok(Effect::now(move || {
            node.set_verbosity(change.to);
            level.set_own_verbosity(change.to);
        }))
    });
}
