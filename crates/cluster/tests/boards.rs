//! What one proxy knows of a node's lack reaches the others by way of the nodes' boards. Else a proxy that reaches the node shows
//! what another one has replaced or deleted, until that one's hints arrive.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use common::{Away, Nodes, SEED, away, set, topology};
use moneta_cluster::{Agreement, App, Apps, Cluster, ClusterConfig, Connect, Heard, Node, Opened, Topology, Writer};
use moneta_memory::Memory;
use moneta_store::board::{Board, Part};
use moneta_store::request::{Delete, Exptime, Retrieve};
use moneta_store::{
    Clock, Cx, ErrorKind, Key, Lookup, Op, Origin, Outcome, Step, Store, StoreError, Unseen, Version, Visit, Written,
    component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use parking_lot::Mutex;
use pollster::block_on;

/// One proxy's way to a node.
struct Cable(Away, Arc<AtomicBool>);

impl Double for Cable {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        self.0.inner()
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.1.load(Ordering::Relaxed) {
            true => Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "cut").not_sent())),
            false => self.0.call(cx, key, op, out),
        }
    }
}

struct Cabled {
    nodes: Nodes,
    cuts: HashMap<String, Arc<AtomicBool>>,
    boards: Arc<HashMap<String, Board>>,
    since: Since,
    clock: Arc<Clock>,
}

/// By node: since when it has what was written to it.
type Since = Arc<Mutex<HashMap<String, u64>>>;

impl Connect for Cabled {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        self.nodes.open(node)
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }

    fn exchange(&self, node: &Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        let name = node.address.to_string();
        let board = self.boards.get(&name).filter(|_| !self.cuts[&name].load(Ordering::Relaxed))?;
        let news = board.read(cursor, self.clock.millis());
        let part = post.map(|(author, text)| Part { author, number: 0, count: 1, text });
        let is_posted = part.is_some_and(|part| board.post(part, self.clock.millis()));
        let posts = news.posts.into_iter().map(|(author, text)| (author, text.to_vec())).collect();
        Some(Heard { cursor: news.cursor, since: self.since.lock()[&name], posts, is_posted })
    }
}

struct World {
    clock: Arc<Clock>,
    nodes: Vec<Away>,
    since: Since,
    boards: Arc<HashMap<String, Board>>,
    /// By proxy: its store, and its ways to the nodes.
    proxies: Vec<(Cluster, HashMap<String, Arc<AtomicBool>>)>,
}

impl World {
    /// Three copies of a node each, and two proxies: of no zone, and of zone c. Hints have so many bytes.
    fn new(hint_bytes: u64, has_boards: bool) -> Self {
        Self::within(&topology(1), ["app"; 2], hint_bytes, has_boards)
    }

    /// Among these nodes, of which the first topology has one for each copy; the proxies are of these apps.
    fn within(all: &Topology, apps: [&str; 2], hint_bytes: u64, has_boards: bool) -> Self {
        Self::of(all, apps.map(ClusterConfig::new), hint_bytes, has_boards)
    }

