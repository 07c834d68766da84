//! Guards the silent failures of an index: an entry that a split or a displacement loses, or that a walk misses or sees
//! twice. Everything is compared with a plain map.

use std::collections::{HashMap, HashSet};

use moneta_index::{Full, Index};
use moneta_pages::PagePool;
use proptest::prelude::*;

type SmallTag = Index<20>;

fn mix(number: u64) -> u64 {
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn insert(index: &mut SmallTag, pool: &std::sync::Arc<PagePool>, hash: u64, payload: u64) -> Result<(), Full> {
    while index.wants_growth() {
        if index.growth_needs_page() {
            index.add_page(pool.take().expect("memory"));
        }
        index.grow();
    }
    index.insert(hash, payload)
}

#[test]
fn every_entry_is_found_at_every_size_and_memory_follows_the_number() {
    let pool = PagePool::new();
    let mut index = SmallTag::new(pool.take().expect("memory"));
    for number in 1..=400_000u64 {
        insert(&mut index, &pool, mix(number), number).expect("room for every entry");
        if number.is_power_of_two() || number % 50_000 == 0 {
            for old in 1..=number {
                let found = index.find(mix(old), |payload| payload == old);
                assert!(found.is_some(), "entry {old} is lost at {number}");
            }
            let bytes = index.pages() as f64 * 65536.0 / number as f64;
            assert!(number < 20_000 || bytes < 10.5, "{bytes:.2} bytes an entry at {number}");
        }
    }
    for number in 1..=400_000u64 {
        let (position, _) = index.find(mix(number), |payload| payload == number).expect("it was there");
        let bits = mix(number) & ((1 << SmallTag::HASH_BITS) - 1);
        assert_eq!(index.hash_at(position), bits, "entry {number} tells another hash");
    }
    let foreign = (1..=400_000u64).filter(|&number| {
        let mut wrong = 0;
        index.find(mix(number + 1_000_000), |_| {
            wrong += 1;
            false
        });
        wrong > 0
    });
    assert!(foreign.count() < 4_000, "more than 1 % of misses would read a record");
}

#[test]
fn keys_that_share_everything_fill_their_buckets_and_then_say_so() {
    let pool = PagePool::new();
    let mut index = SmallTag::new(pool.take().expect("memory"));
    for number in 1..=16 {
        insert(&mut index, &pool, 42, number).expect("two buckets of eight");
    }
    assert_eq!(insert(&mut index, &pool, 42, 17), Err(Full));
    assert_eq!(index.rivals(42).count(), 16);
    let (position, _) = index.find(42, |payload| payload == 3).expect("third");
    index.remove(position);
    insert(&mut index, &pool, 42, 17).expect("the freed slot");
    assert_eq!(index.len(), 16);
}

#[test]
fn a_walk_shows_each_old_entry_once_while_the_index_grows_and_displaces() {
    let pool = PagePool::new();
    let mut index = SmallTag::new(pool.take().expect("memory"));
    for number in 1..=60_000u64 {
        insert(&mut index, &pool, mix(number), number).expect("room");
    }
    let walk = index.begin_walk();
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut next = 60_001u64;
    loop {
        let more = index.walk(&walk, |_, payload| *seen.entry(payload).or_default() += 1);
        for _ in 0..64 {
            // A displacement that the walk forbids may leave no room; an engine would evict.
            let _ = insert(&mut index, &pool, mix(next), next);
            next += 1;
        }
        if !more {
            break;
        }
    }
    for number in 1..=60_000u64 {
        assert_eq!(seen.get(&number), Some(&1), "entry {number}");
    }
}

#[test]
fn shrinking_loses_nothing_and_gives_pages_back() {
    let pool = PagePool::new();
    let mut index = SmallTag::new(pool.take().expect("memory"));
    let most = if cfg!(miri) { 9_000 } else { 200_000u64 };
    for number in 1..=most {
        insert(&mut index, &pool, mix(number), number).expect("room");
    }
    for keep in [most / 2, most / 3, most / 10, 100, 0] {
        let mut number = most;
        while index.len() as u64 > keep {
            if let Some((position, _)) = index.find(mix(number), |payload| payload == number) {
                index.remove(position);
            }
            number -= 1;
        }
        while index.wants_shrinking() && index.shrink(|_, _| panic!("an entry found no room")) {}
        for number in 1..=keep {
            assert!(index.find(mix(number), |payload| payload == number).is_some(), "entry {number} is lost");
        }
        let bytes = index.pages() as u64 * 65536;
        assert!(bytes <= 13 * keep + 2 * 65536, "{bytes} bytes for {keep} entries");
    }
    assert_eq!(index.pages(), 1);
    for number in 1..=most {
        insert(&mut index, &pool, mix(number), number).expect("room after growing again");
    }
    assert!((1..=most).all(|number| index.find(mix(number), |payload| payload == number).is_some()));
}

#[test]
fn nothing_shrinks_under_a_walk() {
    let pool = PagePool::new();
    let mut index = SmallTag::new(pool.take().expect("memory"));
    let most = if cfg!(miri) { 9_000 } else { 60_000u64 };
    for number in 1..=most {
        insert(&mut index, &pool, mix(number), number).expect("room");
    }
    let walk = index.begin_walk();
    index.walk(&walk, |_, _| {});
    for number in most / 5..=most {
        let (position, _) = index.find(mix(number), |payload| payload == number).expect("each entry");
        index.remove(position);
    }
    assert!(index.wants_shrinking());
    assert!(!index.shrink(|_, _| {}));
    drop(walk);
    let before = index.pages();
    assert!(index.shrink(|_, _| panic!("an entry found no room")));
    assert_eq!(index.pages(), before - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_as_a_map(operations in prop::collection::vec((0u64..3000, 0u8..4), 1..6000)) {
        let pool = PagePool::new();
        let mut index = SmallTag::new(pool.take().expect("memory"));
        let mut model: HashSet<u64> = HashSet::new();
        for (number, operation) in operations {
            let payload = number + 1;
            let found = index.find(mix(number), |candidate| candidate == payload);
            prop_assert_eq!(found.is_some(), model.contains(&number));
            match (operation, found) {
                (0, Some((position, _))) => {
                    index.remove(position);
                    model.remove(&number);
                }
                (_, None) => {
                    prop_assert!(insert(&mut index, &pool, mix(number), payload).is_ok());
                    model.insert(number);
                }
                _ => {}
            }
            prop_assert_eq!(index.len(), model.len());
        }
    }
}
