//! More missed than hints are kept for: parts of a node's keys are in doubt, and nothing of it goes that another copy does not
//! speak against. Else a process that was cut off empties the nodes when it is back.

mod common;

use std::sync::Arc;

use common::{Away, SEED, away, cluster, set, topology};
use moneta_cluster::{Cluster, ClusterConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Clock, Cx, Key, Lookup, Op, Outcome, Store, StoreError, Unseen, Written, component, steps};
use pollster::block_on;

const KEYS: usize = 300;
/// Room for about 30 hints.
const HINT_BYTES: u64 = 4_000;

struct World {
    cluster: Cluster,
    clock: Arc<Clock>,
    nodes: Vec<Away>,
}

fn key(number: usize) -> String {
    format!("key{number}")
}

impl World {
    /// Three copies of a node each, which have all keys.
    fn new() -> Self {
        Self::with(5)
    }

    /// The same, of nodes that are ejected after so many failures.
    fn with(eject_after: u32) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let topology = topology(1);
        let (nodes, stores) = away(&topology, &clock);
        // So that each node can tell what was deleted.
        clock.advance(1);
        let config =
            ClusterConfig { hint_bytes: HINT_BYTES, allow_flush: true, eject_after, ..ClusterConfig::new("app") };
        let world = Self { cluster: cluster(config, &topology, &nodes, 9, &clock), clock, nodes: stores };
        (0..KEYS).for_each(|number| assert!(set(&world.cluster, &key(number), 0).is_ok()));
        world.clock.advance(5);
        world
    }

    fn rounds(&self, rounds: u32) {
        for _ in 0..rounds {
            self.clock.advance_millis(1_000);
            block_on(self.cluster.maintain());
            block_on(self.cluster.sweep());
        }
    }

    /// So much may be on nodes that keys of all buckets in two of five are in doubt on each of these.
    fn doubts(&self, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.nodes[node].is_silent());
        for number in 0..2_000 {
            let _ = set(&self.cluster, &format!("{}{number}", "long".repeat(40)), 0);
        }
        nodes.iter().for_each(|&node| self.nodes[node].goes(false));
    }

    /// The keys that are in doubt on a node.
    fn keys_in_doubt(&self, node: usize) -> Vec<String> {
        let is_doubted = |key: &String| self.cluster.route(key.as_bytes())[node].lacks_write;
        (0..KEYS).map(key).filter(is_doubted).collect()
    }

    fn call(&self, key: &str, op: Op<'_>) -> Result<Outcome, StoreError> {
        let step = self.cluster.call(&Cx::outside(), &Key::new(key.as_bytes(), SEED), op, &mut Unseen);
        block_on(steps::finish(step))
    }

    fn read(&self, key: &str) -> Option<u64> {
        match self.call(key, Op::Read(&Retrieve::default())).ok()? {
            Outcome::Read(Lookup::Found(item)) => Some(item.meta.cas),
            _ => None,
        }
    }

    fn flush(&self, delay: i64) -> Result<(), StoreError> {
        block_on(steps::finish(component::flush(&self.cluster, &Cx::outside(), Exptime(delay))))
    }

    fn hints(&self) -> Vec<u64> {
        self.cluster.status().nodes.iter().map(|node| node.hints).collect()
    }

    fn in_doubt(&self) -> Vec<f64> {
        self.cluster.status().nodes.iter().map(|node| node.in_doubt).collect()
    }
}

#[test]
fn a_write_that_no_copy_took_leaves_no_hint() {
    let world = World::new();
    world.nodes.iter().for_each(|node| node.goes(true));
    for number in 0..KEYS {
        assert!(set(&world.cluster, &key(number), 0).is_err());
        assert!(world.call(&key(number), Op::Delete(&Delete::default())).is_err());
    }
    assert!(world.flush(0).is_err());
    assert_eq!((world.hints(), world.in_doubt()), (vec![0; 3], vec![0.0; 3]));
    world.nodes.iter().for_each(|node| node.goes(false));
    world.rounds(100);
    assert!((0..KEYS).all(|number| world.nodes.iter().all(|node| node.holds(&key(number)))));
}

