//! Proxies, nodes and clients, simulated: the shipped cluster code over links that delay, lose and cut off, on clocks that differ.
//! A seed repeats a run (`MONETA_SEED`), and taking out a guard makes some seed fail.

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod net;
mod world;

use fastrand::Rng;
use net::Guard;
use world::World;

fn wrong_in(seed: u64, guard: Guard) -> Vec<String> {
    // Apart from the other choices, so that a seed stays the run that it was.
    let flushes = Rng::with_seed(seed ^ 0xf1).u8(0..4) == 0 && !MENDED.contains(&seed);
    let world = World::new(seed, guard, flushes);
    world.run(seed);
    let wrong = world.check();
    let books = world.books.borrow();
    assert!(books.operations > 100, "{} operations", books.operations);
    wrong
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_123u64);
    first..first + count
}

/// Seeds that have shown a fault.
const MENDED: [u64; 4] = [
    // A delete that a copy missed was forgotten when it missed a set behind it, which no copy took: an append found what was deleted.
    2306,
    // A read filled an old item into a copy that had just come back empty, which then was a witness for it; the copy that knew better was asked last.
    4894, // A copy that had just come back empty took a late write that others had something newer for.
    1_002_619,
    // While other nodes came and went, early probes that failed made the pauses of one that was away longer and longer.
    2_011_549,
];

#[test]
fn copies_converge_and_clients_read_what_they_wrote() {
    for seed in MENDED.into_iter().chain(seeds(300)) {
        let wrong = wrong_in(seed, Guard::None);
        assert!(wrong.is_empty(), "MONETA_SEED={seed}: {wrong:#?}");
    }
}

#[test]
fn without_any_of_the_guards_some_seed_fails() {
    for guard in [Guard::Base, Guard::Hints, Guard::Tombstones, Guard::Floors] {
        assert!(seeds(300).any(|seed| !wrong_in(seed, guard).is_empty()), "nothing fails without {guard:?}");
    }
}
