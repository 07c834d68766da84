//! The commands of operators.

use std::collections::BTreeMap;
use std::task::{Context, Waker};

use moneta_process::phases::Phase;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Commands, ConnectionView, ListConnections, NodeSettings, Peer};
use moneta_server::prefixes::Use;
use moneta_server::session::{After, Session, Worker};
use moneta_server::stats::LISTING_PIECE;

use crate::talk::{NOW, Talk, expect, worker, worker_with};

#[test]
fn a_listener_obeys_the_commands_of_operators_that_it_is_given() {
    let worker = worker(NodeSettings { shutdown_enabled: true, ..NodeSettings::default() }, Authenticator::off());
    let ask = |commands: &str, request: &str| {
        let peer = Peer { commands: commands.parse::<Commands>().unwrap(), ..Peer::default() };
        let (mut session, mut output) = (Session::new(peer), Vec::new());
        session.receive(&worker, request.as_bytes(), &mut output, 1 << 16);
        String::from_utf8(output).unwrap()
    };
    let requests = [
        ("cache_memlimit", "cache_memlimit", "cache_memlimit 1\r\n"),
        ("flush_all", "flush_all", "flush_all\r\n"),
        ("flush_all", "mf", "mf 1 1\r\n"),
        ("lru_crawler", "lru_crawler enable", "lru_crawler enable\r\n"),
        ("lru_crawler", "lru_crawler disable", "lru_crawler  disable\r\n"),
        ("refresh_certs", "refresh_certs", "refresh_certs\r\n"),
        ("shutdown", "shutdown", "shutdown nonsense\r\n"),
        ("stats_conns", "stats conns", "stats conns\r\n"),
        ("stats_detail", "stats detail", "stats detail dump\r\n"),
        ("stats_detail", "stats detail", "stats detail on\r\n"),
        ("stats_reset", "stats reset", "stats  reset\r\n"),
        ("verbosity", "verbosity", "verbosity 1\r\n"),
        ("watch", "watch", "watch\r\n"),
    ];
    for (word, name, request) in requests {
        assert_eq!(ask("none", request), format!("CLIENT_ERROR {name} not allowed\r\n"));
        assert!(!ask(word, request).contains("not allowed"), "{request}");
        let others: Vec<&str> = requests.iter().map(|(other, ..)| *other).filter(|other| *other != word).collect();
        assert_eq!(ask(&others.join(","), request), format!("CLIENT_ERROR {name} not allowed\r\n"));
    }
    // `dump` denies nothing where keys are no secrets.
    for (word, _) in Commands::NAMED.into_iter().filter(|(word, _)| *word != "dump") {
        assert!(requests.iter().any(|(tried, ..)| *tried == word), "{word} is tried");
    }
    let of_clients =
        ["stats", "stats settings", "stats items", "lru_crawler metadump all", "lru mode flat", "slabs automove 0"];
    for request in of_clients {
        assert!(!ask("none", &format!("{request}\r\n")).contains("not allowed"), "{request}");
    }
    assert!("flush_all,nonsense".parse::<Commands>().is_err());
    assert_eq!(Commands::ALL.to_string().parse(), Ok(Commands::ALL));
}

