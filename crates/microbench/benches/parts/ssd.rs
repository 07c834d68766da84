//! Reads of the SSD tier. Its file is in the target folder: the device below that is what is measured, and what the tier adds.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use criterion::{Criterion, Throughput};
use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::request::{Retrieve, Write};
use moneta_store::{
    Calls, Clock, Cx, ItemRef, Key, Lookup, Op, Outcome, Pending, Policy, Reactors, Step, Store, component,
};

use crate::{key, shuffled};

/// Bytes of a value.
const VALUE: usize = 1000;
/// What is written. The last regions are still in RAM, so only the first half is read.
const ITEMS: u64 = 100_000;
/// Reads under way at once.
const DEPTH: usize = 32;

/// One read after another and many at once, on threads and on io_uring where the kernel has it.
pub fn benchmark(criterion: &mut Criterion) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let keys: Vec<String> = (0..ITEMS).map(key).collect();
    fill(folder.path(), &keys);
    let mut group = criterion.benchmark_group("ssd");
    for (name, io) in [("io_uring", Io::Uring), ("threads", Io::Threads)] {
        let Ok(flash) = open(folder.path(), io) else {
            eprintln!("ssd: no {name} here");
            continue;
        };
        let mut reactors = Reactors::default();
        component::attach(&flash, &mut reactors);
        let worker = Rc::new(reactors);
        let mut numbers = shuffled(ITEMS / 2);
        for depth in [1, DEPTH] {
            group.throughput(Throughput::Elements(depth as u64));
            group.bench_function(format!("{name}, {depth} at once"), |bencher| {
                bencher
                    .iter(|| read(&flash, &worker, numbers.by_ref().take(depth).map(|number| &*keys[number as usize])));
            });
        }
    }
    group.finish();
}

fn open(folder: &Path, io: Io) -> Result<Flash, impl std::error::Error> {
    let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.into(), bytes: 512 << 20 }]);
    config.io = io;
    Flash::open(&config, Arc::new(Clock::system()))
}

fn fill(folder: &Path, keys: &[String]) {
    let flash = open(folder, Io::Threads).expect("a tier");
    for key in keys {
        let key = Key::new(key.as_bytes(), flash.seed());
        match flash.set(&key, &[b'v'; VALUE], &Write::default()) {
            Step::Done(ended) => drop(ended.expect("a set")),
            Step::Wait(pending) => drop(pollster::block_on(pending).expect("a set")),
        }
    }
}

/// Begins to read all `keys`, and waits for the last of them.
fn read<'a>(flash: &Flash, worker: &Rc<Reactors>, keys: impl Iterator<Item = &'a str>) {
    let (cx, request) = (Cx::of_worker(Policy::Online, worker), Retrieve::default());
    let begin = |key: &str| {
        let mut visitor = |_: &ItemRef<'_>| {};
        match flash.call(&cx, &Key::new(key.as_bytes(), flash.seed()), Op::Read(&request), &mut visitor) {
            Step::Done(ended) => check(ended.expect("a get")),
            Step::Wait(pending) => return Some(pending),
        }
        None
    };
    let mut under_way: Vec<Pending> = keys.filter_map(begin).collect();
    if worker.is_empty() {
        return under_way.into_iter().for_each(|pending| check(pollster::block_on(pending).expect("a get")));
    }
    let mut context = Context::from_waker(Waker::noop());
    while !under_way.is_empty() {
        worker.turn();
        under_way.retain_mut(|pending| match pending.as_mut().poll(&mut context) {
            Poll::Ready(ended) => {
                check(ended.expect("a get"));
                false
            }
            Poll::Pending => true,
        });
    }
}

fn check(found: Outcome) {
    let found = found.lookup();
    assert!(matches!(&found, Lookup::Found(item) if item.value.len() == VALUE) || matches!(found, Lookup::Visited));
}
