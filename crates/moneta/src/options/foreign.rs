//! Memcached's flags that have no meaning here: each is refused with the reason, and what to do instead.
//!
//! A script that was written for memcached must never run with a flag silently ignored.

/// A flag of memcached that is not an option here.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFlag {
    /// Short flag.
    pub short: char,
    /// Long flag.
    pub long: &'static str,
    /// Whether a value follows.
    pub takes_value: bool,
    /// The one value that already describes what this server does, so that it may be given.
    pub accepted: Option<&'static str>,
    /// Why it is refused, and what to do.
    pub reason: &'static str,
}

const fn refused(short: char, long: &'static str, takes_value: bool, reason: &'static str) -> ForeignFlag {
    ForeignFlag { short, long, takes_value, accepted: None, reason }
}

/// All of them, by memcached 1.6.
pub const FOREIGN: &[ForeignFlag] = &[
    ForeignFlag { accepted: Some("0"), ..refused('U', "udp-port", true, "UDP is not offered; leave it out or give 0") },
    ForeignFlag {
        accepted: Some("auto"),
        ..refused('B', "protocol", true, "all three protocols are served on one port; leave it out or give auto")
    },
    refused(
        'd',
        "daemon",
        false,
        "the node stays in the foreground; let a supervisor run it (deploy/moneta.service is a systemd unit)",
    ),
    refused(
        'u',
        "user",
        true,
        "the node does not change its user; start it as the one it should run as (User= in a systemd unit)",
    ),
    refused('P', "pidfile", true, "no pid file is written; a supervisor knows the process (systemctl show -p MainPID)"),
    refused('r', "enable-coredumps", false, "use `ulimit -c unlimited` or LimitCORE= in a systemd unit"),
    refused(
        'k',
        "lock-memory",
        false,
        "memory is not locked; turn swap off for the service (MemorySwapMax=0 in a systemd unit)",
    ),
    refused('f', "slab-growth-factor", true, "there are no slab classes to tune"),
    refused('n', "slab-min-size", true, "there are no slab classes to tune"),
    refused(
        'L',
        "enable-largepages",
        false,
        "large pages are left to the kernel (/sys/kernel/mm/transparent_hugepage)",
    ),
    refused('D', "prefix-delimiter", true, "the delimiter of `stats detail` is `:`"),
    refused('C', "disable-cas", false, "every item has a CAS value"),
    refused('e', "memory-file", true, "items are kept over a restart on SSD: give --flash PATH:SIZE"),
    refused('Z', "enable-ssl", false, "TLS is not offered; put a TLS proxy in front, or listen on a Unix socket"),
    refused('N', "napi_ids", true, "connections are spread over the workers without the network card's queues"),
    refused('i', "license", false, "the licence is Apache-2.0, in the file LICENSE"),
];

/// The names of memcached's own tier on SSD begin with it.
const EXTSTORE: &str = "ext_";

/// Sentence that refuses `-o NAME`, for every name but `idle_timeout`.
pub fn extended(name: &str) -> String {
    if name.starts_with(EXTSTORE) {
        return format!("-o {name}: the SSD tier has options of its own, beginning with --flash PATH:SIZE");
    }
    format!("-o {name}: this memcached option is not known here; only idle_timeout=SECONDS may be given to -o")
}
