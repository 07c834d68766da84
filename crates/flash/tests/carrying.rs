//! Guards against room for what is carried forward going to whatever comes first: a large item then takes the room of many
//! that are read more often.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::tier;
use moneta_flash::Flash;
use moneta_store::request::{Retrieve, Write};
use moneta_store::{Calls, Clock, ItemRef, Key, Lookup, Step, Store, Written};

const REGION: usize = 256 << 10;
/// Bytes that may be carried from the first region that is emptied: 5 % of it.
const ROOM: usize = REGION / 20;
const SMALL: usize = 600;
const LARGE: usize = ROOM - 1000;
/// How long a region may take to be emptied.
const PATIENCE: Duration = Duration::from_secs(60);

fn finish<T>(step: Step<T>) -> T {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => pollster::block_on(pending),
    }
    .expect("the tier works")
}

fn set(flash: &Flash, name: &str, bytes: usize) {
    let key = Key::new(name.as_bytes(), flash.seed());
    let written = finish(flash.set(&key, &vec![b'v'; bytes], &Write::default()));
    assert!(matches!(written, Written::Stored { .. }), "{written:?}");
}

fn reads(flash: &Flash, name: &str) -> bool {
    let key = Key::new(name.as_bytes(), flash.seed());
    let mut see = |_: &ItemRef<'_>| ();
    !matches!(finish(flash.get(&key, &Retrieve::default(), &mut see)), Lookup::Miss { .. })
}

#[test]
fn what_is_carried_has_the_most_hits_for_its_bytes() {
    let flash = tier(40 * REGION as u64, Arc::new(Clock::manual(1_700_000_000)), |config| {
        config.region_bytes = REGION;
        config.item_max = REGION / 4;
    });
    let small: Vec<String> = (0..10).map(|number| format!("small {number}")).collect();
    small.iter().for_each(|name| set(&flash, name, SMALL));
    set(&flash, "large", LARGE);
    set(&flash, "never read", SMALL);
    assert!(reads(&flash, "large") && small.iter().all(|name| reads(&flash, name)));
    let started = Instant::now();
    for number in 0.. {
        if flash.numbers().regions_emptied > 0 {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "no region is emptied");
        set(&flash, &format!("filler {number}"), 20_000);
    }
    let carried = flash.numbers();
    assert_eq!(carried.carried_items, small.len() as u64);
    assert!(carried.carried_bytes < ROOM as u64, "{} bytes were carried", carried.carried_bytes);
    assert!(small.iter().all(|name| reads(&flash, name)), "what is small was read as often, and took little room");
    assert!(!reads(&flash, "large") && !reads(&flash, "never read"));
}