    fn of(all: &Topology, apps: [ClusterConfig; 2], hint_bytes: u64, has_boards: bool) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let topology = topology(1);
        let (_, stores) = away(all, &clock);
        let names: Vec<String> = all.nodes().map(|node| node.address.to_string()).collect();
        let since: Since = Arc::new(Mutex::new(names.iter().map(|name| (name.clone(), clock.millis())).collect()));
        clock.advance(1);
        let boards = names.iter().filter(|_| has_boards).map(|name| (name.clone(), Board::default()));
        let boards: Arc<HashMap<_, _>> = Arc::new(boards.collect());
        let proxy = |(number, zone): (u8, Option<&str>)| {
            let (nodes, cuts) = cabled(all, &stores);
            let connect = Cabled {
                nodes,
                cuts: cuts.clone(),
                boards: Arc::clone(&boards),
                since: Arc::clone(&since),
                clock: Arc::clone(&clock),
            };
            let zone = zone.map(Into::into);
            let config = apps[usize::from(number)].clone();
            let config = ClusterConfig { hint_bytes, zone, eject_after: u32::MAX, allow_flush: true, ..config };
            let writer = Writer { origin: Origin::new(1, number), salt: number.into(), seed: SEED };
            let cluster = Cluster::new(config, &topology, Box::new(connect), writer, 1 << 20, Arc::clone(&clock));
            (cluster.expect("a cluster"), cuts)
        };
        let proxies = [(0, None), (1, Some("c"))].map(proxy).into();
        Self { clock, nodes: stores, since, boards, proxies }
    }

    /// A second passes: each proxy tells, then each hears, as their threads do.
    fn second(&self, round: usize) {
        self.clock.advance(1);
        for _ in 0..2 {
            self.proxies.iter().for_each(|(proxy, _)| proxy.exchange(round));
        }
    }

    fn rounds(&self, rounds: usize) {
        for round in 0..rounds {
            for (proxy, _) in &self.proxies {
                block_on(proxy.maintain());
                block_on(proxy.sweep());
            }
            self.second(round);
        }
    }

    fn cut(&self, proxy: usize, node: &str, is_cut: bool) {
        self.proxies[proxy].1[node].store(is_cut, Ordering::Relaxed);
    }

    fn read(&self, proxy: usize, key: &str) -> Option<u64> {
        let request = Retrieve::default();
        let step = self.proxies[proxy].0.call(
            &Cx::outside(),
            &Key::new(key.as_bytes(), SEED),
            Op::Read(&request),
            &mut Unseen,
        );
        match block_on(steps::finish(step)).ok()? {
            Outcome::Read(Lookup::Found(item)) => Some(item.meta.cas),
            _ => None,
        }
    }

    fn delete(&self, proxy: usize, key: &str) {
        let request = Delete::default();
        let step = self.proxies[proxy].0.call(
            &Cx::outside(),
            &Key::new(key.as_bytes(), SEED),
            Op::Delete(&request),
            &mut Unseen,
        );
        block_on(steps::finish(step)).expect("two copies take it");
    }

    /// How the topology of each proxy stands to that of the other.
    fn agreements(&self) -> Vec<Agreement> {
        self.proxies.iter().map(|(proxy, _)| proxy.status().agreement).collect()
    }

    fn is_doubted(&self, proxy: usize, key: &str) -> bool {
        self.proxies[proxy].0.route(key.as_bytes()).iter().any(|copy| copy.lacks_write)
    }
}

fn cabled(topology: &Topology, stores: &[Away]) -> (Nodes, HashMap<String, Arc<AtomicBool>>) {
    let (nodes, mut cuts) = (Nodes::default(), HashMap::new());
    for (node, store) in topology.nodes().zip(stores) {
        let cut = Arc::new(AtomicBool::new(false));
        nodes.put(node, Arc::new(Layer(Cable(store.clone(), Arc::clone(&cut)))));
        cuts.insert(node.address.to_string(), cut);
    }
    (nodes, cuts)
}

#[test]
fn what_one_proxy_knows_of_a_lack_reaches_another_one_within_a_second() {
    for hint_bytes in [1 << 20, 300] {
        let world = World::new(hint_bytes, true);
        let keys: Vec<String> = (0..50).map(|number| format!("key{number}")).collect();
        keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        let old = world.nodes[2].version("key1").expect("it is there");
        world.cut(0, "c0:11211", true);
        keys[..25].iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        keys[25..].iter().for_each(|key| world.delete(0, key));
        assert_eq!(world.read(1, "key1"), Some(old), "nothing has told it yet");
        world.second(0);
        for key in &keys {
            assert_eq!(world.read(1, key), world.nodes[0].version(key), "{key} with {hint_bytes} bytes of hints");
        }
        assert!(!world.is_doubted(1, "another"), "other keys are read from the near copy");
        // The proxy reaches the node again, and says so.
        world.cut(0, "c0:11211", false);
        world.clock.advance(10);
        world.rounds(20);
        assert!(keys.iter().all(|key| !world.is_doubted(1, key)));
        assert!(keys.iter().all(|key| world.nodes[2].version(key) == world.nodes[0].version(key)));
    }
}

