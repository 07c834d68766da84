//! Micro-benchmarks: what the parts of a request cost by themselves, without sockets. `make microbench` runs them all and
//! compares each with the run before; `make microbench FILTER=ram` those whose names contain `ram`. How fast a node is with all
//! parts together, `moneta bench` and `scripts/benchmarks.sh` measure.

mod decode;
mod index;
mod ram;
mod ssd;

criterion::criterion_group!(benches, decode::benchmark, index::benchmark, ram::benchmark, ssd::benchmark);
criterion::criterion_main!(benches);

/// Bytes of a value.
const VALUE: [u8; 100] = [b'v'; 100];

/// The key of a number, of 30 bytes.
fn key(number: u64) -> String {
    format!("user:{number:025}")
}

/// Numbers below `end` in an order that no prefetcher follows, over and over.
fn shuffled(end: u64) -> impl Iterator<Item = u64> {
    let mut state = 0_u64;
    std::iter::repeat_with(move || {
        // Weyl's sequence, mixed by a multiplication: its high bits are what is used.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((u128::from(mixed) * u128::from(end)) >> 64) as u64
    })
}
