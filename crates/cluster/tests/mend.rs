//! What a process that was killed had given to some copies alone is given to the others by another process.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Nodes, SEED, memory, set, topology};
use moneta_cluster::{Cluster, ClusterConfig, Connect, Heard, Node, Opened, Topology, Writer};
use moneta_feed::{Begin, Buckets, Change, Line, Mark, Next, Set, Source, SourceError, Wanted};
use moneta_layers::feed::Feed;
use moneta_memory::Memory;
use moneta_store::board::{Board, Part};
use moneta_store::request::{Delete, Write};
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, ItemMeta, Key, Lookup, Op, Origin, Step, Store, StoreError, Unseen, Version, Visit,
    component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::feed::StoreSource;
use parking_lot::Mutex;
use pollster::block_on;

type Telling = Arc<Feed<Memory>>;

/// One process's way to a node: whether it is cut, and whether what is written by it gets lost.
struct Cable(Telling, Arc<AtomicBool>, Arc<AtomicBool>);

impl Double for Cable {
    type Inner = Feed<Memory>;

    fn inner(&self) -> &Feed<Memory> {
        &self.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.1.load(Relaxed) {
            true => Step::Done(Err(StoreError::new(ErrorKind::Timeout, "cut"))),
            false if self.2.load(Relaxed) && matches!(op, Op::Put(..)) => {
                Step::Done(Err(StoreError::new(ErrorKind::Timeout, "lost")))
            }
            false => self.0.call(cx, key, op, out),
        }
    }
}

/// What a node's feed tells beside what changed.
#[derive(Clone, Default)]
struct Lie {
    changes: Vec<Change>,
    /// It does not tell since when it remembers deletes.
    hides_horizon: bool,
}

type Lies = Arc<Mutex<HashMap<String, Lie>>>;

/// One process's way to the feed of a node.
struct Feeding {
    source: StoreSource,
    lie: Lie,
    is_cut: bool,
}

impl Source for Feeding {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        if self.is_cut { Err(SourceError::Away("cut".into())) } else { self.source.begin(from, rate) }
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if let Some(change) = self.lie.changes.pop() {
            return Ok(Next::Line(Line::Change(change)));
        }
        Ok(match self.source.next()? {
            Next::Line(Line::Mark(mark)) if self.lie.hides_horizon => {
                Next::Line(Line::Mark(Mark { horizon: 0, ..mark }))
            }
            next => next,
        })
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        self.source.wait(bytes)
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.source.set_rate(rate)
    }
}

struct Cabled {
    nodes: Nodes,
    cuts: HashMap<String, Arc<AtomicBool>>,
    boards: Arc<HashMap<String, Board>>,
    stores: Arc<Mutex<HashMap<String, Telling>>>,
    lies: Lies,
    clock: Arc<Clock>,
}

impl Connect for Cabled {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        self.nodes.open(node)
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }

    fn exchange(&self, node: &Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        let name = node.address.to_string();
        let board = self.boards.get(&name).filter(|_| !self.cuts[&name].load(Relaxed))?;
        let news = board.read(cursor, self.clock.millis());
        let part = post.map(|(author, text)| Part { author, number: 0, count: 1, text });
        let is_posted = part.is_some_and(|part| board.post(part, self.clock.millis()));
        let posts = news.posts.into_iter().map(|(author, text)| (author, text.to_vec())).collect();
        Some(Heard { cursor: news.cursor, since: self.clock.millis(), posts, is_posted })
    }

    fn feed(&self, node: &Node, buckets: Option<Buckets>) -> Option<Box<dyn Source>> {
        let name = node.address.to_string();
        let store = Arc::clone(&self.stores.lock()[&name]);
        let lie = self.lies.lock().get(&name).cloned().unwrap_or_default();
        let source = StoreSource::new(store, Wanted { buckets, ..Wanted::default() });
        Some(Box::new(Feeding { source, lie, is_cut: self.cuts[&name].load(Relaxed) }))
    }
}

struct World {
    clock: Arc<Clock>,
    topology: Topology,
    stores: Arc<Mutex<HashMap<String, Telling>>>,
    boards: Arc<HashMap<String, Board>>,
    lies: Lies,
    loses_writes: Arc<AtomicBool>,
    /// By process: its store, and its ways to the nodes.
    processes: Vec<(Cluster, HashMap<String, Arc<AtomicBool>>)>,
    round: usize,
    /// Processes that were started.
    started: u8,
}