#[test]
fn a_write_that_one_copy_may_have_taken_is_a_hint_for_all() {
    let world = World::new();
    world.nodes[0].is_silent();
    world.nodes[1..].iter().for_each(|node| node.goes(true));
    assert!(set(&world.cluster, "key1", 0).is_err());
    assert_eq!(world.hints(), [1; 3]);
}

/// As one that no set came after.
#[test]
fn a_delete_that_may_have_been_taken_is_made_also_where_a_set_after_it_came_to_nothing() {
    let world = World::with(u32::MAX);
    world.nodes.iter().for_each(Away::is_silent);
    assert!(world.call("key1", Op::Delete(&Delete::default())).is_err());
    world.clock.advance_millis(1);
    assert!(set(&world.cluster, "key1", 0).is_err());
    world.nodes.iter().for_each(|node| node.goes(false));
    world.rounds(20);
    assert_eq!(world.hints(), [0; 3], "it ends");
    assert!(world.nodes.iter().all(|node| !node.holds("key1")));
}

#[test]
fn a_node_that_missed_more_than_is_kept_loses_only_what_others_replaced_or_deleted() {
    let world = World::new();
    let [one, _, back] = &world.nodes[..] else { unreachable!("there are three") };
    let before: Vec<_> = (0..KEYS).map(|number| back.version(&key(number))).collect();
    back.goes(true);
    for number in 0..100 {
        assert!(set(&world.cluster, &key(number), 0).is_ok());
        assert!(world.call(&key(100 + number), Op::Delete(&Delete::default())).is_ok());
    }
    assert!(world.in_doubt()[2] > 0.0);
    back.goes(false);
    // Before anything was checked, also where the copy in doubt is the only one that answers with something.
    for number in 0..KEYS {
        assert_eq!(world.read(&key(number)), one.version(&key(number)), "{number}");
    }
    world.rounds(100);
    assert_eq!((world.hints()[2], world.in_doubt()[2]), (0, 0.0), "it ends");
    for (number, before) in before.iter().enumerate() {
        let held = world.nodes.iter().map(|node| node.version(&key(number))).collect::<Vec<_>>();
        assert!(held.iter().all(|version| *version == held[0]), "{number}: {held:?}");
        match number {
            0..100 => assert!(held[0] > *before, "{number}"),
            100..200 => assert_eq!(held[0], None, "{number}"),
            _ => assert_eq!(held[0], *before, "{number}"),
        }
    }
}

#[test]
fn a_node_that_is_not_asked_is_not_compared() {
    let world = World::new();
    world.nodes[2].goes(true);
    (KEYS..2 * KEYS).for_each(|number| assert!(set(&world.cluster, &key(number), 0).is_ok()));
    let doubt = world.in_doubt()[2];
    world.rounds(10);
    assert!(doubt > 0.0 && world.in_doubt()[2] == doubt);
    world.nodes[2].goes(false);
    world.rounds(100);
    assert_eq!(world.in_doubt()[2], 0.0, "it ends");
}

#[test]
fn where_all_copies_are_in_doubt_the_newest_stays() {
    // Nodes that were ejected are sent nothing.
    let world = World::with(u32::MAX);
    let before: Vec<_> = (0..KEYS).map(|number| world.nodes[0].version(&key(number))).collect();
    world.doubts(&[0, 1, 2]);
    assert!(world.in_doubt().iter().all(|share| *share > 0.1), "{:?}", world.in_doubt());
    let reads = || (0..KEYS).map(|number| world.read(&key(number))).collect::<Vec<_>>();
    world.rounds(1);
    assert_eq!(reads(), before);
    world.rounds(500);
    assert_eq!((world.hints(), world.in_doubt()), (vec![0; 3], vec![0.0; 3]), "it ends");
    assert_eq!(reads(), before);
    assert!((0..KEYS).all(|number| world.nodes.iter().all(|node| node.version(&key(number)) == before[number])));
}

