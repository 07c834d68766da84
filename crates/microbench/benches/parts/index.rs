//! The index that RAM and SSD share.

use criterion::Criterion;
use moneta_index::Index;
use moneta_pages::PagePool;

use crate::shuffled;

/// More than the processor's caches hold: 9 MB of index.
const ENTRIES: u64 = 1_000_000;

type Tags = Index<20>;

/// The hash of an entry: all its bits depend on the number.
fn hash(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d)
}

/// Finding what is there and what is not, and replacing an entry.
pub fn benchmark(criterion: &mut Criterion) {
    let pool = PagePool::new();
    let mut index = Tags::new(pool.take().expect("memory"));
    // A payload is never 0.
    for number in 1..=ENTRIES {
        while index.wants_growth() {
            if index.growth_needs_page() {
                index.add_page(pool.take().expect("memory"));
            }
            index.grow();
        }
        index.insert(hash(number), number).expect("it has grown");
    }
    let mut group = criterion.benchmark_group("index");
    let mut numbers = shuffled(ENTRIES);
    let mut next = || 1 + numbers.next().expect("there is no end");
    group.bench_function("hit", |bencher| {
        bencher.iter(|| {
            let number = next();
            index.find(hash(number), |payload| payload == number).expect("it is there")
        });
    });
    group.bench_function("miss", |bencher| bencher.iter(|| index.find(hash(ENTRIES + next()), |_| false)));
    group.bench_function("remove and insert", |bencher| {
        bencher.iter(|| {
            let number = next();
            let (position, _) = index.find(hash(number), |payload| payload == number).expect("it is there");
            index.remove(position);
            index.insert(hash(number), number).expect("there is room");
        });
    });
    group.finish();
}