impl World {
    /// Three copies of two nodes each, and so many processes.
    fn new(processes: usize) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let topology = topology(2);
        let mut stores = HashMap::new();
        for (number, node) in topology.nodes().enumerate() {
            stores.insert(node.address.to_string(), telling(&clock, number as u8));
        }
        // So that each node can tell what was deleted.
        clock.advance(100);
        let boards = stores.keys().map(|name| (name.clone(), Board::default())).collect();
        let (stores, boards, lies) = (Arc::new(Mutex::new(stores)), Arc::new(boards), Lies::default());
        let loses_writes = Arc::default();
        let mut world =
            Self { clock, topology, stores, boards, lies, loses_writes, processes: Vec::new(), round: 0, started: 0 };
        (0..processes).for_each(|_| world.start(ClusterConfig::new("app")));
        (0..3).for_each(|_| world.second());
        world
    }

    fn start(&mut self, config: ClusterConfig) {
        self.started += 1;
        let number = self.started;
        let (nodes, mut cuts) = (Nodes::default(), HashMap::new());
        for node in self.topology.nodes() {
            let name = node.address.to_string();
            let cut = Arc::new(AtomicBool::new(false));
            let store = Arc::clone(&self.stores.lock()[&name]);
            nodes.put(node, Arc::new(Layer(Cable(store, Arc::clone(&cut), Arc::clone(&self.loses_writes)))));
            cuts.insert(name, cut);
        }
        let connect = Cabled {
            nodes,
            cuts: cuts.clone(),
            boards: Arc::clone(&self.boards),
            stores: Arc::clone(&self.stores),
            lies: Arc::clone(&self.lies),
            clock: Arc::clone(&self.clock),
        };
        let config = ClusterConfig { eject_after: u32::MAX, ..config };
        let writer = Writer { origin: Origin::new(1, number), salt: number.into(), seed: SEED };
        let cluster = Cluster::new(config, &self.topology, Box::new(connect), writer, 1 << 20, Arc::clone(&self.clock));
        self.processes.push((cluster.expect("a cluster"), cuts));
    }

    /// A second passes for all processes.
    fn second(&mut self) {
        self.clock.advance(1);
        for (cluster, _) in &self.processes {
            cluster.exchange(self.round);
            block_on(cluster.maintain());
            block_on(cluster.sweep());
            block_on(cluster.mend());
        }
        self.round += 1;
    }

    /// Until what any process wrote has been compared.
    fn a_while(&mut self) {
        (0..120).for_each(|_| self.second());
    }

    /// The first process reaches these nodes alone from now on.
    fn reaches(&self, zones: &[&str]) {
        self.reaches_from(0, zones);
    }

    /// The same of another process.
    fn reaches_from(&self, process: usize, zones: &[&str]) {
        for (name, cut) in &self.processes[process].1 {
            cut.store(!zones.iter().any(|zone| name.starts_with(zone)), Relaxed);
        }
    }

    /// The node of a copy that has a key, and another one of that copy.
    fn nodes_of(&self, copy: usize, key: &str) -> [Telling; 2] {
        let nodes = &self.topology.replicas[copy].nodes;
        let place = moneta_cluster::Ring::new(self.topology.ring, nodes).expect("a ring").node(key.as_bytes());
        [place, 1 - place].map(|place| Arc::clone(&self.stores.lock()[&nodes[place].address.to_string()]))
    }

    fn lie(&self, node: &str, changes: Vec<Change>) {
        self.lies.lock().entry(node.into()).or_default().changes.extend(changes);
    }

    /// What the copies have of a key.
    fn copies(&self, key: &str) -> Vec<Option<u64>> {
        (0..3).map(|copy| version(&*self.nodes_of(copy, key)[0], key)).collect()
    }

    fn agree(&self, key: &str) -> bool {
        let copies = self.copies(key);
        copies.iter().all(|copy| *copy == copies[0])
    }

    fn counted(&self, process: usize, name: &str) -> u64 {
        let samples = component::report(&self.processes[process].0, &Cx::outside()).metrics;
        samples.iter().filter(|sample| sample.metric.name == name).map(|sample| sample.value.number() as u64).sum()
    }
}

fn telling(clock: &Arc<Clock>, writer: u8) -> Telling {
    Arc::new(Feed::new(memory(clock, writer, 16 << 20, 1 << 20), 1 << 20, Arc::clone(clock)))
}

fn version(store: &dyn Store, key: &str) -> Option<u64> {
    let step = steps::read_owned(store, &Cx::outside(), &Key::new(key.as_bytes(), SEED), Op::Peek);
    match block_on(steps::finish(step)).expect("it answers").lookup() {
        Lookup::Found(item) => Some(item.meta.cas),
        _ => None,
    }
}

