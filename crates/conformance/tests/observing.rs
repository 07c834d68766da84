//! What a server tells about itself and its items: statistics, dumps and watchers.

use anyhow::{Context, Result, ensure};
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::Server;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The names of `stats` that clients and exporters read.
const STATISTICS: &str = "pid uptime time version pointer_size rusage_user rusage_system max_connections curr_connections \
    total_connections rejected_connections connection_structures cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits \
    get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses \
    cas_hits cas_badval touch_hits touch_misses auth_cmds auth_errors bytes_read bytes_written limit_maxbytes \
    accepting_conns threads curr_items total_items bytes evictions reclaimed expired_unfetched evicted_unfetched";
/// The names of `stats settings` that they read.
const SETTINGS: &str =
    "maxbytes maxconns tcpport evictions domain_socket num_threads cas_enabled flush_enabled item_size_max";
const DUMPED_ITEMS: usize = 5_000;

#[test]
fn stats_have_every_name_that_clients_read() -> Result<()> {
    let server = Server::start_subject(&Options::default())?;
    let mut client = server.connect()?;
    for (group, names) in [("", STATISTICS), ("settings", SETTINGS)] {
        let stats: HashSet<String> = client.stats(group)?.into_iter().map(|(name, _)| name).collect();
        let missing: Vec<&str> = names.split_whitespace().filter(|name| !stats.contains(*name)).collect();
        ensure!(missing.is_empty(), "stats {group} lacks {missing:?}");
    }
    Ok(())
}

#[test]
fn stats_of_slabs_and_items_have_no_name_that_memcached_lacks() -> Result<()> {
    // Prometheus' memcached_exporter gives up on the whole scrape when a name turns up in the group where it was before
    // memcached 1.5, as mem_requested among the slabs.
    let subject = Server::start_subject(&Options::default())?;
    let memcached = Server::start(Kind::Memcached, &Options::default())?;
    for group in ["slabs", "items"] {
        let names = |server: &Server| -> Result<HashSet<String>> {
            let mut client = server.connect()?;
            client.set("k", b"1")?;
            Ok(client.stats(group)?.into_iter().map(|(name, _)| name).collect())
        };
        let (ours, theirs) = (names(&subject)?, names(&memcached)?);
        let foreign: Vec<&String> = ours.difference(&theirs).collect();
        ensure!(foreign.is_empty() && !ours.is_empty(), "stats {group}: {foreign:?}");
    }
    Ok(())
}

#[test]
fn stats_count_what_happened() -> Result<()> {
    let server = Server::start_subject(&Options::default())?;
    let mut client = server.connect()?;
    client.set("k", b"1")?;
    client.get("k")?;
    client.get("missing")?;
    client.ask("incr k 1\r\n")?;
    client.ask("delete k\r\n")?;
    client.ask("touch missing 0\r\n")?;
    let expected = [
        ("cmd_get", 2),
        ("cmd_set", 1),
        ("get_hits", 1),
        ("get_misses", 1),
        ("incr_hits", 1),
        ("delete_hits", 1),
        ("touch_misses", 1),
        ("curr_items", 0),
    ];
    for (name, value) in expected {
        let counted = client.stat(name)?;
        ensure!(counted == value, "{name} is {counted}, not {value}");
    }
    ensure!(client.ask("stats reset\r\n")? == "RESET");
    ensure!(client.stat("cmd_get")? == 0, "stats reset left cmd_get");
    Ok(())
}

#[test]
fn every_statistics_group_ends_with_end() -> Result<()> {
    let server = Server::start_subject(&Options::default())?;
    let mut client = server.connect()?;
    client.set("k", b"1")?;
    for group in ["items", "slabs", "sizes", "conns", "settings"] {
        client.stats(group).with_context(|| format!("stats {group}"))?;
    }
    ensure!(client.ask("mn\r\n")? == "MN");
    Ok(())
}

