//! Memcached's flags that are not options here: start scripts give them.
//!
//! Each is done, named in the log as one that changes nothing here, or refused with the reason and what to do instead. None is
//! silently ignored.

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Done as memcached does it.
    Done,
    /// The node starts and says in its log that the flag changes nothing.
    Noted,
    /// The node does not start.
    Refused,
}

/// A flag of memcached that is not an option here.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFlag {
    /// Short flag.
    pub short: char,
    /// Long flag.
    pub long: &'static str,
    /// Whether a value follows.
    pub takes_value: bool,
    /// What becomes of it.
    pub fate: Fate,
    /// The one value of a refused flag that already describes what this server does, so that it may be given.
    pub accepted: Option<&'static str>,
    /// What it does, or why it does nothing or is refused, and what to do instead.
    pub meaning: &'static str,
}

const fn flag(short: char, long: &'static str, takes_value: bool, fate: Fate, meaning: &'static str) -> ForeignFlag {
    ForeignFlag { short, long, takes_value, fate, accepted: None, meaning }
}

/// Long name of the flag that puts the node into the background.
pub const DAEMON: &str = "daemon";
/// Long name of the flag that names the user to run as.
pub const USER: &str = "user";
/// Long name of the flag that names the file for the process's number.
pub const PIDFILE: &str = "pidfile";
/// Long name of the flag that allows core dumps.
pub const CORE_DUMPS: &str = "enable-coredumps";

/// Long name of the flag that turns TLS on.
pub const TLS: &str = "enable-ssl";

/// All of them, by memcached 1.6.
pub const FOREIGN: &[ForeignFlag] = &[
    flag(
        'd',
        DAEMON,
        false,
        Fate::Done,
        "the node goes into the background once it listens; its log stays on standard error, and the folder it was started in its own",
    ),
    flag(
        'u',
        USER,
        true,
        Fate::Done,
        "started by root, the node becomes this user before it opens a file or a port; started by another user, it stays that one",
    ),
    flag(
        'P',
        PIDFILE,
        true,
        Fate::Done,
        "the node writes its process number there once it listens, and removes the file at its end",
    ),
    flag('r', CORE_DUMPS, false, Fate::Done, "the limit on core dumps is raised as far as it goes"),
    flag(
        'k',
        "lock-memory",
        false,
        Fate::Noted,
        "memory is not locked; turn swap off for the service (MemorySwapMax=0 in a systemd unit)",
    ),
    flag('f', "slab-growth-factor", true, Fate::Noted, "there are no slab classes to tune"),
    flag('n', "slab-min-size", true, Fate::Noted, "there are no slab classes to tune"),
    flag(
        'L',
        "enable-largepages",
        false,
        Fate::Noted,
        "large pages are left to the kernel (/sys/kernel/mm/transparent_hugepage)",
    ),
    flag('C', "disable-cas", false, Fate::Noted, "every item has a CAS value"),
    ForeignFlag {
        accepted: Some("0"),
        ..flag('U', "udp-port", true, Fate::Refused, "UDP is not offered; leave it out or give 0")
    },
    ForeignFlag {
        accepted: Some("auto"),
        ..flag(
            'B',
            "protocol",
            true,
            Fate::Refused,
            "all three protocols are served on one port; leave it out or give auto",
        )
    },
    ForeignFlag {
        accepted: Some(":"),
        ..flag('D', "prefix-delimiter", true, Fate::Refused, "the delimiter of `stats detail` is `:`")
    },
    flag('e', "memory-file", true, Fate::Refused, "items are kept over a restart on SSD: give --flash PATH:SIZE"),
    flag(
        'Z',
        TLS,
        false,
        Fate::Done,
        "TCP listeners speak TLS, which takes a certificate: --tls-cert alone turns it on too, -o ssl_chain_cert needs this flag",
    ),
    flag(
        'N',
        "napi_ids",
        true,
        Fate::Refused,
        "connections are spread over the workers without the network card's queues",
    ),
    flag('i', "license", false, Fate::Refused, "the licence is Apache-2.0, in the file LICENSE"),
];