/// Sets a key on one node alone, and tells its version.
fn plant(store: &Telling, key: &str) -> u64 {
    store.set(&Key::new(key.as_bytes(), SEED), b"value", &Write::default()).now().expect("it stores");
    version(&**store, key).expect("it is there")
}

/// What a feed tells of a set.
fn told_set(key: &str, version: Version) -> Change {
    let meta = ItemMeta { cas: version.0, ..ItemMeta::default() };
    Change::Set(Set { key: key.to_owned().into_bytes().into(), meta, value: None, as_of: None })
}

fn told_delete(key: &str, version: Version) -> Change {
    Change::Delete { key: key.to_owned().into_bytes().into(), version }
}

fn delete(cluster: &Cluster, key: &str) {
    let (key, request) = (Key::new(key.as_bytes(), SEED), Delete::default());
    let _ = block_on(steps::finish(cluster.call(&Cx::outside(), &key, Op::Delete(&request), &mut Unseen)));
}

#[test]
fn all_copies_agree_some_time_after_a_process_was_killed_in_the_middle_of_writes() {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    for round in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed ^ round);
        let mut world = World::new(3);
        let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
        for step in 0..300 {
            let (key, process) = (&keys[rng.usize(..keys.len())], rng.usize(0..3));
            // Its writes begin on some copies alone, for the last of the time that it lives.
            for cut in world.processes[0].1.values() {
                cut.store(step > 200 && rng.u8(..3) == 0, Relaxed);
            }
            let cluster = &world.processes[process].0;
            match rng.bool() {
                true => drop(set(cluster, key, 0)),
                false => delete(cluster, key),
            }
            if rng.u8(..20) == 0 {
                world.clock.advance_millis(50);
            }
            if step == 200 {
                world.second();
            }
        }
        let differing = keys.iter().filter(|key| !world.agree(key)).count();
        drop(world.processes.remove(0));
        world.a_while();
        let left: Vec<_> = keys.iter().filter(|key| !world.agree(key)).map(|key| (key, world.copies(key))).collect();
        assert!(left.is_empty(), "round {round}: of {differing} keys that differed {left:?} do");
        let gone: u64 = (0..2).map(|process| world.counted(process, "cluster_gone_total")).sum();
        assert_eq!(gone, 1, "one of the two compares");
        assert_eq!((0..2).map(|process| world.counted(process, "cluster_hints")).sum::<u64>(), 0);
    }
}

#[test]
fn a_process_that_starts_when_all_others_are_gone_compares() {
    let mut world = World::new(1);
    assert!(set(&world.processes[0].0, "key", 0).is_ok());
    world.reaches(&["b"]);
    assert!(set(&world.processes[0].0, "key", 0).is_err());
    assert!(!world.agree("key"));
    world.processes.clear();
    (0..100).for_each(|_| world.second());
    world.start(ClusterConfig::new("app"));
    world.a_while();
    assert!(world.agree("key") && world.counted(0, "cluster_mended_total") == 2);
}

/// It cannot tell whether the key was deleted meanwhile.
#[test]
fn a_copy_that_came_back_empty_is_given_nothing() {
    let mut world = World::new(2);
    assert!(set(&world.processes[0].0, "key", 0).is_ok());
    let held = world.copies("key");
    world.processes.remove(0);
    world.clock.advance(1);
    let empty: Vec<String> = world.stores.lock().keys().filter(|name| name.starts_with('c')).cloned().collect();
    for name in empty {
        let store = telling(&world.clock, 9);
        world.stores.lock().insert(name, store);
    }
    let other = world.processes.remove(0);
    drop(other);
    world.start(ClusterConfig::new("app"));
    world.a_while();
    assert_eq!(world.copies("key"), [held[0], held[1], None]);
}

#[test]
fn what_one_feed_tells_and_no_copy_has_changes_nothing() {
    let mut world = World::new(2);
    let keys: Vec<String> = (0..60).map(|number| format!("key{number}")).collect();
    keys[..40].iter().for_each(|key| assert!(set(&world.processes[1].0, key, 0).is_ok()));
    // One copy has the others alone.
    for key in &keys[40..] {
        plant(&world.nodes_of(2, key)[0], key);
    }
    let before: Vec<_> = keys.iter().map(|key| world.copies(key)).collect();
    world.clock.advance_millis(100);
    let now = world.clock.millis();
    for name in ["a0:11211", "a1:11211"] {
        let lie = |(number, key): (usize, &String)| {
            let version = Version::at(if number % 4 < 2 || number >= 40 { now } else { now + 86_400_000 });
            if number % 2 == 0 && number < 40 { told_delete(key, version) } else { told_set(key, version) }
        };
        world.lie(name, keys.iter().enumerate().map(lie).collect());
    }
    world.processes.remove(0);
    world.a_while();
    assert_eq!(world.counted(0, "cluster_gone_total"), 1);
    let after: Vec<_> = keys.iter().map(|key| world.copies(key)).collect();
    assert_eq!(before, after);
}