/// Fills a server and dumps it while other connections read.
fn dump(command: &str, last: &str) -> Result<(Server, Vec<String>)> {
    let server = Server::start_subject(&Options { memory_mebibytes: Some(64), ..Options::default() })?;
    let mut client = server.connect()?;
    for number in 0..DUMPED_ITEMS {
        client.send(format!("set key/{number} 0 0 1 noreply\r\nx\r\n").as_bytes())?;
    }
    ensure!(client.ask("mn\r\n")? == "MN");
    let done = AtomicBool::new(false);
    let lines = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| -> Result<()> {
                let mut reader = server.connect()?;
                for number in (0..DUMPED_ITEMS).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    reader.get(&format!("key/{number}"))?;
                }
                Ok(())
            });
        }
        let lines = client.ask_until(command, last);
        done.store(true, Ordering::Relaxed);
        lines
    })?;
    ensure!(client.ask("mn\r\n")? == "MN", "the connection is out of step after {command:?}");
    Ok((server, lines))
}

#[test]
fn metadump_lists_every_item_while_others_read() -> Result<()> {
    let (server, lines) = dump("lru_crawler metadump all\r\n", "END")?;
    if server.kind() == Kind::Moneta {
        ensure!(lines[0] == "OK", "the first line is {:?}", lines[0]);
    }
    let keys: HashSet<&str> = lines.iter().filter_map(|line| line.strip_prefix("key=")?.split(' ').next()).collect();
    let missing = (0..DUMPED_ITEMS).filter(|number| !keys.contains(format!("key%2F{number}").as_str())).count();
    ensure!(missing == 0, "{missing} of {DUMPED_ITEMS} items are missing; a line: {:?}", lines.get(1));
    let line = lines.iter().find(|line| line.starts_with("key=key%2F17 ")).context("no line for key/17")?;
    for field in [" exp=-1 ", " la=", " cas=", " fetch=", " cls=", " size="] {
        ensure!(line.contains(field), "{field:?} is missing in {line:?}");
    }
    Ok(())
}

#[test]
fn mgdump_lists_every_item_while_others_read() -> Result<()> {
    if moneta_conformance::server::subject_kind()? == Kind::Memcached {
        // It came after 1.6.18.
        return Ok(());
    }
    let (_server, lines) = dump("lru_crawler mgdump all\r\n", "EN")?;
    ensure!(lines[0] == "OK", "the first line is {:?}", lines[0]);
    let keys: HashSet<&str> = lines.iter().filter_map(|line| line.strip_prefix("mg ")).collect();
    let missing = (0..DUMPED_ITEMS).filter(|number| !keys.contains(format!("key/{number}").as_str())).count();
    ensure!(missing == 0, "{missing} of {DUMPED_ITEMS} items are missing; a line: {:?}", lines.get(1));
    Ok(())
}

/// Starts a watcher, acts, and returns the first line about it that holds every one of `parts`.
fn watched(options: &Options, what: &str, parts: &[&str], act: impl Fn(&Server) -> Result<()>) -> Result<()> {
    let server = Server::start_subject(options)?;
    let mut watcher = server.connect()?;
    ensure!(watcher.ask(&format!("watch {what}\r\n"))? == "OK");
    act(&server)?;
    loop {
        let line = watcher.line().with_context(|| format!("no line with {parts:?} from watch {what}"))?;
        if parts.iter().all(|part| line.contains(part)) {
            return Ok(());
        }
    }
}

#[test]
fn fetchers_see_gets() -> Result<()> {
    watched(&Options::default(), "fetchers", &["type=item_get", "key=some%2Fkey", "status=found"], |server| {
        let mut client = server.connect()?;
        client.set("some/key", b"v")?;
        client.get("some/key")?;
        Ok(())
    })
}

#[test]
fn mutations_see_sets() -> Result<()> {
    watched(
        &Options::default(),
        "mutations",
        &["type=item_store", "key=written", "status=stored", "cmd=set"],
        |server| {
            server.connect()?.set("written", b"v")?;
            Ok(())
        },
    )
}

#[test]
fn connevents_see_connections() -> Result<()> {
    watched(&Options::default(), "connevents", &["type=conn_new", "transport=tcp"], |server| {
        server.connect()?.ask("mn\r\n")?;
        Ok(())
    })
}

#[test]
fn evictions_are_seen() -> Result<()> {
    let options = Options { memory_mebibytes: Some(8), ..Options::default() };
    watched(&options, "evictions", &["type=eviction", "key=evicted"], |server| {
        let mut client = server.connect()?;
        let value = vec![b'x'; 10_000];
        for number in 0..4_000 {
            client.set(&format!("evicted{number}"), &value)?;
        }
        Ok(())
    })
}
