//! The one table of options.
//!
//! An entry gives its key; the long flag (`max-item-size`), the environment variable (`MONETA_MAX_ITEM_SIZE`) and the key
//! of the TOML file (`max_item_size`) are that key in three spellings.

use crate::options::value::{GIB, KIB, Kind, MIB, TIB};

/// The options, in the order of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    Port,
    Listen,
    BatchPort,
    UnixSocket,
    UnixMask,
    Backlog,
    MaxConnections,
    IdleTimeout,
    OutputLimit,
    Memory,
    ClientMemory,
    NoEvict,
    MaxItemSize,
    L1,
    L2,
    Promote,
    Flash,
    FlashRegionSize,
    FlashStartEmpty,
    FlashFlushInterval,
    FlashDurability,
    FlashTimeout,
    FlashStopTimeout,
    FlashDirect,
    FlashIo,
    FlashIoThreads,
    FlashCarry,
    FlashIndexMemory,
    FlashWriteBudget,
    Rocks,
    RocksShards,
    RocksCompaction,
    RocksLog,
    RocksFlushInterval,
    RocksFilter,
    RocksCompression,
    RocksBlockCache,
    RocksDirect,
    RocksThreads,
    Lmdb,
    LmdbDurability,
    LmdbFlushInterval,
    LmdbThreads,
    RemoteProtocol,
    RemoteConnections,
    RemoteTimeout,
    RemoteConnectTimeout,
    RemotePieceSize,
    Threads,
    RequestsPerEvent,
    AuthFile,
    EnableSasl,
    LoginTimeout,
    LoginAttempts,
    EnableShutdown,
    DisableFlushAll,
    DisableDumping,
    DisableWatch,
    AdminCommands,
    Admin,
    LameDuck,
    DrainTimeout,
    LogFormat,
    LogLevel,
    Verbose,
}

/// What an option is about; the parts of the help and of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Network,
    Memory,
    Tiers,
    Flash,
    Rocks,
    Lmdb,
    Remote,
    Workers,
    Access,
    Operation,
}

impl Group {
    /// All, in the order shown.
    pub const ALL: [Group; 10] = [
        Group::Network,
        Group::Memory,
        Group::Tiers,
        Group::Flash,
        Group::Rocks,
        Group::Lmdb,
        Group::Remote,
        Group::Workers,
        Group::Access,
        Group::Operation,
    ];

    /// Heading in the help and in the documentation.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Network => "Network",
            Group::Memory => "Memory",
            Group::Tiers => "Tiers",
            Group::Flash => "SSD tier",
            Group::Rocks => "RocksDB tier",
            Group::Lmdb => "LMDB tier",
            Group::Remote => "Remote tiers",
            Group::Workers => "Workers",
            Group::Access => "Access",
            Group::Operation => "Operation",
        }
    }
}

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// On SIGHUP.
    Reload,
    /// After a restart.
    Restart,
}

/// All there is to know of an option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Which one it is.
    pub id: Id,
    /// Its name, words joined by underscores: the TOML key.
    pub key: &'static str,
    /// Short flag, memcached's where it has one.
    pub short: Option<char>,
    /// Memcached's long flag, where it is another word.
    pub alias: Option<&'static str>,
    /// Heading it stands under.
    pub group: Group,
    /// What it accepts.
    pub kind: Kind,
    /// Default, as text of its kind.
    pub default: &'static str,
    /// When a changed value takes effect.
    pub change: Change,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// When to change it.
    pub when: &'static str,
}

impl OptionSpec {
    /// The long flag, without its dashes.
    pub fn long(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable.
    pub fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.key.to_ascii_uppercase())
    }
}

impl Id {
    /// The option's entry.
    pub fn spec(self) -> &'static OptionSpec {
        &TABLE[self as usize]
    }
}

/// Every environment variable of an option begins with this.
pub const ENVIRONMENT_PREFIX: &str = "MONETA_";

const fn option(id: Id, key: &'static str, group: Group, kind: Kind, default: &'static str) -> OptionSpec {
    OptionSpec {
        id,
        key,
        short: None,
        alias: None,
        group,
        kind,
        default,
        change: Change::Restart,
        summary: "",
        when: "",
    }
}

