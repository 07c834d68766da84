//! Commands by version over RAM: what is older must not replace what is newer, and a client must not get past that.

use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_server::auth::Authenticator;
use moneta_server::node::{ClientVersions, Commands, NodeSettings, Peer};
use moneta_server::session::{Session, Worker};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, KeyHash, Origin, Version};

use crate::talk::{HIGH_WATER, NOW, Talk, worker_on};

const ITEM_MAX: usize = 100_000;

pub fn node(cluster: bool) -> (Worker, Arc<Clock>) {
    node_that(cluster, ClientVersions::Taken)
}

fn node_that(cluster: bool, client_versions: ClientVersions) -> (Worker, Arc<Clock>) {
    let clock = Arc::new(Clock::manual(NOW));
    let origin = Origin::new(3, 9);
    let config = MemoryConfig {
        limit: 64 << 20,
        item_max: ITEM_MAX,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(7),
        versioning: Versioning { origin, cluster, ..Versioning::default() },
    };
    let store = Memory::new(&config, Arc::clone(&clock)).expect("there is memory");
    let settings = NodeSettings { item_max: ITEM_MAX, origin, cluster, client_versions, ..NodeSettings::default() };
    (worker_on(store, &clock, settings, Authenticator::off()), clock)
}

/// A version of this many milliseconds after the start.
pub fn at(millis: u64) -> u64 {
    Version::at(u64::from(NOW) * 1000 + millis).0 + 5
}

fn say(worker: &Worker, talk: &mut Talk, lines: &str) -> String {
    String::from_utf8(talk.say(worker, lines.as_bytes())).expect("text")
}

#[test]
fn the_newer_write_stays_whatever_the_order() {
    let (worker, _) = node(false);
    let talk = &mut Talk::new();
    let [old, middle, new] = [at(100), at(200), at(300)];
    let mut expect = |lines: String, answer: &str| assert_eq!(say(&worker, talk, &lines), answer, "{lines:?}");
    expect(format!("ms k 1 V{middle} c\r\nb\r\n"), &format!("HD c{middle}\r\n"));
    expect(format!("ms k 1 V{old} O1\r\na\r\n"), &format!("EX O1 V{middle}\r\n"));
    expect(format!("ms k 1 V{middle} q\r\nb\r\nmn\r\n"), "MN\r\n");
    expect(format!("ms k 1 V{middle}\r\nb\r\n"), &format!("HD V{middle}\r\n"));
    expect(format!("md k V{old}\r\n"), &format!("EX V{middle}\r\n"));
    expect("mg k v V D Y\r\n".into(), &format!("VA 1 V{middle} D0 Y0\r\nb\r\n"));
    expect("gets k\r\n".into(), &format!("VALUE k 0 1 {middle}\r\nb\r\nEND\r\n"));
    expect(format!("md k V{new}\r\n"), "HD\r\n");
    expect(format!("ms k 1 V{middle}\r\nb\r\n"), &format!("EX V{new}\r\n"));
    expect(format!("md k V{new}\r\n"), &format!("EX V{new}\r\n"));
    expect("mg k v V\r\n".into(), "EN\r\n");
    let totals = worker.node.registry.totals();
    assert_eq!((totals.superseded, totals.cmd_set, totals.refused_ahead), (4, 5, 0));
}

#[test]
fn all_of_an_item_arrives() {
    let (worker, _) = node(false);
    let talk = &mut Talk::new();
    let (version, expiry) = (at(1), NOW + 50);
    let put = format!("ms a2V5 1 b F7 D{expiry} Y3 A{} V{version}\r\nx\r\n", u64::from(NOW) * 1000);
    assert_eq!(say(&worker, talk, &put), "HD\r\n");
    let shown = say(&worker, talk, "mg key f t V D Y v\r\n");
    assert_eq!(shown, format!("VA 1 f7 t50 V{version} D{expiry} Y3 Z X\r\nx\r\n"));
}

#[test]
fn what_may_have_been_deleted_is_not_created() {
    let (worker, clock) = node(false);
    let talk = &mut Talk::new();
    // A node knows no deletes of before its start.
    let before = u64::from(NOW) * 1000 - 1;
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{} A{before}\r\nx\r\n", at(5))), "NS\r\n");
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{}\r\nx\r\n", at(5))), "HD\r\n");
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{} A{before}\r\ny\r\n", at(6))), "HD\r\n");
    clock.advance(1);
    assert_eq!(say(&worker, talk, "mg k v\r\n"), "VA 1\r\ny\r\n");
}

#[test]
fn what_is_remembered_of_deletes_shows_in_stats_and_nowhere_else() {
    let (worker, clock) = node(true);
    let talk = &mut Talk::new();
    clock.advance(5);
    say(&worker, talk, "set a 0 0 1\r\nx\r\ndelete a\r\ndelete b\r\n");
    let stats = say(&worker, talk, "stats\r\n");
    let shows = |line: &str| assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    shows("tombstones 2");
    shows("tombstone_bytes 1024");
    shows(&format!("horizon {NOW}"));
    assert_eq!(say(&worker, talk, "lru_crawler metadump all\r\nme a\r\n"), "OK\r\nEND\r\nEN\r\n");
}

