//! Guards the curve against being wrong and looking right: the estimate by sampled keys is held against the exact one, on published
//! traces (where `MONETA_WORKLOADS` names their folder), on loads made from published figures, and on generated ones.
//!
//! The error is the mean of the absolute differences of both curves at a hundred sizes up to the footprint, by items and by bytes.
//! It depends on which keys are sampled, so each load is sampled by several hash functions. The samples see the hits and misses
//! of a node whose RAM holds a part.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use moneta_bench::Result;
use moneta_bench::operation::Operation;
use moneta_bench::profiles::{self, Profile};
use moneta_bench::replay::{Input, ReplayPlan, requests};
use moneta_bench::wire::Protocol;
use moneta_bench::workload::Workload;
use moneta_curve::{Exact, HALF_LIFE, Read, Room, Sampler, Served};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Hash functions.
const HASHES: usize = 8;
/// RAM for everything.
const MUCH: u64 = u64::MAX;
/// Bytes of an item beside its value.
const BESIDE: u64 = 54;

fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("MONETA_SEED={seed}");
        seed
    })
}

/// A hash whose bits no pattern of keys can follow.
fn hash(key: u64, seed: u64) -> u64 {
    let mixed = |word: u64| {
        let word = (word ^ (word >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (word ^ (word >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    };
    let word = mixed(mixed(key.wrapping_add(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))) ^ seed);
    word ^ (word >> 32)
}

/// An exact curve, and estimates of the same load as a node has them whose RAM holds so many bytes.
struct Both {
    exact: Exact,
    sampled: Vec<(u64, Sampler)>,
    ram: u64,
    served: Served,
}

/// The mean errors of the estimates: of all on average, and of the worst.
#[derive(Debug)]
struct Errors {
    mean: f64,
    worst: f64,
}

impl Both {
    fn new(hashes: usize, ram: u64) -> Self {
        let seed = seed();
        let samplers = (0..hashes as u64).map(|number| (seed.wrapping_add(number), Sampler::new(0, Served::default())));
        Self { exact: Exact::default(), sampled: samplers.collect(), ram, served: Served::default() }
    }

    fn each(&mut self, key: u64, change: impl Fn(&mut Sampler, u64)) {
        for (seed, sampler) in &mut self.sampled {
            let hash = hash(key, *seed);
            if sampler.sampled().has(hash) {
                change(sampler, hash);
            }
        }
    }

    /// A get, and a set after a miss.
    fn get(&mut self, key: u64, value: u64) {
        let size = value + BESIDE;
        let is_hit = self.exact.read(key, size).is_some_and(|needed| needed <= self.ram);
        *(if is_hit { &mut self.served.hits } else { &mut self.served.misses }) += 1;
        self.each(key, |sampler, hash| {
            if is_hit {
                sampler.read(hash, 0, Read::Hit(size as u32));
            } else {
                sampler.read(hash, 0, Read::Miss);
                sampler.write(hash, size as u32, 0);
            }
        });
    }

    fn set(&mut self, key: u64, value: u64) {
        self.exact.write(key, value + BESIDE);
        self.each(key, |sampler, hash| sampler.write(hash, (value + BESIDE) as u32, 0));
    }

    fn delete(&mut self, key: u64) {
        self.exact.delete(key);
        self.each(key, |sampler, hash| sampler.delete(hash));
    }

    /// Replays the requests of a plan.
    fn replay(&mut self, plan: &ReplayPlan) -> Result<()> {
        for step in requests(plan)? {
            let step = step?;
            let (key, value) = (step.key.identity(), step.length as u64);
            match step.operation {
                Operation::Delete => self.delete(key),
                operation if operation.reads() => self.get(key, value),
                _ => self.set(key, value),
            }
        }
        Ok(())
    }

    fn errors(&self, name: &str) -> Errors {
        let exact = self.exact.curve();
        let (objects, bytes) = self.exact.footprint();
        let parts = 1..=100;
        let error = |sampler: &Sampler| {
            assert!(sampler.memory() < 1 << 20);
            let curve = sampler.curve(self.served);
            let differs = |room| (curve.miss_ratio(room) - exact.miss_ratio(room)).abs();
            let of = |part: u64| [Room::Objects(objects * part / 100), Room::Bytes(bytes * part / 100)].map(differs);
            parts
                .clone()
                .map(of)
                .fold([0.0, 0.0], |sum, [objects, bytes]| [sum[0] + objects / 100.0, sum[1] + bytes / 100.0])
        };
        let errors: Vec<f64> = self.sampled.iter().flat_map(|(_, sampler)| error(sampler)).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().fold(0.0_f64, |worst, error| worst.max(*error));
        let gets = self.served.hits + self.served.misses;
        println!("{name}: {gets} gets, {objects} items, {bytes} bytes: mean error {mean:.4}, worst {worst:.4}");
        Errors { mean, worst }
    }
}

fn plan(input: Input, limit: u64) -> ReplayPlan {
    ReplayPlan {
        input,
        protocol: Protocol::Text,
        key_length: 40,
        limit,
        window: 1,
        rate: None,
        verify: false,
        seed: 1,
        cpus: Vec::new(),
        progress: false,
    }
}

/// The errors on a published trace; `None` without the traces.
fn on_trace(path: &str, ram: u64) -> Option<Errors> {
    let folder = std::env::var_os("MONETA_WORKLOADS")?;
    let path = Path::new(&folder).join(path);
    let name = format!("{} on {ram} bytes", path.display());
    let mut both = Both::new(HASHES, ram);
    both.replay(&plan(Input::Trace { path, format: None, value_size: None, max_value: u32::MAX }, u64::MAX)).unwrap();
    Some(both.errors(&name))
}

#[test]
fn on_oltp_it_is_within_a_hundredth_of_full_replay() {
    for ram in [MUCH, 10 << 20] {
        if let Some(errors) = on_trace("arc/OLTP.lis.zst", ram) {
            assert!(errors.mean <= 0.01 && errors.worst <= 0.02, "{errors:?}");
        }
    }
}

#[test]
fn on_p3_it_is_within_a_hundredth_of_full_replay() {
    if let Some(errors) = on_trace("arc/P3.lis.zst", 40 << 20) {
        assert!(errors.mean <= 0.01 && errors.worst <= 0.03, "{errors:?}");
    }
}

/// 114,000 requests to 49,000 objects, of which one in 64 would be too few.
#[test]
fn on_a_trace_that_is_short_it_is_within_a_hundredth() {
    if let Some(errors) = on_trace("cloudphysics/cloudPhysicsIO.oracleGeneral.bin", 200 << 20) {
        assert!(errors.mean <= 0.01 && errors.worst <= 0.02, "{errors:?}");
    }
}

/// The loads of Meta's and of Twitter's caches, as the load generator draws them.
#[test]
fn on_the_profiles_of_production_caches_it_is_within_a_hundredth() {
    for (name, _) in profiles::list() {
        let Profile { keys, key_length, sizes, ttls, mix, popularity, once_share, .. } = profiles::find(&name).unwrap();
        let workload = Workload {
            seed: seed(),
            keys,
            key_length,
            popularity,
            sizes,
            random_sizes: false,
            ttls,
            mix,
            once_share,
            lookaside: false,
        };
        let mut both = Both::new(3, 50 << 20);
        both.replay(&plan(Input::Workload(Arc::new(workload)), 1_000_000)).unwrap();
        let errors = both.errors(&name);
        assert!(errors.mean <= 0.01 && errors.worst <= 0.03, "{name}: {errors:?}");
    }
}

/// Sizes between 20 and 20,000 bytes, by key.
fn size(key: u64) -> u64 {
    20 << (hash(key, 99) % 11)
}

#[test]
fn on_zipf_it_is_within_a_hundredth() {
    let mut random = SmallRng::seed_from_u64(seed());
    for theta in [0.7, 0.9, 1.1] {
        let mut both = Both::new(HASHES, MUCH);
        let ranks = Zipf::new(1e6, theta).unwrap();
        for _ in 0..1_500_000 {
            let key = ranks.sample(&mut random) as u64;
            both.get(key, size(key));
        }
        let errors = both.errors(&format!("zipf {theta}"));
        assert!(errors.mean <= 0.01, "{theta}: {errors:?}");
    }
}

#[test]
fn on_a_loop_with_hot_keys_beside_it_it_is_where_its_samples_say() {
    let mut random = SmallRng::seed_from_u64(seed());
    let mut both = Both::new(HASHES, 100 << 20);
    for step in 0..1_500_000_u64 {
        let key = if random.random_bool(0.5) { 1_000_000 + random.random_range(0..50_000) } else { step % 300_000 };
        both.get(key, size(key));
    }
    // All of the loop begins to hit at one size: where that is, 5300 samples tell to 2 %.
    let errors = both.errors("loop and hot keys");
    assert!(errors.mean <= 0.02, "{errors:?}");
}

/// One rate for all keys would fall to a thousandth by such a scan, and stay there.
#[test]
fn ten_million_keys_that_are_read_once_leave_the_curve_of_the_others_as_fine_as_before() {
    const SCANNED: u64 = 10_000_000;
    let mut random = SmallRng::seed_from_u64(seed());
    let mut both = Both::new(HASHES, MUCH);
    both.served.misses = SCANNED;
    for key in 0..SCANNED {
        both.each((1 << 40) + key, |sampler, hash| {
            sampler.read(hash, 0, Read::Miss);
            sampler.write(hash, 100, 0);
        });
    }
    for (_, sampler) in &mut both.sampled {
        let curve = sampler.curve(both.served);
        assert!(curve.floor() > 0.999 && curve.cold > 0.999, "all of them miss whatever the room: {}", curve.cold);
        let (items, bytes) = sampler.footprint();
        assert!(items.abs_diff(SCANNED) < SCANNED / 20 && bytes.abs_diff(100 * items) <= items, "{items} {bytes}");
        // What was counted is forgotten; which keys were used, is not.
        sampler.age(64 * HALF_LIFE, both.served);
        assert!(sampler.curve(both.served).gets < 1e-9);
    }
    let ranks = Zipf::new(200_000.0, 0.9).unwrap();
    for _ in 0..1_500_000 {
        let key = ranks.sample(&mut random) as u64;
        both.get(key, size(key));
    }
    let errors = both.errors("zipf after a scan");
    assert!(errors.mean <= 0.01, "{errors:?}");
}