#[test]
fn settings_are_changed_or_refused() {
    expect(&[
        ("cache_memlimit\r\ncache_memlimit x\r\n", "ERROR\r\nERROR\r\n"),
        ("cache_memlimit 1\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        ("cache_memlimit 2000000000\r\n", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
        ("cache_memlimit 64\r\n", "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"),
        ("slabs\r\nslabs reassign 1 2\r\n", "ERROR\r\nCLIENT_ERROR slab reassignment disabled\r\n"),
        ("slabs automove 0\r\nslabs automove 1\r\n", "OK\r\nCLIENT_ERROR slab reassignment disabled\r\n"),
        ("slabs automove 3\r\nslabs automove x\r\n", "ERROR\r\nCLIENT_ERROR bad command line format\r\n"),
        ("slabs automove ratio 0.8\r\nslabs automove window 30\r\n", "OK\r\nOK\r\n"),
        ("slabs automove ratio x\r\nslabs automove window\r\n", "ERROR\r\nCLIENT_ERROR bad command line format\r\n"),
        ("lru\r\nlru mode flat\r\nlru mode round\r\n", "ERROR\r\nOK\r\nERROR\r\n"),
        ("lru tune 10 25 0.1 2.0\r\nlru tune 10 25\r\nlru tune 1 2 x 3\r\n", "OK\r\nERROR\r\nERROR\r\n"),
        ("lru tune 50 50 0.1 2\r\n", "ERROR hot and warm pcts must not exceed 80\r\n"),
        ("lru tune 10 20 0 2\r\n", "ERROR hot/warm age factors must be greater than 0\r\n"),
        ("lru temp_ttl 60\r\nlru temp_ttl -1\r\nlru temp_ttl x\r\n", "OK\r\nOK\r\nERROR\r\n"),
        ("lru_crawler sleep 100\r\nlru_crawler tocrawl 0\r\n", "OK\r\nOK\r\n"),
        ("lru_crawler sleep 1000001\r\n", "CLIENT_ERROR sleep must be one second or less\r\n"),
        (
            "lru_crawler sleep x\r\nlru_crawler tocrawl -1\r\n",
            "CLIENT_ERROR bad command line format\r\n".repeat(2).as_str(),
        ),
        ("watch nonsense\r\n", "ERROR\r\n"),
        ("shutdown\r\n", "ERROR: shutdown not enabled\r\n"),
    ]);
}

#[test]
fn the_crawler_can_be_turned_off() {
    expect(&[
        ("lru_crawler enable\r\n", "ERROR failed to start lru crawler thread\r\n"),
        ("lru_crawler crawl all\r\nlru_crawler crawl x\r\n", "OK\r\nBADCLASS invalid class id\r\n"),
        ("lru_crawler disable\r\nlru_crawler metadump all\r\n", "OK\r\nCLIENT_ERROR lru crawler disabled\r\n"),
        ("lru_crawler enable\r\nlru_crawler metadump all\r\n", "OK\r\nOK\r\nEND\r\n"),
        ("lru_crawler\r\nlru_crawler metadump\r\nlru_crawler foo bar\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
    ]);
}

#[test]
fn what_the_settings_forbid_is_refused() {
    let settings =
        NodeSettings { flush_enabled: false, dump_enabled: false, watch_enabled: false, ..NodeSettings::default() };
    let worker = worker(settings, Authenticator::off());
    let answer = Talk::new().say(&worker, b"flush_all\r\nlru_crawler metadump all\r\nwatch\r\n");
    let expected = "CLIENT_ERROR flush_all not allowed\r\nERROR metadump not allowed\r\nCLIENT_ERROR watch commands not allowed\r\n";
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
}

/// Without it a proxy never ends its doubt of a node whose keys are secrets.
#[test]
fn a_listener_of_proxies_lists_keys_that_others_may_not_see() {
    let worker = worker(NodeSettings { dump_enabled: false, ..NodeSettings::default() }, Authenticator::off());
    let ask = |commands: Commands, request: &str| {
        let peer = Peer { commands, ..Peer::default() };
        let (mut session, mut output) = (Session::new(peer), Vec::new());
        session.receive(&worker, request.as_bytes(), &mut output, 1 << 16);
        String::from_utf8(output).unwrap()
    };
    for request in ["lru_crawler metadump all\r\n", "lru_crawler mgdump all\r\n", "stats cachedump 1 0\r\n"] {
        assert!(ask(Commands::ALL, request).contains("not allowed"), "{request}");
        assert!(!ask(Commands::NONE.and(Commands::DUMP), request).contains("not allowed"), "{request}");
    }
    assert_eq!("dump,watch".parse(), Ok(Commands::DUMP.and(Commands::WATCH)));
}

#[test]
fn shutdown_asks_the_node_and_closes() {
    for (line, expected) in [("shutdown\r\n", Phase::Stopping), ("shutdown graceful\r\n", Phase::Draining)] {
        let worker = worker(NodeSettings { shutdown_enabled: true, ..NodeSettings::default() }, Authenticator::off());
        let mut talk = Talk::new();
        assert_eq!(talk.say(&worker, b"shutdown now\r\n"), b"CLIENT_ERROR invalid shutdown mode\r\n");
        assert_eq!(talk.say(&worker, line.as_bytes()), b"");
        assert_eq!((talk.after, worker.node.phases.phase()), (After::CloseNow, expected));
    }
}

#[test]
fn quit_closes_without_a_word_and_nothing_behind_it_is_executed() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut talk = Talk::new();
    assert_eq!(talk.say(&worker, b"mn\r\nquit\r\nset a 0 0 1\r\nx\r\n"), b"MN\r\n");
    assert_eq!(talk.after, After::CloseWhenFlushed);
    assert_eq!(worker.counters.cmd_set.get(), 0);
}

struct One;

impl ListConnections for One {
    fn connections(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView> {
        Many(9..=9).connections(after, most)
    }
}

/// Connections of these numbers.
struct Many(std::ops::RangeInclusive<u64>);

impl ListConnections for Many {
    fn connections(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView> {
        let behind = self.0.clone().filter(|id| after.is_none_or(|after| *id > after));
        let view = |id| ConnectionView {
            id,
            address: "tcp:127.0.0.1:4000".to_owned(),
            listener: "tcp:127.0.0.1:11211".to_owned(),
            state: "conn_read",
            idle_seconds: 3,
        };
        behind.take(most).map(view).collect()
    }
}

/// What a session answers to one request, turn by turn.
fn turns(worker: &Worker, request: &[u8]) -> Vec<String> {
    let (mut session, mut turns) = (Session::new(Peer::default()), Vec::new());
    let mut output = Vec::new();
    let received = session.receive(worker, &[request, b"mn\r\n"].concat(), &mut output, 1 << 20);
    assert_eq!((received.consumed, received.needed), (request.len(), 0), "what follows waits");
    turns.push(String::from_utf8(output).unwrap());
    while session.is_waiting() {
        let mut output = Vec::new();
        session.poll(worker, &mut Context::from_waker(Waker::noop()), &mut output, 1 << 20);
        turns.push(String::from_utf8_lossy(&output).into_owned());
    }
    turns
}

/// Without this a worker's other clients wait until all of 6,000 connections or 20,000 prefixes are written.
#[test]
fn long_statistics_are_written_in_pieces() {
    let worker = worker_with(Box::new(Many(1..=6000)));
    let told = turns(&worker, b"stats conns\r\n");
    assert!(told.iter().all(|turn| turn.lines().count() <= 4 * LISTING_PIECE + 1), "a turn is short");
    let view = |id| {
        let fields =
            ["addr tcp:127.0.0.1:4000", "listen_addr tcp:127.0.0.1:11211", "state conn_read", "secs_since_last_cmd 3"];
        fields.map(|field| format!("STAT {id}:{field}\r\n")).concat()
    };
    let expected: String = (1..=6000).map(view).collect();
    assert!(told.concat() == format!("{expected}END\r\n"));

    worker.node.prefixes.enable(true, NOW);
    let keys = (0..20_000).map(|number| format!("p{number:05}:k"));
    keys.for_each(|key| assert!(worker.node.prefixes.count(key.as_bytes(), Use::Set, NOW)));
    let told = turns(&worker, b"stats detail dump\r\n");
    assert!(told.iter().all(|turn| turn.lines().count() <= LISTING_PIECE + 1), "a turn is short");
    let expected: String =
        (0..20_000).map(|number| format!("PREFIX p{number:05} get 0 hit 0 set 1 del 0\r\n")).collect();
    assert!(told.concat() == format!("{expected}END\r\n"));

    // The binary form is one value, which is as long; it is put together in pieces and is accounted for.
    let request = [&[0x80, 0x10, 0, 11, 0, 0, 0, 0, 0, 0, 0, 11][..], &[0; 12], b"detail dump"].concat();
    let (mut session, mut output) = (Session::new(Peer::default()), Vec::new());
    session.receive(&worker, &request, &mut output, 1 << 20);
    let mut turns = 0;
    while session.is_waiting() {
        session.poll(&worker, &mut Context::from_waker(Waker::noop()), &mut output, 1 << 20);
        turns += 1;
    }
    assert!(turns > 20_000 / LISTING_PIECE, "{turns} turns");
    let value = &output[24 + b"detailed".len()..output.len() - 24];
    assert!(value == format!("{expected}END\r\n").as_bytes());
}

#[test]
fn every_stats_group_answers_and_ends() {
    let worker = worker_with(Box::new(One));
    let mut talk = Talk::new();
    let mut say = |line: &str| String::from_utf8(talk.say(&worker, line.as_bytes())).unwrap();
    say("set a 0 0 1\r\nx\r\nget a b\r\nmg a\r\ntouch a 0\r\n");
    let general = say("stats\r\n");
    for line in [
        "STAT cmd_get 3",
        "STAT cmd_set 1",
        "STAT cmd_meta 1",
        "STAT get_hits 2",
        "STAT get_misses 1",
        "STAT touch_hits 1",
        "STAT curr_items 1",
    ] {
        assert!(general.contains(&format!("{line}\r\n")), "{line} in {general}");
    }
    for name in REQUIRED.split_whitespace() {
        assert!(general.contains(&format!("STAT {name} ")), "{name} in {general}");
    }
    assert!(general.ends_with("END\r\n"));
    let settings = say("stats settings\r\n");
    for line in [
        "maxconns 1024",
        "evictions on",
        "cas_enabled yes",
        "flush_enabled yes",
        "item_size_max 1048576",
        "domain_socket NULL",
        "tcpport 11211",
        "num_threads 4",
    ] {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line} in {settings}");
    }
    for group in ["items", "slabs", "sizes", "conns"] {
        let answer = say(&format!("stats {group}\r\n"));
        assert!(answer.starts_with("STAT ") && answer.ends_with("END\r\n"), "{answer}");
    }
    assert!(say("stats conns\r\n").contains("STAT 9:secs_since_last_cmd 3\r\n"));
    assert_eq!(say("stats nonsense\r\n"), "ERROR\r\n");
    assert_eq!(say("stats reset\r\n"), "RESET\r\n");
    assert!(say("stats\r\n").contains("STAT cmd_get 0\r\n"));
    assert_eq!(worker.node.registry.totals().cmd_get, 3, "metrics only grow");
}

/// What clients and exporters read.
const REQUIRED: &str = "pid uptime time version pointer_size rusage_user rusage_system max_connections curr_connections
    total_connections rejected_connections connection_structures cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits
    get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses
    cas_hits cas_badval touch_hits touch_misses auth_cmds auth_errors bytes_read bytes_written limit_maxbytes
    accepting_conns threads curr_items total_items bytes evictions reclaimed expired_unfetched evicted_unfetched";

#[test]
fn details_are_counted_by_prefix_while_asked_for() {
    expect(&[
        ("set p:a 0 0 1\r\nx\r\nstats detail on\r\n", "STORED\r\nOK\r\n"),
        (
            "set p:a 0 0 1\r\nx\r\nget p:a p:b q:a\r\ndelete p:a\r\n",
            "STORED\r\nVALUE p:a 0 1\r\nx\r\nEND\r\nDELETED\r\n",
        ),
        ("stats detail dump\r\n", "PREFIX p get 2 hit 1 set 1 del 1\r\nPREFIX q get 1 hit 0 set 0 del 0\r\nEND\r\n"),
        ("stats reset\r\nstats detail dump\r\n", "RESET\r\nEND\r\n"),
        ("get p:a\r\nstats detail dump\r\n", "END\r\nPREFIX p get 1 hit 0 set 0 del 0\r\nEND\r\n"),
        ("stats detail off\r\nstats detail\r\n", "OK\r\nCLIENT_ERROR usage: stats detail on|off|dump\r\n"),
    ]);
}

/// The numbers of class 1 that `stats items` and `stats slabs` tell.
fn class(talk: &mut Talk, worker: &Worker) -> BTreeMap<String, u64> {
    let text = String::from_utf8(talk.say(worker, b"stats items\r\nstats slabs\r\n")).unwrap();
    let number = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        let name = name.strip_prefix("items:").unwrap_or(name);
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// What `memcached-tool HOST display` reckons with.
#[test]
fn the_numbers_of_a_slab_class_fit_together() {
    let settings = NodeSettings { memory: 64 << 20, ..NodeSettings::default() };
    let worker = worker(settings, Authenticator::off());
    let mut talk = Talk::new();
    for number in 0..50 {
        talk.say(
            &worker,
            format!("set k{number} 0 {} 10\r\n0123456789\r\n", if number < 25 { 1 } else { 0 }).as_bytes(),
        );
    }
    let first = class(&mut talk, &worker);
    let of = |name: &str| *first.get(name).unwrap_or_else(|| panic!("no {name} in {first:?}"));
    assert_eq!((of("1:number"), of("1:used_chunks")), (50, 50));
    assert!(of("1:mem_requested") < of("1:chunk_size") * 50, "{first:?}");
    assert_eq!(of("1:total_chunks"), of("1:total_pages") * of("1:chunks_per_page"));
    assert_eq!(of("1:free_chunks"), of("1:total_chunks") - 50);
    assert!(of("1:chunks_per_page") * of("1:chunk_size") <= 1 << 20);
    for name in ["1:age", "1:evicted", "1:evicted_time", "1:outofmemory", "1:free_chunks_end"] {
        of(name);
    }
    worker.node.clock.advance(10);
    for number in 0..25 {
        talk.say(&worker, format!("set other{number} 0 0 10\r\n0123456789\r\n").as_bytes());
    }
    assert_eq!(class(&mut talk, &worker)["total_malloced"], of("total_malloced"), "expired items make room for others");
}
