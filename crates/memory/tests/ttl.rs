//! Guards traffic with expiry: the dead must make room before the living do, and looking for the dead must not take the
//! place of judging the living by their hits.

mod common;

use common::{Node, config, stored};
use moneta_store::Calls;

#[test]
fn short_lived_items_do_not_push_out_lasting_ones() {
    let node = Node::new(&config(32 << 20));
    for key in 0..8_000 {
        assert!(stored(node.set(&format!("lasting {key}"), &[b'v'; 1000])));
    }
    // A second's worth is 1 MB, and lives for 5 s: never more than 5 MB of the 24 MB that the lasting items leave.
    for second in 0..400 {
        for key in 0..1_000 {
            assert!(stored(node.set_for(&format!("{second} {key}"), &[b'v'; 1000], 5)));
        }
        node.clock.advance(1);
    }
    let held = (0..8_000).filter(|key| node.get(&format!("lasting {key}")).is_some()).count();
    assert!(held > 7_600, "{held} of 8,000 are left: {:?}", node.memory.stats());
    node.verify();
}

#[test]
fn expiry_everywhere_does_not_make_eviction_blind_to_hits() {
    let node = Node::new(&config(32 << 20));
    let mut random = fastrand::Rng::with_seed(common::seed());
    for key in 0..4_000 {
        node.set(&format!("hot {key}"), &[b'v'; 1000]);
    }
    // Lives of all lengths, so that in every segment something dies in every second.
    let mut missed = 0;
    for second in 0..200 {
        for key in 0..4_000 {
            let seconds = 1i64 << random.u32(0..10);
            assert!(stored(node.set_for(&format!("{second} {key}"), &[b'v'; 500], seconds)));
            let hot = random.u32(0..4_000);
            if second >= 50 && node.get(&format!("hot {hot}")).is_none() {
                missed += 1;
                node.set(&format!("hot {hot}"), &[b'v'; 1000]);
            } else {
                node.get(&format!("hot {hot}"));
            }
        }
        node.clock.advance(1);
    }
    // Each hot key is read once a second; 4 MB of 32 are enough for all of them.
    assert!(missed < 6_000, "{missed} of 600,000 reads of hot keys missed: {:?}", node.memory.stats());
    node.verify();
}

#[test]
fn what_expired_is_counted_once() {
    let node = Node::new(&config(32 << 20));
    for key in 0..5_000 {
        node.set_for(&format!("{key}"), &[b'v'; 1000], 10);
    }
    node.clock.advance(10);
    for key in 0..2_500 {
        assert!(node.get(&format!("{key}")).is_none());
        assert!(node.get(&format!("{key}")).is_none());
    }
    for key in 0..100_000 {
        assert!(stored(node.set(&format!("new {key}"), &[b'v'; 1000])));
    }
    assert_eq!(node.memory.stats().reclaimed, 5_000);
    node.verify();
}

#[test]
fn what_will_expire_before_it_is_read_again_goes_first() {
    let node = Node::new(&config(8 << 20));
    for key in 0..2_000 {
        assert!(stored(node.set_for(&format!("short {key}"), &[b'v'; 1000], 100)));
        assert!(stored(node.set_for(&format!("long {key}"), &[b'v'; 1000], 10_000)));
    }
    for key in 0..2_000 {
        assert!(node.get(&format!("short {key}")).is_some() && node.get(&format!("long {key}")).is_some());
    }
    // 40 seconds to live, not read for 60.
    node.clock.advance(60);
    for key in 0..6_000 {
        assert!(stored(node.set(&format!("new {key}"), &[b'v'; 1000])));
    }
    let held = |name: &str| (0..2_000).filter(|key| node.get(&format!("{name} {key}")).is_some()).count();
    let (short, long) = (held("short"), held("long"));
    assert!(short < 100 && long > 1_900, "{short} of 2,000 that die soon are left, {long} of as many that do not");
    node.verify();
}
