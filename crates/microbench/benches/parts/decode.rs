//! Bytes to commands.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use moneta_protocol::{Decoded, Decoder, Protocol};

use crate::{VALUE, key};

/// Largest value a decoder takes, in bytes.
const ITEM_MAX: usize = 1 << 20;

/// One command by each protocol, and a get of many keys.
pub fn benchmark(criterion: &mut Criterion) {
    let (key, value) = (key(1), String::from_utf8_lossy(&VALUE));
    let many: String = (0..100).map(|number| format!(" {}", crate::key(number))).collect();
    let mut binary_get = vec![0_u8; 24];
    (binary_get[0], binary_get[3], binary_get[11]) = (0x80, key.len() as u8, key.len() as u8);
    binary_get.extend_from_slice(key.as_bytes());
    let commands = [
        ("text get", format!("get {key}\r\n").into_bytes()),
        ("text set", format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).into_bytes()),
        ("text get of 100 keys", format!("get{many}\r\n").into_bytes()),
        ("meta get", format!("mg {key} v f t\r\n").into_bytes()),
        ("meta set", format!("ms {key} {} T60\r\n{value}\r\n", value.len()).into_bytes()),
        ("binary get", binary_get),
    ];
    let mut group = criterion.benchmark_group("decode");
    for (name, bytes) in commands {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut decoder = Decoder::new(Protocol::Any, ITEM_MAX);
        let first = decoder.decode(&bytes);
        let whole = matches!(first, Decoded::Command { consumed, .. } if consumed == bytes.len());
        assert!(whole, "{name}: {first:?}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| matches!(decoder.decode(black_box(&bytes)), Decoded::Close))
        });
    }
    group.finish();
}