/// What is compared while a write is on its way to the other copies is what was there before it.
#[test]
fn what_was_missed_just_now_stays_in_doubt_for_a_while() {
    let world = World::with(u32::MAX);
    let back = &world.nodes[2];
    back.goes(true);
    (0..KEYS).for_each(|number| assert!(world.call(&key(number), Op::Delete(&Delete::default())).is_ok()));
    back.goes(false);
    let doubt = world.in_doubt()[2];
    assert!(doubt > 0.0);
    let late = key(KEYS - 1);
    block_on(world.cluster.sweep());
    assert!(back.version(&late).is_none() && world.in_doubt()[2] == doubt);
    world.rounds(10);
    assert_eq!(world.in_doubt()[2], 0.0, "it ends");
}

/// That a copy lacks other writes says nothing against a delete that it took.
#[test]
fn where_all_copies_are_in_doubt_what_one_knows_to_be_deleted_goes() {
    let world = World::with(u32::MAX);
    world.doubts(&[0, 1, 2]);
    world.nodes[0].goes(true);
    for number in 0..KEYS / 2 {
        assert!(world.call(&key(number), Op::Delete(&Delete::default())).is_ok());
    }
    world.nodes[0].goes(false);
    world.rounds(500);
    assert_eq!((world.hints(), world.in_doubt()), (vec![0; 3], vec![0.0; 3]), "it ends");
    let holding = |number: &usize| world.nodes.iter().filter(|node| node.holds(&key(*number))).count();
    let back: Vec<_> = (0..KEYS / 2).filter(|number| holding(number) > 0).collect();
    assert!(back.is_empty(), "{} of {} deleted keys are there: {back:?}", back.len(), KEYS / 2);
    assert!((KEYS / 2..KEYS).all(|number| holding(&number) == 3));
}

/// That a copy is in doubt for other writes does not make it forget a delete: before, a read took what the third copy had not
/// heard was deleted.
#[test]
fn where_all_copies_are_in_doubt_reads_and_changes_go_by_a_delete_that_one_knows_of() {
    for late in 0..3 {
        let world = World::with(u32::MAX);
        world.doubts(&[0, 1, 2]);
        world.nodes[late].goes(true);
        (0..100).for_each(|number| assert!(world.call(&key(number), Op::Delete(&Delete::default())).is_ok()));
        world.nodes[late].goes(false);
        assert!((0..100).all(|number| world.nodes[late].holds(&key(number))));
        for number in 0..100 {
            let looked = world.call(&key(number), Op::Read(&Retrieve::BRIEF)).map(Outcome::lookup);
            assert!(matches!(looked, Ok(Lookup::Miss { .. })), "copy {late}, {number}: {looked:?}");
        }
        for number in 0..50 {
            let add = Write { mode: WriteMode::Add, ..Write::default() };
            let added = world.call(&key(number), Op::Write(b"anew", &add));
            assert!(matches!(added, Ok(Outcome::Written(Written::Stored { .. }))), "copy {late}, {number}: {added:?}");
        }
        assert!((100..KEYS).all(|number| world.read(&key(number)).is_some()), "what was not deleted is read");
        let never = world.call("never set", Op::Read(&Retrieve::BRIEF)).map(Outcome::lookup);
        assert!(matches!(never, Ok(Lookup::Miss { .. })), "{never:?}");
    }
}

/// One copy in doubt may lack what was acknowledged by the two that do not answer.
#[test]
fn what_is_in_doubt_is_read_only_where_enough_copies_answer() {
    let world = World::with(u32::MAX);
    world.cluster.rules().set_retry_budget(300);
    let [one, other, back] = &world.nodes[..] else { unreachable!("there are three") };
    back.goes(true);
    (0..100).for_each(|number| assert!(world.call(&key(number), Op::Delete(&Delete::default())).is_ok()));
    (KEYS..KEYS + 50).for_each(|number| assert!(set(&world.cluster, &key(number), 0).is_ok()));
    back.goes(false);
    one.goes(true);
    other.goes(true);
    let reads = |from: usize, to: usize| {
        let read = |number| world.call(&key(number), Op::Read(&Retrieve::BRIEF)).map(Outcome::lookup);
        (from..to).map(read).collect::<Vec<_>>()
    };
    assert!(reads(0, 100).iter().all(Result::is_err), "it lacks a delete");
    assert!(reads(KEYS, KEYS + 50).iter().all(Result::is_err), "it lacks a set, which is no miss");
    let found = reads(100, KEYS).into_iter().filter(|read| matches!(read, Ok(Lookup::Found(_)))).count();
    assert!(found > 0, "what is not in doubt is read");
    other.goes(false);
    assert!(reads(0, 100).iter().all(|read| matches!(read, Ok(Lookup::Miss { .. }))));
    assert!(reads(100, KEYS).iter().all(|read| matches!(read, Ok(Lookup::Found(_)))));
}