#[test]
fn nodes_without_boards_carry_nothing() {
    let world = World::new(1 << 20, false);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.cut(0, "c0:11211", true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.rounds(3);
    assert!(!world.is_doubted(1, "key1") && world.is_doubted(0, "key1"));
}

/// Its hints are lost. Before, what it had told counted for ten minutes, and then the copy showed what was old until the keys
/// were written again.
#[test]
fn what_a_proxy_has_told_that_is_gone_another_one_compares() {
    for hint_bytes in [1 << 20, 300] {
        let world = World::new(hint_bytes, true);
        let keys: Vec<String> = (0..50).map(|number| format!("key{number}")).collect();
        keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        world.cut(0, "c0:11211", true);
        keys[..25].iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        keys[25..].iter().for_each(|key| world.delete(0, key));
        world.second(0);
        // It is killed. The other one, which reads near that copy, goes on.
        let (proxy, _) = &world.proxies[1];
        for round in 0..700 {
            world.clock.advance(1);
            block_on(proxy.maintain());
            block_on(proxy.sweep());
            proxy.exchange(round);
            if round % 50 == 0 {
                for key in &keys {
                    assert_eq!(world.read(1, key), world.nodes[0].version(key), "{key} after {round} seconds");
                }
            }
        }
        let differing = keys.iter().filter(|key| world.nodes[2].version(key) != world.nodes[0].version(key)).count();
        assert_eq!(differing, 0, "of 50 with {hint_bytes} bytes of hints");
        assert!(keys.iter().all(|key| !world.is_doubted(1, key)), "it ends");
    }
}

/// It has not told it for a while, as it was cut off: it is no other's to take back then.
#[test]
fn a_proxy_that_was_cut_off_for_long_tells_again() {
    let world = World::new(1 << 20, true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.cut(0, "c0:11211", true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.second(0);
    let names = ["a0:11211", "b0:11211"];
    names.iter().for_each(|name| world.cut(0, name, true));
    for round in 0..300 {
        world.second(round);
        block_on(world.proxies[1].0.sweep());
    }
    assert!(!world.is_doubted(1, "key1"), "it was compared");
    names.iter().for_each(|name| world.cut(0, name, false));
    (0..3).for_each(|round| world.second(round));
    assert!(world.is_doubted(1, "key1"));
}

/// It hears that the other one goes on once it is connected again.
#[test]
fn a_proxy_that_was_cut_off_takes_no_other_for_gone() {
    let world = World::new(1 << 20, true);
    world.cut(0, "c0:11211", true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.second(0);
    let names = ["a0:11211", "b0:11211", "c0:11211"];
    names.iter().for_each(|name| world.cut(1, name, true));
    (0..300).for_each(|round| world.second(round));
    names.iter().for_each(|name| world.cut(1, name, false));
    (0..3).for_each(|round| world.second(round));
    assert!(world.is_doubted(1, "key1"), "by what the other one says");
    assert!(world.proxies[1].0.status().nodes.iter().all(|node| node.in_doubt == 0.0), "not by what it knows itself");
}

/// No write has such a version, so that no comparison would end the doubt.
#[test]
fn what_is_taken_over_is_in_doubt_up_to_now_at_most() {
    let world = World::new(1 << 20, true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    // All keys of the third copy, up to a day ahead, says one that says nothing more.
    let future = Version::at(world.clock.millis() + 86_400_000);
    let node = [&[3][..], b"c/0", &[1], &[0, 1, 0], &[0; 4], &future.0.to_le_bytes()].concat();
    let post = [&1u64.to_le_bytes()[..], &[3], b"app", &[1, 0], &node].concat();
    let part = Part { author: 99, number: 0, count: 1, text: &post };
    assert!(world.boards["a0:11211"].post(part, world.clock.millis()));
    world.second(0);
    assert!(world.is_doubted(0, "key1"));
    let in_doubt = || world.proxies.iter().any(|(proxy, _)| proxy.status().nodes[2].in_doubt > 0.0);
    let mut is_taken_over = false;
    for round in 0..400 {
        is_taken_over |= in_doubt();
        world.second(round);
        world.proxies.iter().for_each(|(proxy, _)| block_on(proxy.sweep()));
    }
    assert!(is_taken_over && !in_doubt() && !world.is_doubted(0, "key1"));
}

/// A copy that has come back empty says nothing of what is older by not having it.
#[test]
fn an_empty_copy_takes_nothing_from_copies_in_doubt() {
    let world = World::new(4_000, true);
    let keys: Vec<String> = (0..50).map(|number| format!("key{number}")).collect();
    keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
    world.clock.advance(10);
    keys.iter().for_each(|key| world.nodes[2].forget(key));
    world.since.lock().insert("c0:11211".into(), world.clock.millis());
    world.second(0);
    // What may be on the others is more than is kept.
    world.nodes[..2].iter().for_each(Away::is_silent);
    (0..20_000).for_each(|number| assert!(set(&world.proxies[0].0, &format!("other{number}"), 0).is_err()));
    world.nodes[..2].iter().for_each(|node| node.goes(false));
    let doubted = keys.iter().filter(|key| world.is_doubted(0, key)).count();
    assert!(doubted > 40, "{doubted}");
    let lost: Vec<_> = keys.iter().filter(|key| world.read(0, key).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    world.rounds(300);
    assert!(keys.iter().all(|key| !world.is_doubted(0, key)), "it ends");
    assert!(keys.iter().all(|key| world.nodes[..2].iter().all(|node| node.holds(key))));
}

fn version(stored: Result<Outcome, StoreError>) -> Option<u64> {
    match stored.expect("it is stored") {
        Outcome::Written(Written::Stored { cas }) => Some(cas),
        other => panic!("{other:?}"),
    }
}

/// All keys that move are old or back for good where the later proxy has written them to the nodes of before.
#[test]
fn what_was_written_by_a_topology_that_others_had_replaced_is_given_to_the_nodes_of_the_new_one() {
    let new = Topology { epoch: 2, ..topology(2) };
    let world = World::within(&new, ["app"; 2], 1 << 20, true);
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    world.second(0);
    world.proxies[0].0.change(&new).expect("it is taken");
    keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
    world.second(1);
    let (kept, deleted) = keys.split_at(150);
    let versions: Vec<_> = kept.iter().map(|key| version(set(&world.proxies[1].0, key, 0))).collect();
    deleted.iter().for_each(|key| world.delete(1, key));
    assert_eq!(world.agreements(), [Agreement::Agrees, Agreement::Agrees], "for a few seconds that is usual");
    (0..4).for_each(|round| world.second(round));
    assert_eq!(world.agreements(), [Agreement::Agrees, Agreement::Behind]);
    world.proxies[1].0.change(&new).expect("it is taken");
    world.rounds(30);
    assert_eq!(world.agreements(), [Agreement::Agrees, Agreement::Agrees]);
    let old = kept.iter().zip(&versions).filter(|(key, version)| world.read(0, key) != **version).count();
    let back = deleted.iter().filter(|key| world.read(0, key).is_some()).count();
    assert_eq!((old, back), (0, 0), "old of 150, and back of 50");
}

/// A flush takes all that a node has, whichever app's it is.
#[test]
fn an_app_is_not_flushed_where_another_proxy_has_an_app_on_its_nodes() {
    for (other, is_refused) in [("app", false), ("other", true)] {
        let world = World::within(&topology(1), ["app", other], 1 << 20, true);
        let flush = || {
            let cluster = world.proxies[0].0.clone();
            let app = App { cluster: cluster.clone(), prefix: Some(Vec::new()), strip_prefix: false, door: None };
            let among =
                block_on(steps::finish(component::flush(&Apps::new(vec![app]), &Cx::outside(), Exptime::NEVER)));
            let alone = block_on(steps::finish(component::flush(&cluster, &Cx::outside(), Exptime::NEVER)));
            assert_eq!(among.is_err(), alone.is_err(), "a proxy of one app has it alone: {alone:?}");
            alone
        };
        assert!(set(&world.proxies[1].0, "key1", 0).is_ok());
        // Longer than a post stays that is not repeated.
        (0..900).for_each(|round| world.second(round));
        let flushed = flush();
        assert_eq!((flushed.is_err(), world.nodes[0].holds("key1")), (is_refused, is_refused), "{flushed:?}");
    }
}

/// A node lists the keys of all apps that it has. Those of another one are on no other copy of this one, which is no reason to
/// drop them.
#[test]
fn keys_of_another_app_are_not_compared_and_stay() {
    for (prefix, is_compared) in [("", false), ("app:", true)] {
        let apps = ["app", "other"].map(|name| {
            let others = vec![b"app:x".into()];
            ClusterConfig { prefix: prefix.into(), others, ..ClusterConfig::new(name) }
        });
        let world = World::of(&topology(1), apps, 4_000, true);
        world.second(0);
        let keys: Vec<String> = (0..300).map(|number| format!("app:key{number}")).collect();
        let foreign: Vec<String> = ["key", "app:xkey"]
            .into_iter()
            .flat_map(|key| (0..300).map(move |number| format!("{key}{number}")))
            .collect();
        foreign.iter().for_each(|key| world.nodes[2].plant(key));
        keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        world.clock.advance(1);
        world.cut(0, "c0:11211", true);
        keys.iter().for_each(|key| assert!(set(&world.proxies[0].0, key, 0).is_ok()));
        world.cut(0, "c0:11211", false);
        let doubt = || {
            let node = world.proxies[0].0.status().nodes.remove(2);
            (node.in_doubt > 0.0, node.doubt_failure.is_some())
        };
        assert_eq!(doubt(), (true, false));
        world.rounds(30);
        assert_eq!(doubt(), (!is_compared, !is_compared), "with the prefix {prefix:?}");
        assert!(foreign.iter().all(|key| world.nodes[2].holds(key)));
        let told = component::report(&world.proxies[0].0, &Cx::outside()).metrics;
        let compared = told.iter().filter(|sample| sample.metric.name == "cluster_doubt_checked_total");
        let compared: f64 = compared.map(|sample| sample.value.number()).sum();
        assert!(compared <= keys.len() as f64 && is_compared == (compared > 0.0), "{compared}");
    }
}

/// Before anything was heard of it: the board of the node that is compared tells.
#[test]
fn another_app_is_known_before_keys_are_compared() {
    let world = World::within(&topology(1), ["app", "other"], 4_000, true);
    world.nodes[2].plant("key");
    world.clock.advance(1);
    world.cut(0, "c0:11211", true);
    (0..9_000).for_each(|number| assert!(set(&world.proxies[0].0, &format!("key{number}"), 0).is_ok()));
    assert!(world.is_doubted(0, "key"), "by a key in the same part");
    world.cut(0, "c0:11211", false);
    world.proxies[1].0.exchange(0);
    world.clock.advance(10);
    for _ in 0..300 {
        world.clock.advance(1);
        block_on(world.proxies[0].0.maintain());
        block_on(world.proxies[0].0.sweep());
    }
    assert!(world.nodes[2].holds("key"));
}

/// Boards answer once the sender is gone.
struct Late(Cabled, Mutex<mpsc::Receiver<()>>);

impl Connect for Late {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        self.0.open(node)
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }

    fn exchange(&self, node: &Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        let _ = self.1.lock().recv();
        self.0.exchange(node, cursor, post)
    }
}

impl World {
    /// A further proxy in a world of two nodes a copy, to which boards answer once the sender is gone.
    fn another(&self, app: &str, topology: &Topology, waits: mpsc::Receiver<()>) -> Cluster {
        let (nodes, cuts) = cabled(&common::topology(2), &self.nodes);
        let (boards, since, clock) = (Arc::clone(&self.boards), Arc::clone(&self.since), Arc::clone(&self.clock));
        let connect = Late(Cabled { nodes, cuts, boards, since, clock }, Mutex::new(waits));
        let config = ClusterConfig { allow_flush: true, ..ClusterConfig::new(app) };
        let writer = Writer { origin: Origin::new(1, 7), salt: 7, seed: SEED };
        let clock = Arc::clone(&self.clock);
        Cluster::new(config, topology, Box::new(connect), writer, 1 << 20, clock).expect("a cluster")
    }
}

/// Two apps of one name count as one: flushes and what is posted are of both. Only their topologies tell.
#[test]
fn apps_of_one_name_that_share_nodes_are_told_by_their_topologies() {
    for (other, differs) in [("app", true), ("other", false)] {
        let world = World::within(&topology(2), ["app"; 2], 1 << 20, true);
        let cluster = world.another(other, &topology(2), mpsc::channel().1);
        for round in 0..10 {
            world.second(round);
            cluster.exchange(round);
        }
        let agreements = [world.agreements(), vec![cluster.status().agreement]].concat();
        assert_eq!(agreements.contains(&Agreement::Differs), differs, "{agreements:?}");
    }
}

/// One that has just started has heard of none, and would empty their nodes, of which it may have one alone.
#[test]
fn a_flush_waits_until_other_proxies_were_heard() {
    let mut all = topology(2);
    all.replicas.iter_mut().for_each(|replica| replica.nodes.reverse());
    for (other, is_refused) in [("app", false), ("other", true)] {
        let world = World::within(&topology(2), [other; 2], 1 << 20, true);
        world.second(0);
        assert!(set(&world.proxies[1].0, "key1", 0).is_ok());
        let (opens, waits) = mpsc::channel();
        let cluster = world.another("app", &all, waits);
        cluster.start().expect("it has threads");
        let app = App { cluster: cluster.clone(), prefix: Some(Vec::new()), strip_prefix: false, door: None };
        let flush = component::flush(&Apps::new(vec![app]), &Cx::outside(), Exptime::NEVER);
        assert!(matches!(flush, Step::Wait(_)), "no board has answered");
        drop(opens);
        let flushed = block_on(steps::finish(flush));
        component::close(&cluster);
        assert_eq!((flushed.is_err(), world.nodes[0].holds("key1")), (is_refused, is_refused), "{flushed:?}");
    }
}

/// Else its hints lie in a file that nothing reads.
#[test]
fn a_copy_under_another_name_lacks_what_it_lacked() {
    let world = World::new(1 << 20, true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    world.cut(0, "c0:11211", true);
    assert!(set(&world.proxies[0].0, "key1", 0).is_ok());
    let mut renamed = Topology { epoch: 2, ..topology(1) };
    renamed.replicas[2].name = "third".into();
    renamed.replicas[2].nodes[0].slot = "first".into();
    world.proxies[0].0.change(&renamed).expect("it is taken");
    assert!(world.is_doubted(0, "key1"));
    world.cut(0, "c0:11211", false);
    world.clock.advance(10);
    world.rounds(20);
    assert!(!world.is_doubted(0, "key1"));
    assert_eq!(world.nodes[2].version("key1"), world.nodes[0].version("key1"));
}
