//! From one store of this process to another, straight and by way of lines of JSON. The failure to guard against: what one
//! source or encoding tells otherwise than another.

use std::sync::Arc;

use bytes::Bytes;
use moneta_feed::apply::AsOf;
use moneta_feed::{
    Begin, Change, Gap, Line, Mark, Owner, Pump, PumpError, Rate, Rules, Settings, Sink, SinkError, Source, StoreSink,
    Wanted, json,
};
use moneta_layers::feed::Feed;
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Delete, Write as Request};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Key, KeyHash, Lookup, Origin, Policy, Store, Version};
use moneta_testkit::feed::StoreSource;

const KEYS: u32 = 50;

fn store(writer: u8, clock: &Arc<Clock>) -> Arc<dyn Store> {
    let origin = Origin::new(0, writer);
    let versioning = Versioning { cluster: true, origin, salt: writer.into(), ..Versioning::default() };
    let seed = KeyHash::seeded(7);
    let (limit, item_max, threads) = (16 << 20, 1 << 20, 1);
    let config = MemoryConfig { limit, item_max, evict: true, threads, shards: None, seed, versioning };
    let memory = Memory::new(&config, Arc::clone(clock)).expect("memory");
    Arc::new(Feed::new(memory, 1 << 20, Arc::clone(clock)))
}

fn name(number: u32) -> String {
    format!("key {number}")
}

/// What a store holds of each key: value and version.
fn content(store: &Arc<dyn Store>) -> Vec<Option<(Vec<u8>, Version)>> {
    let peek = |number: u32| {
        let (name, mut found) = (name(number), None);
        let key = Key::new(name.as_bytes(), store.seed());
        let seen = store.peek(&key, &mut |item: &moneta_store::ItemRef<'_>| {
            found = Some((item.value.to_vec(), item.meta.version()));
        });
        assert!(matches!(seen.now().expect("RAM answers"), Lookup::Visited | Lookup::Miss { .. }));
        found
    };
    (0..KEYS).map(peek).collect()
}

fn some_changes(store: &Arc<dyn Store>, rng: &mut fastrand::Rng) {
    for _ in 0..200 {
        let name = name(rng.u32(0..KEYS));
        let key = Key::new(name.as_bytes(), store.seed());
        if rng.u8(0..4) == 0 {
            store.delete(&key, &Delete::default()).now().expect("RAM answers");
        } else {
            let value = vec![rng.u8(..); rng.usize(0..3000)];
            store.set(&key, &value, &Request::default()).now().expect("RAM answers");
        }
    }
}

/// Ends where its source does.
struct Plain;

impl<K: Sink> Owner<K> for Plain {
    fn is_over(&self) -> bool {
        false
    }
    fn gap(&mut self, _: Gap) {}
    fn lost(&mut self, _: u64) {}
    fn reached(&mut self, _: &Mark, _: &mut K) -> Result<(), PumpError> {
        Ok(())
    }
    fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Ok(None)
    }
    fn goes_on(&mut self, _: &PumpError) -> bool {
        false
    }
}

fn settings() -> Settings {
    Settings {
        batch: 64,
        batch_bytes: 64 << 10,
        follows: false,
        filter: None,
        needed: 0,
        margin: None,
        large: None,
        large_bytes: usize::MAX,
    }
}

fn sink(store: &Arc<dyn Store>, clock: &Arc<Clock>) -> StoreSink<Arc<dyn Store>> {
    let rules = Rules {
        as_of: AsOf::Told,
        policy: Policy::Batch,
        pause: std::time::Duration::ZERO,
        early_tries: 1,
        clock_tries: Some(1),
        failure_tries: Some(1),
        overlaps: false,
    };
    StoreSink::new(Arc::clone(store), Arc::clone(clock), rules, Arc::default(), Box::new(|_, _| ()))
}

fn pump<S: Source, K: Sink>(source: S, sink: K) -> Pump<S, K> {
    let mut pump = Pump::new(source, sink, settings(), Rate::default(), Begin::Since(0), 0);
    pump.run(&mut Plain).expect("nothing fails");
    pump
}

/// Writes lines of JSON.
struct Lines(Vec<u8>);

impl Sink for Lines {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        changes.iter().for_each(|change| json::write(change, &mut self.0));
        Ok(())
    }
    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
    fn take_lacks(&mut self) -> bool {
        false
    }
}

#[test]
fn stores_end_alike_straight_and_by_way_of_lines() {
    let seed = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let [one, other, third] = [1, 2, 3].map(|writer| store(writer, &clock));
    // They have begun so long ago that they create what they are told.
    clock.advance(10);
    some_changes(&one, &mut rng);
    let wanted = Wanted { values: true, ..Wanted::default() };
    let source = || StoreSource::new(Arc::clone(&one), wanted.clone());
    let tally = pump(source(), sink(&other, &clock)).into_sink().tally();
    assert!(tally.taken > 0 && tally.refused == 0 && tally.unsure == 0, "{tally:?}");
    assert!(content(&one).iter().any(Option::is_some));
    assert_eq!(content(&other), content(&one));
    let lines = pump(source(), Lines(Vec::new())).into_sink().0;
    let lines = String::from_utf8(lines).expect("lines of JSON");
    let told = lines.lines().map(|line| match json::read(line).expect("a line that it wrote") {
        Line::Change(change) => change,
        line => panic!("no change: {line:?}"),
    });
    let mut by_lines = sink(&third, &clock);
    by_lines.take(told.collect()).expect("nothing fails");
    by_lines.settle().expect("nothing fails");
    assert_eq!(content(&third), content(&one));
    // What is there already changes nothing.
    assert_eq!(
        pump(StoreSource::new(Arc::clone(&third), wanted.clone()), sink(&other, &clock)).into_sink().tally().refused,
        0
    );
    assert_eq!(content(&other), content(&one));
}