/// The one that may remember a delete shows nothing, and does not say why.
#[test]
fn what_is_in_doubt_is_not_read_where_too_few_copies_tell_what_they_remember() {
    let world = World::with(u32::MAX);
    world.cluster.rules().set_retry_budget(300);
    world.doubts(&[0, 1, 2]);
    let keys = world.keys_in_doubt(2);
    assert!(keys.len() > 50);
    let [late, gone, knowing] = &world.nodes[..] else { unreachable!("there are three") };
    late.goes(true);
    keys.iter().for_each(|key| assert!(world.call(key, Op::Delete(&Delete::default())).is_ok()));
    late.goes(false);
    gone.goes(true);
    knowing.answers_reads();
    let reads = || keys.iter().map(|key| world.call(key, Op::Read(&Retrieve::BRIEF)).map(Outcome::lookup));
    assert!(reads().all(|read| !matches!(read, Ok(Lookup::Found(_)))));
    assert!(reads().filter(Result::is_err).count() > 30, "but where a hint tells of the delete");
    knowing.goes(false);
    assert!(reads().all(|read| matches!(read, Ok(Lookup::Miss { .. }))));
}

/// What it lacks may be just that.
#[test]
fn a_copy_in_doubt_takes_nothing_from_others_by_not_having_it() {
    let world = World::with(u32::MAX);
    world.doubts(&[0, 1, 2]);
    (0..KEYS).for_each(|number| world.nodes[1].forget(&key(number)));
    assert!(world.keys_in_doubt(0).len() > 50);
    world.rounds(500);
    assert_eq!(world.in_doubt(), [0.0; 3], "it ends");
    for number in 0..KEYS {
        assert!(world.nodes[0].holds(&key(number)) && world.nodes[2].holds(&key(number)), "{number}");
    }
}

#[test]
fn what_another_copy_shows_stays_where_a_third_one_has_evicted_it() {
    let world = World::with(u32::MAX);
    world.doubts(&[2]);
    let keys = world.keys_in_doubt(2);
    assert!(keys.len() > 50);
    keys.iter().for_each(|key| world.nodes[1].forget(key));
    world.rounds(100);
    assert_eq!(world.in_doubt()[2], 0.0, "it ends");
    assert!(keys.iter().all(|key| world.nodes[2].holds(key)));
}

/// So long ago that the third copy, which took the delete, has forgotten it, and shows what another process has filled it with.
#[test]
fn what_lacks_a_delete_is_given_to_no_copy_in_doubt() {
    let world = World::with(u32::MAX);
    let [one, lacking, back] = &world.nodes[..] else { unreachable!("there are three") };
    world.doubts(&[2]);
    let keys = &world.keys_in_doubt(2)[..20];
    let before: Vec<_> = keys.iter().map(|key| back.version(key).expect("it is there")).collect();
    back.goes(true);
    keys.iter().for_each(|key| assert!(set(&world.cluster, key, 0).is_ok()));
    lacking.goes(true);
    keys.iter().for_each(|key| assert!(world.call(key, Op::Delete(&Delete::default())).is_err()));
    world.clock.advance(7_200);
    // Which it does as it remembers others.
    (0..200).for_each(|number| one.delete(&format!("another{number}")));
    keys.iter().zip(&before).for_each(|(key, before)| assert!(one.put_back(key, *before)));
    lacking.goes(false);
    back.goes(false);
    for _ in 0..20 {
        world.clock.advance(1);
        block_on(world.cluster.sweep());
    }
    for (key, before) in keys.iter().zip(&before) {
        assert!(lacking.version(key) > Some(*before), "it has not heard of the delete");
        assert_eq!(back.version(key), Some(*before), "{key}");
    }
}