/// All options of `moneta serve`.
pub const TABLE: &[OptionSpec] = &[
    OptionSpec {
        short: Some('p'),
        summary: "TCP port for clients, on every address of --listen that has none of its own; 0 takes a free one",
        when: "When 11211 is taken, or several nodes share a machine. (memcached's -p 0 closes TCP; here --listen '' does.)",
        ..option(Id::Port, "port", Group::Network, Kind::Number { min: 0, max: 65_535 }, "11211")
    },
    OptionSpec {
        short: Some('l'),
        summary: "TCP addresses to listen on; may be repeated",
        when: "When clients are on other machines: name the interface they come through, or 0.0.0.0 and :: for all, and read \
               operating.md on access first. An empty value listens on no TCP address.",
        ..option(Id::Listen, "listen", Group::Network, Kind::Addresses, "127.0.0.1")
    },
    OptionSpec {
        summary: "TCP port for bulk traffic, on the hosts of --listen: what comes through it leaves the RAM tier as it is; 0 takes \
                  a free one",
        when: "When loads, refreshes or copies of much data run beside interactive traffic: send them there. 11212 is usual.",
        ..option(Id::BatchPort, "batch_port", Group::Network, Kind::OptionalPort, "")
    },
    OptionSpec {
        short: Some('s'),
        summary: "Unix socket to listen on, in place of TCP unless --listen is given too",
        when: "When clients run on the same machine and file permissions are to decide who may connect.",
        ..option(Id::UnixSocket, "unix_socket", Group::Network, Kind::Path, "")
    },
    OptionSpec {
        short: Some('a'),
        summary: "Permissions of the Unix socket",
        when: "When clients run as another user than the node: 770 admits its group, 777 everybody.",
        ..option(Id::UnixMask, "unix_mask", Group::Network, Kind::Mode, "700")
    },
    OptionSpec {
        short: Some('b'),
        alias: Some("listen-backlog"),
        summary: "Connections the kernel keeps waiting for each listener",
        when: "When many clients connect at the same moment and see timeouts; the kernel caps it at net.core.somaxconn.",
        ..option(Id::Backlog, "backlog", Group::Network, Kind::Number { min: 1, max: 65_535 }, "1024")
    },
    OptionSpec {
        short: Some('c'),
        alias: Some("conn-limit"),
        summary: "Most client connections at once; more are told so and closed",
        when: "When clients times their pool size comes near it. Each needs a file descriptor.",
        ..option(Id::MaxConnections, "max_connections", Group::Network, Kind::Number { min: 1, max: 1_000_000 }, "1024")
    },
    OptionSpec {
        summary: "Close connections that sent nothing for this long; 0 never does",
        when: "When clients vanish without closing, as behind some load balancers. -o idle_timeout=N is the same.",
        ..option(Id::IdleTimeout, "idle_timeout", Group::Network, Kind::Seconds { min: 0, max: 31_536_000 }, "0")
    },
    OptionSpec {
        summary: "Unsent replies of one connection after which no more of its requests are executed until it reads",
        when: "Lower with very many slow readers; higher if large multi-gets over slow links stall.",
        ..option(
            Id::OutputLimit,
            "output_limit",
            Group::Network,
            Kind::Size { unit: 1, min: 16 * KIB, max: GIB },
            "256k",
        )
    },
    OptionSpec {
        short: Some('m'),
        alias: Some("memory-limit"),
        change: Change::Reload,
        summary: "Memory for items with all their bookkeeping; a number without a suffix is in MiB",
        when: "Always in production; operating.md says how to size it.",
        ..option(Id::Memory, "memory", Group::Memory, Kind::Size { unit: MIB, min: 8 * MIB, max: 16 * TIB }, "64m")
    },
    OptionSpec {
        summary: "Memory for what clients have not sent whole or not read: requests, replies, reads from SSD under way; for values \
                  over 32 MiB, the default is eight times --max-item-size",
        when: "Higher for very many clients with large values, lower where memory is tight. When it is nearly used up, requests \
               over 128 KiB are refused and the connections that hold most are closed; operating.md has the rules.",
        ..option(
            Id::ClientMemory,
            "client_memory",
            Group::Memory,
            Kind::Size { unit: MIB, min: 16 * MIB, max: TIB },
            "256m",
        )
    },
    OptionSpec {
        short: Some('M'),
        alias: Some("disable-evictions"),
        summary: "When full, refuse to store rather than evict",
        when: "When losing an item is worse than failing to store one.",
        ..option(Id::NoEvict, "no_evict", Group::Memory, Kind::Switch, "false")
    },
    OptionSpec {
        short: Some('I'),
        summary: "Largest value; a number without a suffix is in bytes",
        when: "When values over 1 MiB have to be stored. Two of them and some bookkeeping have to fit into --memory.",
        ..option(Id::MaxItemSize, "max_item_size", Group::Memory, Kind::Size { unit: 1, min: KIB, max: GIB }, "1m")
    },
    OptionSpec {
        summary: "The upper tier, which has the hot items: RAM of this process, a server of its own, or none",
        when: "remote: to keep a memcached that is there already, as in deploy/split; none where the node is itself the L2 of another.",
        ..option(Id::L1, "l1", Group::Tiers, Kind::Tier(&["memory", "none"]), "memory")
    },
    OptionSpec {
        summary: "The lower tier, which has every item; auto is the engine that was given a place (--flash, --rocks, --lmdb), or none",
        when: "remote: where the L2 is a process of its own. With --l1 none and --l2 remote: the node is a proxy of that server.",
        ..option(Id::L2, "l2", Group::Tiers, Kind::Tier(&["auto", "flash", "rocks", "lmdb", "none"]), "auto")
    },
    OptionSpec {
        summary: "Which hits in L2 bring their item into L1: always, the second of an item, or that share of them",
        when: "second or a share such as 25% when many items are read once: less of them push others out of L1.",
        ..option(Id::Promote, "promote", Group::Tiers, Kind::Promotion, "always")
    },
    OptionSpec {
        summary: "Keep all items on SSD as well: a directory, file or block device, and how much of it to use; may be repeated",
        when: "When the data is larger than RAM or must survive a restart. operating.md says how to size it, and what a changed \
               list or size does to what is stored.",
        ..option(Id::Flash, "flash", Group::Flash, Kind::Devices, "")
    },
    OptionSpec {
        summary: "Bytes of a region, which is filled in RAM, written and given up as a whole: a multiple of 4 KiB, and at least four \
                  times --max-item-size. Not set, it is larger where that is over 2 MiB, and a tier that is there has the size it \
                  was made with, if that is enough",
        when: "Larger for larger values. A tier keeps the size it was made with: to change it, begin with empty devices.",
        ..option(
            Id::FlashRegionSize,
            "flash_region_size",
            Group::Flash,
            Kind::Size { unit: 1, min: 256 * KIB, max: 256 * MIB },
            "8m",
        )
    },
    OptionSpec {
        summary: "Start with an empty SSD tier where the one that is there cannot be kept, as one of its devices is missing or has \
                  become smaller; else such a start is refused. A tier that can be kept is kept",
        when: "For one start, after a device was lost or taken away for good. Left in force, the next device that is not mounted \
               in time costs all items.",
        ..option(Id::FlashStartEmpty, "flash_start_empty", Group::Flash, Kind::Switch, "false")
    },
    OptionSpec {
        summary: "How long a write may wait in RAM before it is on its way to the device: what a crash may cost at most",
        when: "Shorter to lose less when the process or the machine dies, at the price of more and smaller writes.",
        ..option(
            Id::FlashFlushInterval,
            "flash_flush_interval",
            Group::Flash,
            Kind::Milliseconds { min: 10, max: 60_000 },
            "1s",
        )
    },
    OptionSpec {
        summary: "When a write is acknowledged: once it is in RAM (interval), or once the device has it (every-write), with writes of \
                  all connections sharing syncs",
        when: "every-write where not even the last flush interval may be lost. Each write then waits for the device.",
        ..option(
            Id::FlashDurability,
            "flash_durability",
            Group::Flash,
            Kind::Choice(&["interval", "every-write"]),
            "interval",
        )
    },
    OptionSpec {
        summary: "How long a write may wait for the devices, for room or for its sync, and a read for its device, before it \
                  fails; if a device takes no write for as long, the tier is off until it does",
        when: "Shorter where clients give up sooner; longer where bulk loads outrun the devices and should wait.",
        ..option(Id::FlashTimeout, "flash_timeout", Group::Flash, Kind::Milliseconds { min: 10, max: 3_600_000 }, "5s")
    },
    OptionSpec {
        summary: "How long a stop may take to write what is in RAM alone and a snapshot of the index, before it gives up what is left",
        when: "Longer for billions of items on a slow device; shorter than what the supervisor waits before it kills, with \
               drain_timeout added.",
        ..option(
            Id::FlashStopTimeout,
            "flash_stop_timeout",
            Group::Flash,
            Kind::Milliseconds { min: 10, max: 3_600_000 },
            "1m",
        )
    },
    OptionSpec {
        summary: "Go round the kernel's page cache, where the file system lets it",
        when: "Off (--flash-direct=false) where the machine has RAM that --memory does not use and the page cache should have it.",
        ..option(Id::FlashDirect, "flash_direct", Group::Flash, Kind::Switch, "true")
    },
    OptionSpec {
        summary: "How requests read the devices: io_uring, a pool of threads, or auto, which is io_uring where the kernel allows it",
        when: "uring to refuse to start without it, threads where it is suspected of a fault. The log says which is used.",
        ..option(Id::FlashIo, "flash_io", Group::Flash, Kind::Choice(&["auto", "uring", "threads"]), "auto")
    },
    OptionSpec {
        summary: "Threads that read the devices where io_uring is not used",
        when: "Higher with --flash-io threads on devices that want many reads at once.",
        ..option(Id::FlashIoThreads, "flash_io_threads", Group::Flash, Kind::Number { min: 1, max: 1_024 }, "8")
    },
    OptionSpec {
        summary: "Share of the bytes written that may be lately read items carried forward out of the oldest region",
        when: "Higher to keep what is read longer than what is not, at the price of that much more written; 0 drops regions whole.",
        ..option(Id::FlashCarry, "flash_carry", Group::Flash, Kind::Percent { max: 90 }, "5%")
    },
    OptionSpec {
        summary: "Memory that the index of the SSD tier may take: about 9.2 bytes an item. At the limit, new items push others \
                  out. 0 takes half of what --memory leaves of the machine's memory, or of its control group's",
        when: "To name the sum of what the node takes, or where moneta_flash_index_evictions_total grows and the machine has memory \
               to give. At least 64 KiB for each shard of the index (16 to 4096 of them) are taken whatever is said here.",
        ..option(
            Id::FlashIndexMemory,
            "flash_index_memory",
            Group::Flash,
            Kind::Size { unit: 1, min: 0, max: 64 * TIB },
            "0",
        )
    },
    OptionSpec {
        summary: "Bytes a day that may be written to SSD, to spare the device; 0 sets no limit",
        when: "When the load would wear the device out early: its rated endurance over the days it has to last. What is over \
               the budget is kept in RAM only.",
        ..option(
            Id::FlashWriteBudget,
            "flash_write_budget",
            Group::Flash,
            Kind::Size { unit: 1, min: 0, max: 1_024 * TIB },
            "0",
        )
    },
    OptionSpec {
        summary: "Keep all items in RocksDB as well, in a directory, and how much of the disk they may take",
        when: "To compare with what runs on RocksDB, or to move away from it. docs/engines.md says when which engine is the better \
               one. Only in builds with the feature `rocks`.",
        ..option(Id::Rocks, "rocks", Group::Rocks, Kind::Place, "")
    },
    OptionSpec {
        summary: "Databases over which keys are spread",
        when: "Higher where many cores write. A directory keeps the number it was made with.",
        ..option(Id::RocksShards, "rocks_shards", Group::Rocks, Kind::Number { min: 1, max: 256 }, "4")
    },
    OptionSpec {
        summary: "How RocksDB makes room: fifo drops the oldest files, universal and level merge files and refuse writes when full",
        when: "universal or level where items are overwritten often and reads have to stay cheap, and their writes can be borne.",
        ..option(
            Id::RocksCompaction,
            "rocks_compaction",
            Group::Rocks,
            Kind::Choice(&["fifo", "universal", "level"]),
            "fifo",
        )
    },
    OptionSpec {
        summary: "Whether there is a log that writes go to before they are acknowledged: off, on, or every-write, which also syncs it",
        when: "on when a killed process may lose nothing that it acknowledged, every-write when neither may the machine; either way \
               everything is written twice.",
        ..option(Id::RocksLog, "rocks_log", Group::Rocks, Kind::Choice(&["off", "on", "every-write"]), "off")
    },
    OptionSpec {
        summary: "How long a write may wait in RAM before it is written to a file, or its log is synced: what a crash may cost at most",
        when: "Shorter to lose less, at the price of more and smaller files.",
        ..option(
            Id::RocksFlushInterval,
            "rocks_flush_interval",
            Group::Rocks,
            Kind::Milliseconds { min: 10, max: 600_000 },
            "1s",
        )
    },
    OptionSpec {
        summary: "Filter that spares reads of files without the key",
        when: "ribbon to save a third of the filters' memory for more CPU, none only to measure what a filter is worth.",
        ..option(Id::RocksFilter, "rocks_filter", Group::Rocks, Kind::Choice(&["bloom", "ribbon", "none"]), "bloom")
    },
    OptionSpec {
        summary: "Compression of files",
        when: "lz4 where values compress and the disk is smaller than the data.",
        ..option(Id::RocksCompression, "rocks_compression", Group::Rocks, Kind::Choice(&["none", "lz4"]), "none")
    },
    OptionSpec {
        summary: "RAM for RocksDB's own cache of blocks; 0 has none",
        when: "When L1 is none. Under an L1 it would hold the same items twice.",
        ..option(
            Id::RocksBlockCache,
            "rocks_block_cache",
            Group::Rocks,
            Kind::Size { unit: 1, min: 0, max: 16 * TIB },
            "0",
        )
    },
    OptionSpec {
        summary: "Read round the kernel's page cache",
        when: "When the machine's RAM is for --memory and not for the page cache.",
        ..option(Id::RocksDirect, "rocks_direct", Group::Rocks, Kind::Switch, "false")
    },
    OptionSpec {
        summary: "Threads that read for requests",
        when: "Higher on devices that want many reads at once.",
        ..option(Id::RocksThreads, "rocks_threads", Group::Rocks, Kind::Number { min: 1, max: 256 }, "8")
    },
    OptionSpec {
        summary: "Keep all items in LMDB as well, in a directory, and how large its file may become",
        when: "When most requests are reads and the file fits into the page cache; docs/engines.md says more. Only in builds with \
               the feature `lmdb`.",
        ..option(Id::Lmdb, "lmdb", Group::Lmdb, Kind::Place, "")
    },
    OptionSpec {
        summary: "When a write is acknowledged: once it is committed (interval), or once the disk has it (every-write), with writes \
                  of all connections sharing commits",
        when: "every-write where the data must outlive the machine going down; under interval the tier then starts empty. A killed \
               process loses nothing either way.",
        ..option(
            Id::LmdbDurability,
            "lmdb_durability",
            Group::Lmdb,
            Kind::Choice(&["interval", "every-write"]),
            "interval",
        )
    },
    OptionSpec {
        summary: "How often what is committed is synced to the disk, and what has expired is removed",
        when: "Shorter to even out the work of the disk.",
        ..option(
            Id::LmdbFlushInterval,
            "lmdb_flush_interval",
            Group::Lmdb,
            Kind::Milliseconds { min: 10, max: 60_000 },
            "1s",
        )
    },
    OptionSpec {
        summary: "Threads that read for requests",
        when: "Higher where the file is larger than the page cache.",
        ..option(Id::LmdbThreads, "lmdb_threads", Group::Lmdb, Kind::Number { min: 1, max: 126 }, "8")
    },
    OptionSpec {
        summary: "Protocol spoken with remote tiers; auto takes the meta commands where the server knows them, else binary or text",
        when: "When a server behind a proxy answers the first probe wrongly.",
        ..option(
            Id::RemoteProtocol,
            "remote_protocol",
            Group::Remote,
            Kind::Choice(&["auto", "meta", "binary", "text"]),
            "auto",
        )
    },
    OptionSpec {
        summary: "Connections of each worker thread to a remote tier; requests are pipelined on them",
        when: "Higher where large values hold up small ones.",
        ..option(Id::RemoteConnections, "remote_connections", Group::Remote, Kind::Number { min: 1, max: 64 }, "1")
    },
    OptionSpec {
        summary: "How long a request to a remote tier may take: what a hung server costs a client",
        when: "Shorter where clients would rather go on without the answer; longer over slow networks.",
        ..option(Id::RemoteTimeout, "remote_timeout", Group::Remote, Kind::Milliseconds { min: 1, max: 60_000 }, "1s")
    },
    OptionSpec {
        summary: "How long connecting to a remote tier may take",
        when: "Longer over slow networks.",
        ..option(
            Id::RemoteConnectTimeout,
            "remote_connect_timeout",
            Group::Remote,
            Kind::Milliseconds { min: 1, max: 60_000 },
            "1s",
        )
    },
    OptionSpec {
        summary: "Largest piece in which a remote L1 stores a value; larger values are cut up",
        when: "Larger where nearly all values are larger; the default fills a slab class of memcached but for 0.7 %, so that all pieces \
               share one class.",
        ..option(
            Id::RemotePieceSize,
            "remote_piece_size",
            Group::Remote,
            Kind::Size { unit: 1, min: KIB, max: MIB },
            "21k",
        )
    },
    OptionSpec {
        short: Some('t'),
        summary: "Worker threads",
        when: "Set it to the cores the node may use; more than that does not help.",
        ..option(Id::Threads, "threads", Group::Workers, Kind::Number { min: 1, max: 512 }, "4")
    },
    OptionSpec {
        short: Some('R'),
        alias: Some("max-reqs-per-event"),
        summary: "Requests of one connection executed in a row before others get their turn",
        when: "Lower if heavy pipelining on some connections delays others.",
        ..option(
            Id::RequestsPerEvent,
            "requests_per_event",
            Group::Workers,
            Kind::Number { min: 1, max: 1_000_000 },
            "20",
        )
    },
    OptionSpec {
        short: Some('Y'),
        change: Change::Reload,
        summary: "File of `user:password` lines; clients have to log in, by the text protocol's `set` or, with --enable-sasl, \
                  by SASL PLAIN",
        when: "When others can reach the port. SIGHUP reads the file again; turning logins on or off needs a restart.",
        ..option(Id::AuthFile, "auth_file", Group::Access, Kind::Path, "")
    },
    OptionSpec {
        short: Some('S'),
        summary: "SASL PLAIN on the binary protocol, for the users of --auth-file; the text protocol is refused",
        when: "When clients authenticate with SASL.",
        ..option(Id::EnableSasl, "enable_sasl", Group::Access, Kind::Switch, "false")
    },
    OptionSpec {
        summary: "How long a client that has to log in may take for it before it is closed; 0 sets no limit",
        when: "Longer where clients keep connections in a pool before they log in.",
        ..option(Id::LoginTimeout, "login_timeout", Group::Access, Kind::Seconds { min: 0, max: 3_600 }, "10s")
    },
    OptionSpec {
        summary: "Log-ins that a connection may fail: with the last of them nothing more is read, and it is closed two seconds later",
        when: "Higher where people type passwords by hand.",
        ..option(Id::LoginAttempts, "login_attempts", Group::Access, Kind::Number { min: 1, max: 1_000_000 }, "5")
    },
    OptionSpec {
        short: Some('A'),
        summary: "Obey the `shutdown` command",
        when: "In test setups. Any client may then stop the node.",
        ..option(Id::EnableShutdown, "enable_shutdown", Group::Access, Kind::Switch, "false")
    },
    OptionSpec {
        short: Some('F'),
        summary: "Refuse the `flush_all` command",
        when: "When no client should be able to empty the cache.",
        ..option(Id::DisableFlushAll, "disable_flush_all", Group::Access, Kind::Switch, "false")
    },
    OptionSpec {
        short: Some('X'),
        summary: "Refuse to list keys (`lru_crawler metadump` and `mgdump`)",
        when: "When keys are secrets.",
        ..option(Id::DisableDumping, "disable_dumping", Group::Access, Kind::Switch, "false")
    },
    OptionSpec {
        short: Some('W'),
        summary: "Refuse the `watch` command",
        when: "When keys are secrets.",
        ..option(Id::DisableWatch, "disable_watch", Group::Access, Kind::Switch, "false")
    },
    OptionSpec {
        summary: "Commands of operators that clients may give, as far as the switches above allow them; others are refused",
        when: "none, or fewer, where clients are not operators; a [[listener]] with admin_commands of its own, such as a Unix socket, \
               is then the operators' door.",
        ..option(
            Id::AdminCommands,
            "admin_commands",
            Group::Access,
            Kind::Commands,
            "cache_memlimit,flush_all,shutdown,verbosity,watch",
        )
    },
    OptionSpec {
        summary: "Address of the admin HTTP listener (/metrics, /healthz, /readyz, /stats), or `off`",
        when: "When metrics are scraped from another machine, or several nodes share one. It has no authentication.",
        ..option(Id::Admin, "admin", Group::Operation, Kind::Admin, "127.0.0.1:11280")
    },
    OptionSpec {
        summary: "How long a graceful stop goes on accepting and serving, while /readyz answers 503 already, before it drains",
        when: "Behind a balancer that goes by /readyz: longer than it takes to notice, two or three of its checks.",
        ..option(Id::LameDuck, "lame_duck", Group::Operation, Kind::Seconds { min: 0, max: 3_600 }, "0")
    },
    OptionSpec {
        summary: "How long a graceful stop waits for replies to leave before it closes what is left",
        when: "Longer if stopping cuts off large replies, shorter than what the supervisor waits before it kills.",
        ..option(Id::DrainTimeout, "drain_timeout", Group::Operation, Kind::Seconds { min: 0, max: 3_600 }, "10s")
    },
    OptionSpec {
        summary: "Form of the log on standard error",
        when: "json where a collector reads the log.",
        ..option(Id::LogFormat, "log_format", Group::Operation, Kind::Choice(&["text", "json"]), "text")
    },
    OptionSpec {
        change: Change::Reload,
        summary: "Least level that is logged",
        when: "debug or trace while looking for a fault.",
        ..option(
            Id::LogLevel,
            "log_level",
            Group::Operation,
            Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
            "info",
        )
    },
    OptionSpec {
        short: Some('v'),
        change: Change::Reload,
        summary: "Log more, whatever --log-level says: -v debug, -vv and more trace",
        when: "On the command line while looking for a fault. It is also what `stats settings` shows as verbosity.",
        ..option(Id::Verbose, "verbose", Group::Operation, Kind::Number { min: 0, max: 3 }, "0")
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_id_finds_its_own_entry() {
        for (position, spec) in TABLE.iter().enumerate() {
            assert_eq!(spec.id as usize, position, "{} stands in another place than its id", spec.key);
        }
    }

    #[test]
    fn every_default_is_a_value_and_every_text_is_there() {
        for spec in TABLE {
            assert!(spec.kind.read(spec.default).is_some(), "{}: default {}", spec.key, spec.default);
            assert!(!spec.summary.is_empty() && !spec.when.is_empty(), "{} lacks a sentence", spec.key);
        }
    }

    #[test]
    fn no_two_options_share_a_flag() {
        let mut seen = HashSet::new();
        for spec in TABLE {
            let names = [Some(spec.long()), spec.short.map(String::from), spec.alias.map(String::from)];
            for name in names.into_iter().flatten() {
                assert!(seen.insert(name.clone()), "{name} is taken");
            }
        }
    }
}
