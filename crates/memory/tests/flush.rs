//! Guards a delayed flush: all items go at one second, in whichever shard they are.

mod common;

use common::{Node, START, config, stored};
use moneta_memory::MemoryConfig;
use moneta_store::Calls;
use moneta_store::request::Exptime;

const DELAY: u32 = 10_000;
const KEYS: usize = 100;
/// How often it is tried to have the clock turn in the middle of a flush, and how often it turns in each try.
const TRIES: u32 = 50;
const TURNS: u32 = 200;

#[test]
fn a_clock_that_turns_meanwhile_does_not_give_shards_different_moments() {
    let node = Node::new(&MemoryConfig { shards: Some(256), item_max: 1024, ..config(256 << 20) });
    let held = || (0..KEYS).filter(|key| node.get(&key.to_string()).is_some()).count();
    for number in 0..TRIES {
        assert!((0..KEYS).all(|key| stored(node.set(&key.to_string(), b"value"))));
        let before = node.clock.now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    node.clock.advance(1);
                    // About as long as a few shards take.
                    (0..100).for_each(|_| std::hint::spin_loop());
                }
            });
            while node.clock.now() == before {
                std::hint::spin_loop();
            }
            let _ = node.memory.flush(Exptime(i64::from(DELAY))).now();
        });
        // The moment is `DELAY` after one of the seconds that have passed.
        assert_eq!(held(), KEYS);
        node.clock.advance(DELAY - TURNS);
        while held() == KEYS {
            assert!(node.clock.now() <= before + TURNS + DELAY, "the flush does not come");
            node.clock.advance(1);
        }
        assert_eq!(held(), 0, "try {number}, second {}: some shards go before others", node.clock.now() - START);
    }
}