/// A copy that is not in doubt was restored from long ago, and shows what is older than the delete, too.
#[test]
fn a_change_is_not_made_of_what_is_older_than_a_delete_that_a_copy_in_doubt_remembers() {
    let world = World::with(u32::MAX);
    let [late, restored, knowing] = &world.nodes[..] else { unreachable!("there are three") };
    let before: Vec<_> = (0..KEYS).map(|number| (key(number), restored.version(&key(number)))).collect();
    before.iter().for_each(|(key, _)| assert!(set(&world.cluster, key, 0).is_ok()));
    world.doubts(&[0, 2]);
    let keys = world.keys_in_doubt(0);
    assert!(keys.len() > 50);
    world.clock.advance(1);
    // By another process: this one has not heard of it.
    for (key, before) in before.iter().filter(|(key, _)| keys.contains(key)) {
        knowing.delete(key);
        restored.forget(key);
        assert!(restored.put_back(key, before.expect("it was there")) && late.holds(key) && !knowing.holds(key));
        let replace = Write { mode: WriteMode::Replace, ..Write::default() };
        let replaced = world.call(key, Op::Write(b"of what was deleted", &replace));
        assert!(matches!(replaced, Ok(Outcome::Written(Written::NotStored))), "{key}: {replaced:?}");
    }
}

#[test]
fn what_another_copy_may_have_is_in_doubt_until_that_answers() {
    let world = World::new();
    let [one, other, back] = &world.nodes[..] else { unreachable!("there are three") };
    back.goes(true);
    (0..100).for_each(|number| assert!(set(&world.cluster, &key(number), 0).is_ok()));
    back.goes(false);
    one.goes(true);
    other.goes(true);
    world.rounds(50);
    assert!(world.in_doubt()[2] > 0.0, "nothing tells what of it is old");
    assert!((0..KEYS).all(|number| back.holds(&key(number))), "nor that it is to go");
    one.goes(false);
    other.goes(false);
    world.rounds(500);
    assert_eq!(world.in_doubt()[2], 0.0);
    assert!((0..KEYS).all(|number| back.version(&key(number)) == one.version(&key(number))));
}

/// The flush and what is in doubt are two things: what was written after the flush lives on.
#[test]
fn a_missed_flush_and_more_than_is_kept_behind_it_empty_nothing_else() {
    let world = World::new();
    let back = &world.nodes[2];
    back.goes(true);
    assert!(world.flush(0).is_ok());
    world.clock.advance(1);
    (0..200).for_each(|number| assert!(set(&world.cluster, &key(number), 0).is_ok()));
    assert!(world.in_doubt()[2] > 0.0);
    back.goes(false);
    world.rounds(100);
    for number in 0..KEYS {
        let copies = world.nodes.iter().filter(|node| node.holds(&key(number))).count();
        // What was more than is kept comes by reads.
        let expected = if number < 200 { copies >= 2 && world.read(&key(number)).is_some() } else { copies == 0 };
        assert!(expected, "{number}: {copies} copies");
    }
}

#[test]
fn two_flushes_that_a_node_missed_reach_it() {
    let world = World::new();
    let back = &world.nodes[2];
    back.goes(true);
    assert!(world.flush(0).is_ok() && world.flush(60).is_ok());
    world.clock.advance(1);
    assert!(set(&world.cluster, "later", 0).is_ok());
    back.goes(false);
    world.rounds(5);
    assert!((0..KEYS).all(|number| !back.holds(&key(number))), "the first one");
    assert!(back.holds("later"));
    world.clock.advance(70);
    world.rounds(5);
    assert!(!back.holds("later"), "the second one");
}

/// A hint says that there was something newer. What is older is not given to copies that have lost it, nor to those that have it.
#[test]
fn what_a_hint_proves_to_be_old_fills_no_copy() {
    let world = World::new();
    let [one, other, back] = &world.nodes[..] else { unreachable!("there are three") };
    back.goes(true);
    let before = back.version("key1").expect("it is there");
    assert!(set(&world.cluster, "key1", 0).is_ok());
    // Both evict it, and a proxy that knows of no hint fills one of them from the third.
    one.forget("key1");
    other.forget("key1");
    assert!(one.put_back("key1", before));
    for _ in 0..6 {
        world.read("key1");
    }
    assert!(!other.holds("key1"));
}