/// What another app has on a node in common is not given to nodes of this one.
#[test]
fn keys_of_another_app_are_left_alone() {
    for (prefix, is_given) in [("", false), ("app:", true)] {
        let mut world = World::new(0);
        let with = |name: &str| ClusterConfig {
            prefix: prefix.into(),
            others: vec![b"app:x".into()],
            ..ClusterConfig::new(name)
        };
        ["app", "app", "other"].map(with).into_iter().for_each(|config| world.start(config));
        (0..3).for_each(|_| world.second());
        world.reaches(&["b"]);
        for key in ["app:key", "key", "app:xkey"] {
            assert!(set(&world.processes[0].0, key, 0).is_err());
        }
        world.processes.remove(0);
        world.a_while();
        assert_eq!(world.agree("app:key"), is_given, "with the prefix {prefix:?}");
        assert!(!world.agree("key") && !world.agree("app:xkey"));
    }
}

#[test]
fn one_that_was_cut_off_itself_takes_no_other_for_gone() {
    let mut world = World::new(2);
    world.reaches(&[]);
    world.a_while();
    // The other one could not hear it.
    assert_eq!((world.counted(0, "cluster_gone_total"), world.counted(1, "cluster_gone_total")), (0, 1));
    world.reaches(&["a", "b", "c"]);
    world.a_while();
    assert_eq!((world.counted(0, "cluster_gone_total"), world.counted(1, "cluster_gone_total")), (0, 1));
}

#[test]
fn it_can_be_turned_off() {
    let mut world = World::new(1);
    world.processes.clear();
    let off = ClusterConfig { mend_after: std::time::Duration::ZERO, ..ClusterConfig::new("app") };
    world.start(off.clone());
    world.start(off);
    (0..3).for_each(|_| world.second());
    world.reaches(&["b"]);
    assert!(set(&world.processes[0].0, "key", 0).is_err());
    world.processes.remove(0);
    world.a_while();
    assert!(!world.agree("key") && world.counted(0, "cluster_gone_total") == 0);
}

/// That another copy shows nothing is no word for a delete that it does not tell.
#[test]
fn a_delete_that_one_copy_tells_and_does_not_show_takes_nothing_from_others() {
    let mut world = World::new(2);
    let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    for key in &keys {
        plant(&world.nodes_of(0, key)[0], key);
        plant(&world.nodes_of(2, key)[0], key);
    }
    world.clock.advance_millis(100);
    let version = Version::at(world.clock.millis());
    ["a0:11211", "a1:11211"].iter().for_each(|node| {
        world.lie(node, keys.iter().map(|key| told_delete(key, version)).collect());
    });
    let before: Vec<_> = keys.iter().map(|key| world.copies(key)).collect();
    world.processes.remove(0);
    world.a_while();
    assert_eq!(world.counted(0, "cluster_gone_total"), 1);
    assert_eq!(before, keys.iter().map(|key| world.copies(key)).collect::<Vec<_>>());
}

/// A node that tells of the future has no word for its keys: the others are compared.
#[test]
fn what_a_feed_tells_of_the_future_hides_nothing() {
    let mut world = World::new(2);
    world.reaches(&["a"]);
    assert!(set(&world.processes[0].0, "key", 0).is_err());
    let future = Version::at(world.clock.millis() + 86_400_000);
    ["c0:11211", "c1:11211"].iter().for_each(|node| world.lie(node, vec![told_set("key", future)]));
    world.processes.remove(0);
    world.a_while();
    let [a, b, _] = world.copies("key")[..] else { unreachable!("there are three") };
    assert!(a.is_some() && a == b);
}

/// Such as nodes have from an earlier topology.
#[test]
fn what_a_node_tells_of_a_key_that_is_another_ones_counts_for_nothing() {
    let mut world = World::new(2);
    world.reaches(&["a", "b"]);
    assert!(set(&world.processes[0].0, "key", 0).is_ok());
    let version = Version(world.copies("key")[0].expect("it is there"));
    ["c0:11211", "c1:11211"].iter().for_each(|node| {
        let [_, other] = world.nodes_of(2, "key");
        if Arc::ptr_eq(&world.stores.lock()[*node], &other) {
            world.lie(node, vec![told_set("key", version)]);
        }
    });
    world.processes.remove(0);
    world.a_while();
    assert!(world.agree("key"));
}