#[test]
fn a_version_ahead_of_the_clock_is_refused_and_counted() {
    let (worker, _) = node(false);
    let talk = &mut Talk::new();
    const AHEAD: &str = "SERVER_ERROR the version is ahead of this node's clock\r\n";
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{}\r\nx\r\n", at(501))), AHEAD);
    assert_eq!(say(&worker, talk, &format!("md k V{}\r\n", at(501))), AHEAD);
    assert_eq!(say(&worker, talk, "mg k v\r\n"), "EN\r\n");
    // Nothing could be stored any more until the clock is there.
    assert_eq!(say(&worker, talk, &format!("mf {} 0\r\n", at(3_600_000))), AHEAD);
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{}\r\nx\r\nmg k v\r\n", at(400))), "HD\r\nVA 1\r\nx\r\n");
    let totals = worker.node.registry.totals();
    assert_eq!((totals.refused_ahead, totals.store_errors), (3, 0));
    assert!(say(&worker, talk, "stats\r\n").contains("STAT refused_ahead 3\r\n"));
}

#[test]
fn a_flush_from_elsewhere_takes_what_is_older_once_its_second_has_come() {
    // A lone node drops everything, as memcached does.
    let (worker, clock) = node(true);
    let talk = &mut Talk::new();
    say(&worker, talk, &format!("ms old 1 V{}\r\nx\r\nms new 1 V{}\r\nx\r\n", at(10), at(30)));
    assert_eq!(say(&worker, talk, &format!("mf {} {NOW} O5\r\n", at(20))), "HD O5\r\n");
    assert_eq!(say(&worker, talk, "mg old\r\nmg new\r\n"), "EN\r\nHD\r\n");
    assert_eq!(say(&worker, talk, &format!("ms old 1 V{}\r\nx\r\n", at(10))), format!("EX V{}\r\n", at(20)));
    assert_eq!(say(&worker, talk, &format!("mf {} {} q\r\nmg new\r\n", at(40), NOW + 5)), "HD\r\n");
    clock.advance(5);
    assert_eq!(say(&worker, talk, "mg new\r\n"), "EN\r\n");
}

#[test]
fn a_flush_from_elsewhere_is_refused_where_flush_all_is() {
    let refused = "CLIENT_ERROR mf not allowed\r\n";
    let line = format!("mf {} {NOW}\r\n", at(20));
    let (mut worker, clock) = node(false);
    let mut session = Session::new(Peer { commands: Commands::NONE, ..Peer::default() });
    let mut output = Vec::new();
    session.receive(&worker, line.as_bytes(), &mut output, HIGH_WATER);
    assert_eq!(String::from_utf8(output).unwrap(), refused);
    let settings = NodeSettings { flush_enabled: false, ..NodeSettings::default() };
    let store = Arc::clone(&worker.store);
    worker = worker_on(store, &clock, settings, Authenticator::off());
    assert_eq!(say(&worker, &mut Talk::new(), &line), refused);
}

/// Without this a copy whose clients have no commands of operators keeps what the other copies have dropped, and its proxies do
/// not ask it again.
#[test]
fn what_a_cluster_needs_of_its_nodes_is_no_command_of_operators() {
    let (worker, clock) = node(true);
    let ask = |worker: &Worker, line: &str| {
        let mut session = Session::new(Peer { commands: Commands::NONE, ..Peer::default() });
        let mut output = Vec::new();
        session.receive(worker, line.as_bytes(), &mut output, HIGH_WATER);
        String::from_utf8(output).unwrap()
    };
    assert_eq!(ask(&worker, &format!("ms k 1 V{}\r\nx\r\nmd k V{}\r\n", at(10), at(15))), "HD\r\nHD\r\n");
    assert_eq!(ask(&worker, &format!("mf {} {NOW}\r\n", at(20))), "HD\r\n");
    assert_eq!(ask(&worker, &format!("mf {} 0\r\n", at(30))), "HD\r\n");
    assert_eq!(ask(&worker, "flush_all\r\n"), "CLIENT_ERROR flush_all not allowed\r\n");
    assert!(ask(&worker, "mv\r\n").starts_with("MV 2 "));
    // `--disable-flush-all` is about flushes, and not about what this copy alone lacks.
    let settings = NodeSettings { flush_enabled: false, cluster: true, ..NodeSettings::default() };
    let worker = worker_on(Arc::clone(&worker.store), &clock, settings, Authenticator::off());
    assert_eq!(ask(&worker, &format!("mf {} {NOW}\r\n", at(60))), "CLIENT_ERROR mf not allowed\r\n");
    assert_eq!(ask(&worker, &format!("mf {} 0\r\n", at(70))), "HD\r\n");
}

