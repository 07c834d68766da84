//! The groups of the `stats` command.
//!
//! Names are memcached's wherever the engine has a counterpart. Slabs are reported as one class, number 1, so that tools that
//! read `stats items` and `stats slabs` find their totals.

mod general;
mod hot;
mod lister;
mod listing;
mod mrc;
mod slabs;

use moneta_net::PemSource;
use moneta_protocol::command::Style;
use moneta_protocol::encode;
use moneta_protocol::refusal::Message;
use moneta_protocol::reply::Reply;
use moneta_protocol::status::Status;

use crate::auth::AuthMode;
use crate::prefixes::Shown;
use crate::session::Worker;

pub use general::{Statistic, StatisticValue, general};
pub(crate) use hot::hot_keys;
use lister::Lister;
use listing::Group;
pub use listing::Listing;
pub use listing::PIECE as LISTING_PIECE;

/// Answers `stats` with the group that its arguments name, or returns what answers it piece by piece.
#[must_use]
pub fn write(worker: &Worker, arguments: &[u8], style: &Style<'_>, out: &mut Vec<u8>) -> Option<Listing> {
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let is_proxy = worker.node.routes().is_some();
    let mut lister = Lister { style, out };
    match words.next() {
        None if is_proxy => lister.put_all(&general::of_memcached(worker)),
        None => lister.put_all(&general(worker)),
        Some(b"proxy") if is_proxy => lister.put_all(&general::own(worker)),
        Some(b"settings") => settings(worker, &mut lister),
        // What a proxy holds is with its nodes: they are asked.
        Some(b"items") if is_proxy => return Some(Listing::of_store(worker, Group::Items, style)),
        Some(b"slabs") if is_proxy => return Some(Listing::of_store(worker, Group::Slabs, style)),
        Some(b"items") => Group::Items.write(&worker.node, &worker.report().stats, &mut lister),
        Some(b"slabs") => Group::Slabs.write(&worker.node, &worker.report().stats, &mut lister),
        Some(b"mrc") => mrc::miss_curve(&worker.node, &mut lister),
        Some(b"sizes") => lister.put("sizes_status", "disabled"),
        Some(b"conns") => return Some(Listing::of_connections(style)),
        Some(b"route") => {
            route(worker, words.next(), style, out);
            return None;
        }
        Some(b"reset") => {
            worker.node.registry.reset();
            worker.node.prefixes.clear();
            done(style, "RESET", out);
            return None;
        }
        Some(b"detail") => return detail(worker, words.next(), style, out),
        Some(_) => {
            unknown(style, out);
            return None;
        }
    }
    encode::stat_end(style, out);
    None
}

/// Answers a `stats` command that has no list: an empty packet in binary, a word in text.
fn done(style: &Style<'_>, word: &str, out: &mut Vec<u8>) {
    match style {
        Style::Binary(_) => encode::stat_end(style, out),
        _ => encode::reply(style, &[], Reply::Line(word), 0, out),
    }
}

fn unknown(style: &Style<'_>, out: &mut Vec<u8>) {
    match style {
        Style::Binary(style) => encode::message(Message::Binary(*style, Status::NotFound), out),
        _ => encode::message(Message::Text("ERROR"), out),
    }
}

/// Where the copies of a key are, on a proxy.
fn route(worker: &Worker, key: Option<&[u8]>, style: &Style<'_>, out: &mut Vec<u8>) {
    match (worker.node.routes(), key) {
        (Some(routes), Some(key)) => {
            let mut lister = Lister { style, out };
            routes.route(worker.cx.door(), key).iter().for_each(|(name, value)| lister.put(name, value));
            encode::stat_end(style, out);
        }
        (Some(_), None) if !matches!(style, Style::Binary(_)) => {
            encode::message(Message::Text("CLIENT_ERROR usage: stats route <key>"), out);
        }
        _ => unknown(style, out),
    }
}

fn detail(worker: &Worker, what: Option<&[u8]>, style: &Style<'_>, out: &mut Vec<u8>) -> Option<Listing> {
    let (prefixes, now) = (&worker.node.prefixes, worker.node.clock.now());
    match what {
        Some(b"on") => prefixes.enable(true, now),
        Some(b"off") => prefixes.enable(false, now),
        Some(what @ (b"dump" | b"unread")) => {
            prefixes.prolong(now);
            let shown = if what == b"dump" { Shown::Uses } else { Shown::Left };
            return Some(Listing::of_prefixes(shown, style));
        }
        _ => {
            match style {
                Style::Binary(_) => unknown(style, out),
                _ => encode::message(Message::Text("CLIENT_ERROR usage: stats detail on|off|dump"), out),
            }
            return None;
        }
    }
    worker.observe();
    done(style, "OK", out);
    None
}

fn settings(worker: &Worker, lister: &mut Lister<'_>) {
    let node = &worker.node;
    let (settings, live) = (&node.settings, &node.live);
    let limit = worker.report().stats.limit;
    lister.put("maxbytes", if limit > 0 { limit } else { settings.memory });
    lister.put("maxconns", live.max_connections());
    lister.put("tcpport", settings.tcp_port);
    lister.put("udpport", 0);
    lister.put("inter", if settings.interface.is_empty() { "NULL" } else { &settings.interface });
    lister.put("verbosity", node.verbosity());
    lister.put("oldest", 0);
    lister.put("evictions", if settings.evictions { "on" } else { "off" });
    lister.put("domain_socket", settings.unix_socket.as_deref().unwrap_or("NULL"));
    lister.put("umask", format_args!("{:o}", settings.unix_mode));
    lister.put_flag("shutdown_command", live.answers_shutdown());
    lister.put("num_threads", settings.threads);
    lister.put("stat_key_prefix", ":");
    lister.put_flag("detail_enabled", node.prefixes.is_enabled());
    lister.put("reqs_per_event", settings.requests_per_event);
    lister.put_flag("cas_enabled", true);
    lister.put("tcp_backlog", settings.backlog);
    let mode = node.authenticator.mode();
    lister.put(
        "binding_protocol",
        match mode {
            AuthMode::Off => "auto-negotiate",
            AuthMode::Text => "ascii",
            AuthMode::Sasl => "binary",
        },
    );
    lister.put_flag("auth_enabled_sasl", mode == AuthMode::Sasl);
    lister.put_flag("auth_enabled_ascii", mode == AuthMode::Text);
    lister.put("item_size_max", settings.item_max);
    lister.put_flag("maxconns_fast", true);
    lister.put_flag("slab_reassign", false);
    lister.put("slab_automove", 0);
    lister.put_flag("lru_crawler", node.is_crawler_enabled());
    lister.put_flag("flush_enabled", live.answers_flush());
    lister.put_flag("dump_enabled", live.answers_dump());
    lister.put_flag("watch_enabled", live.answers_watch());
    lister.put("hash_algorithm", worker.store.seed().name());
    lister.put("idle_timeout", live.idle_seconds());
    lister.put_flag("track_sizes", false);
    let certificates = node.certificates.as_ref().filter(|of| of.serve());
    lister.put_flag("ssl_enabled", certificates.is_some());
    if let Some(certificates) = certificates {
        let source = |source: &Option<PemSource>| source.as_ref().map_or_else(|| "NULL".into(), PemSource::to_string);
        lister.put("ssl_chain_cert", source(&certificates.config.certificate));
        lister.put("ssl_key", source(&certificates.config.key));
        lister.put("ssl_verify_mode", certificates.clients as u8);
        lister.put("ssl_ca_cert", source(&certificates.config.authorities));
        lister.put("ssl_min_version", format_args!("tlsv{}", certificates.config.min_version));
    }
}