#[test]
fn a_copy_that_does_not_tell_since_when_it_knows_of_deletes_is_given_nothing_that_it_lacks() {
    let mut world = World::new(2);
    world.reaches(&["a", "b"]);
    assert!(set(&world.processes[0].0, "key", 0).is_ok());
    for node in ["c0:11211", "c1:11211"] {
        world.lies.lock().insert(node.into(), Lie { hides_horizon: true, ..Lie::default() });
    }
    world.processes.remove(0);
    world.a_while();
    assert_eq!(world.copies("key")[2], None);
}

#[test]
fn a_node_that_does_not_answer_is_compared_once_it_is_back() {
    let mut world = World::new(2);
    world.reaches(&["a"]);
    assert!(set(&world.processes[0].0, "key", 0).is_err());
    world.processes.remove(0);
    world.reaches(&["a", "b"]);
    world.a_while();
    let [a, b, c] = world.copies("key")[..] else { unreachable!("there are three") };
    assert!(a.is_some() && a == b && c.is_none());
    world.reaches(&["a", "b", "c"]);
    world.a_while();
    assert!(world.agree("key") && world.counted(0, "cluster_gone_total") == 1);
}

/// All nodes were asked, and no process asks them once more.
#[test]
fn what_a_copy_was_to_be_given_and_did_not_take_is_given_to_it_later() {
    let mut world = World::new(2);
    world.reaches(&["a", "b"]);
    assert!(set(&world.processes[0].0, "key", 0).is_ok());
    world.processes.remove(0);
    world.loses_writes.store(true, Relaxed);
    world.a_while();
    assert!(!world.agree("key") && world.counted(0, "cluster_gone_total") == 1);
    world.loses_writes.store(false, Relaxed);
    world.a_while();
    assert!(world.agree("key"));
}

/// It may be on its way, and its process knows of it.
#[test]
fn what_was_written_since_a_process_was_found_to_be_gone_is_left_to_its_own_process() {
    let mut world = World::new(2);
    // One that neither compares nor says that it lives.
    world.start(ClusterConfig { mend_after: std::time::Duration::ZERO, ..ClusterConfig::new("app") });
    world.processes.remove(0);
    world.reaches_from(1, &["b"]);
    let mut late = Vec::new();
    for second in 0..120 {
        let is_late = world.counted(0, "cluster_gone_total") == 1;
        world.second();
        let key = format!("key{second}");
        assert!(set(&world.processes[1].0, &key, 0).is_err());
        if is_late {
            late.push(key);
        }
    }
    assert!(late.len() > 10 && late.iter().all(|key| !world.agree(key)));
    assert!(world.counted(0, "cluster_mended_total") > 0, "what was written before is given");
}

/// Its keys are compared in several passes, each over as many as there is room for.
#[test]
fn more_than_is_kept_at_once_is_compared_all_the_same() {
    let mut world = World::new(2);
    world.reaches(&["a", "b"]);
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    keys.iter().for_each(|key| assert!(set(&world.processes[0].0, key, 0).is_ok()));
    // Of these all copies tell the same.
    let (version, long) = (Version::at(world.clock.millis()), "k".repeat(230));
    let changes: Vec<_> = (0..120_000).map(|number| told_delete(&format!("{long}{number}"), version)).collect();
    for node in world.topology.nodes() {
        world.lie(&node.address.to_string(), changes.clone());
    }
    world.processes.remove(0);
    world.a_while();
    let left = keys.iter().filter(|key| !world.agree(key)).count();
    assert_eq!((left, world.counted(0, "cluster_mended_total")), (0, 200));
}

/// One that ends says whether what it wrote has arrived.
#[test]
fn only_what_a_process_leaves_undone_is_compared() {
    let ended = |name: &str, is_done: bool| {
        let mut world = World::new(2);
        let cluster = world.processes[0].0.clone();
        cluster.start().expect("it has threads");
        assert!(set(&cluster, "key", 0).is_ok());
        if !is_done {
            world.reaches(&["a", "b"]);
            assert!(set(&cluster, "key", 0).is_ok());
        }
        component::close(&cluster);
        let tells = || moneta_background::list().iter().any(|task| task.name == "cluster-board" && task.running > 0);
        while tells() {
            std::thread::yield_now();
        }
        drop(cluster);
        world.processes.remove(0);
        world.a_while();
        assert_eq!((world.counted(0, "cluster_gone_total"), world.agree("key")), (u64::from(!is_done), true), "{name}");
    };
    ended("all has arrived", true);
    ended("one copy lacks a write", false);
}