#[test]
fn a_client_can_ask_what_the_server_knows() {
    let (worker, clock) = node(true);
    clock.advance_millis(77);
    let told = format!("MV 2 region=3 writer=9 cluster=1 now={NOW}077");
    let ask = || say(&worker, &mut Talk::new(), "mv\r\n");
    assert_eq!(ask(), format!("{told}\r\n"), "it has made no version");
    say(&worker, &mut Talk::new(), &format!("ms k 1 V{}\r\nx\r\n", at(50)));
    let newest = |answer: &str| answer.strip_prefix(&format!("{told} newest="))?.trim_end().parse::<u64>().ok();
    let seen = newest(&ask());
    assert!(seen.is_some_and(|newest| (at(50)..at(51)).contains(&newest)), "{seen:?}");
}

/// A client that chooses a CAS value above all versions would block every newer write.
#[test]
fn one_of_several_copies_lets_no_client_choose_cas_values() {
    let refused = "CLIENT_ERROR CAS values cannot be chosen on this server\r\n";
    let (worker, _) = node(true);
    let talk = &mut Talk::new();
    assert_eq!(
        say(&worker, talk, "ms k 1 E99\r\nx\r\nmg k N0 E99\r\nma k N0 E99\r\nmd k I E99\r\n"),
        refused.repeat(4)
    );
    assert_eq!(say(&worker, talk, "mg k\r\n"), "EN\r\n");
    let (worker, _) = node(false);
    assert_eq!(say(&worker, &mut Talk::new(), "ms k 1 E99\r\nx\r\nmg k c V\r\n"), "HD\r\nHD c99 V0\r\n");
}

#[test]
fn where_clients_may_not_name_versions_nothing_happens() {
    // The listener of these tests is an online one.
    for client_versions in [ClientVersions::Batch, ClientVersions::Refused] {
        let (worker, _) = node_that(true, client_versions);
        let talk = &mut Talk::new();
        assert_eq!(say(&worker, talk, "set k 0 0 3\r\nold\r\n"), "STORED\r\n");
        let refused = "CLIENT_ERROR versions cannot be named here: see client_versions\r\n";
        let version = at(400);
        for command in
            [format!("ms k 1 V{version}\r\nx\r\n"), format!("md k V{version}\r\n"), format!("mf {version} {NOW}\r\n")]
        {
            assert_eq!(say(&worker, talk, &command), refused, "{command}");
        }
        let large = format!("ms k {} V{version}\r\n{}\r\n", ITEM_MAX + 1, "x".repeat(ITEM_MAX + 1));
        assert_eq!(say(&worker, talk, &large), "SERVER_ERROR object too large for cache\r\n");
        assert_eq!(say(&worker, talk, "get k\r\n"), "VALUE k 0 3\r\nold\r\nEND\r\n");
    }
}

/// The other copies may take what is too large here: a delete of it that reaches them would be wrong.
#[test]
fn a_value_over_the_limit_deletes_only_what_is_older() {
    let (worker, _) = node(true);
    let talk = &mut Talk::new();
    let version = at(100);
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{version}\r\nx\r\n")), "HD\r\n");
    let large = format!("ms k {} V{}\r\n{}\r\n", ITEM_MAX + 1, at(200), "x".repeat(ITEM_MAX + 1));
    assert_eq!(say(&worker, talk, &large), "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(say(&worker, talk, "mg k\r\n"), "EN\r\n", "what it had is stale");
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{version}\r\nx\r\n")), format!("EX V{}\r\n", at(200) - 1));
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{}\r\nx\r\n", at(200))), "HD\r\n");
    let large = format!("ms k {} V{}\r\n{}\r\n", ITEM_MAX + 1, at(150), "x".repeat(ITEM_MAX + 1));
    assert_eq!(say(&worker, talk, &large), "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(say(&worker, talk, "mg k\r\n"), "HD\r\n", "what it has is newer");
}

/// To other nodes it is as a memcached, but for the words of the refusal, which they know.
#[test]
fn a_node_that_counts_cas_values_takes_no_versions() {
    const NONE: &str = "SERVER_ERROR this store keeps no versions\r\n";
    let (worker, clock) = node(false);
    let settings = NodeSettings { keeps_versions: false, ..NodeSettings::default() };
    let worker = worker_on(Arc::clone(&worker.store), &clock, settings, Authenticator::off());
    let talk = &mut Talk::new();
    assert_eq!(say(&worker, talk, "mv\r\n"), "ERROR\r\n");
    assert_eq!(say(&worker, talk, &format!("ms k 1 V{}\r\nx\r\nmg k\r\n", at(5))), format!("{NONE}EN\r\n"));
    assert_eq!(say(&worker, talk, "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    for line in [format!("md k V{}", at(5)), format!("mf {} {NOW}", at(5)), format!("mf {} 0", at(5))] {
        assert_eq!(say(&worker, talk, &format!("{line}\r\nmg k\r\n")), format!("{NONE}HD\r\n"), "{line}");
    }
}
