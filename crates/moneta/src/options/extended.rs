//! Names that memcached's `-o` knows.
//!
//! Most set up memcached's own engine: they are taken, and the log says what they mean here. One that asks for another kind of
//! server is refused, as is a name that memcached does not know.

/// What `-o NAME` means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// The node starts; the log says this.
    Noted(&'static str),
    /// The node does not start, and says this.
    Refused(&'static str),
}

const SLABS: &str = "there are no slab classes to tune";
const LRU: &str = "there is no LRU to tune";
const INDEX: &str = "the index grows by itself, and its hash cannot be chosen";
const CONNECTIONS: &str = "connections over the limit are always told so and closed";
const BUFFERS: &str = "what is buffered for a client is bounded by --output-limit";
const LOGS: &str = "the queue of a watcher has a fixed size";
const PRIVILEGES: &str = "the node keeps the privileges that it is started with; -u gives them up";
const SUITES: &str =
    "the suites of TLS are those with forward secrecy and authenticated encryption, and cannot be chosen";
const RECORDS: &str = "records are as large as what is sent, and the kernel does no TLS";
const TICKETS: &str = "sessions are resumed with tickets";
const TIER: &str = "the SSD tier has other options, beginning with --flash PATH:SIZE";
const PROXY: &str = "the node is no proxy";

/// Names by what they mean here.
const NAMES: &[(&str, &[&str])] = &[
    ("the defaults are those of a current memcached already", &["modern", "no_modern"]),
    (CONNECTIONS, &["maxconns_fast", "no_maxconns_fast"]),
    (INDEX, &["hashpower", "hash_algorithm", "no_hashexpand"]),
    (
        SLABS,
        &[
            "slab_reassign",
            "no_slab_reassign",
            "slab_automove",
            "slab_automove_ratio",
            "slab_automove_window",
            "slab_automove_freeratio",
            "slab_sizes",
            "slab_chunk_max",
            "no_chunked_items",
        ],
    ),
    (
        LRU,
        &[
            "lru_crawler",
            "no_lru_crawler",
            "lru_crawler_sleep",
            "lru_crawler_tocrawl",
            "lru_maintainer",
            "no_lru_maintainer",
            "hot_lru_pct",
            "warm_lru_pct",
            "hot_max_factor",
            "warm_max_factor",
            "temporary_ttl",
            "tail_repair_time",
            "expirezero_does_not_evict",
        ],
    ),
    ("there is no histogram of sizes", &["track_sizes"]),
    (LOGS, &["worker_logbuf_size", "watcher_logbuf_size"]),
    (BUFFERS, &["resp_obj_mem_limit", "read_obj_mem_limit", "read_buf_mem_limit"]),
    ("replies are not kept with items", &["inline_ascii_resp", "no_inline_ascii_resp"]),
    ("meta replies are those of memcached 1.6.45", &["meta_response_old"]),
    (RECORDS, &["ssl_wbuf_size", "ssl_kernel_tls"]),
    (TICKETS, &["ssl_session_cache"]),
    (PRIVILEGES, &["drop_privileges", "no_drop_privileges"]),
];

/// Names that are options here, by another word.
const RENAMED: &[(&str, &str)] = &[
    ("ssl_chain_cert", "tls_cert"),
    ("ssl_key", "tls_key"),
    ("ssl_ca_cert", "tls_ca"),
    ("ssl_verify_mode", "tls_clients"),
    ("ssl_min_version", "tls_min_version"),
];

/// The option that `-o NAME=VALUE` is here, and its value; `None` where it has no other name.
pub fn renamed<'a>(name: &str, value: &'a str) -> Option<(&'static str, &'a str)> {
    let (_, key) = RENAMED.iter().find(|(known, _)| *known == name)?;
    let value = match (name, value) {
        // As OpenSSL counts them; the last asks once a connection, as TLS here always does.
        ("ssl_verify_mode", "0") => "none",
        ("ssl_verify_mode", "1") => "ask",
        ("ssl_verify_mode", "2" | "3") => "require",
        // As memcached counts them; the first two are spoken no more.
        ("ssl_min_version", "0" | "1" | "2") => "1.2",
        ("ssl_min_version", "3") => "1.3",
        _ => value,
    };
    Some((key, value))
}

/// What `name` means here.
pub fn meaning(name: &str, value: &str) -> Extended {
    if let Some((meaning, _)) = NAMES.iter().find(|(_, names)| names.contains(&name)) {
        return Extended::Noted(meaning);
    }
    if name == "ext_path" {
        // With it, memcached keeps items on SSD; a node that did not would hold a small part of them.
        return Extended::Refused(TIER);
    }
    if name.starts_with("ext_") {
        return Extended::Noted(TIER);
    }
    match (name, value) {
        ("ssl_keyformat", "1" | "PEM") => return Extended::Noted("keys are in PEM"),
        ("ssl_keyformat", _) => return Extended::Refused("keys are in PEM"),
        ("ssl_ciphers", _) => return Extended::Refused(SUITES),
        _ => {}
    }
    if name.starts_with("proxy_") {
        return Extended::Refused(PROXY);
    }
    Extended::Refused("memcached has no such option")
}

/// Every name that is taken, for the documentation; prefixes end with a star.
pub fn noted() -> impl Iterator<Item = (String, &'static str)> {
    let names = NAMES.iter().map(|(meaning, names)| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        (names.join(", "), *meaning)
    });
    names.chain([("`ext_*` but `ext_path`".to_owned(), TIER)])
}
