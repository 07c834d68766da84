//! A workload: what is asked for, independent of how fast and through how many connections; and the streams drawn from it.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::error::{BenchError, Result};
use crate::keys::{Key, KeySpace, shortest_length};
use crate::operation::Operation;
use crate::popularity::{Popularity, Sampler, Scramble};
use crate::random::{generator, mix2, unit};
use crate::value::Values;
use crate::weighted::Weighted;

/// Bytes an append or prepend adds.
const GROWTH: usize = 16;
/// One in so many appends stores the value anew instead, so that no value grows without bound.
const GROWTHS_BEFORE_RESET: u64 = 16;
/// Room left in key numbers for keys asked for once: enough for 2^44 of them in each of 16 streams.
const ONCE_KEYS: u64 = 1 << 48;

/// A run has fewer streams, which are threads, than this power of two.
const RUN_SHIFT: u32 = 32;

/// Everything that decides which requests are made.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Fixes keys, sizes, operations and values.
    pub seed: u64,
    /// How many keys there are.
    pub keys: u64,
    /// Length of every key, in bytes.
    pub key_length: usize,
    /// How often each key is asked for.
    pub popularity: Popularity,
    /// Value sizes in bytes.
    pub sizes: Weighted<u32>,
    /// Whether each write draws a new size; otherwise a key keeps its size.
    pub random_sizes: bool,
    /// Expiration times in seconds, drawn for each write; 0 means never.
    pub ttls: Weighted<u32>,
    /// Operations and how often each is made.
    pub mix: Weighted<Operation>,
    /// Share of the requests that go to a key never asked for before or after, 0 to 1.
    pub once_share: f64,
    /// Whether a read that misses is followed by a write of that key.
    pub lookaside: bool,
}

impl Workload {
    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// [`BenchError::Option`] that names the option to change.
    pub fn validate(&self) -> Result<()> {
        if self.keys == 0 {
            return Err(BenchError::option("keys", self.keys, "at least one key is needed"));
        }
        let numbers = if self.once_share > 0.0 { self.keys.max(ONCE_KEYS) } else { self.keys };
        let shortest = shortest_length(numbers);
        if self.key_length < shortest || self.key_length > crate::keys::MAX_KEY_LENGTH {
            let reason = format!("this many keys need {shortest} to {} bytes", crate::keys::MAX_KEY_LENGTH);
            return Err(BenchError::option("key-size", self.key_length, reason));
        }
        Ok(())
    }

    /// The size in bytes of what write `version` stores under `key`.
    #[inline]
    pub fn size(&self, key: Key, version: u32) -> usize {
        let write = if self.random_sizes { u64::from(version) << 32 } else { 0 };
        *self.sizes.pick(mix2(self.seed ^ write, key.identity())) as usize
    }

    /// The expiration time in seconds of write `version` of `key`.
    #[inline]
    pub fn ttl(&self, key: Key, version: u32) -> u32 {
        *self.ttls.pick(mix2(!self.seed ^ (u64::from(version) << 32), key.identity()))
    }

    /// Appends what write `version` of `operation` stores under `key`.
    #[inline]
    pub fn append_value(&self, values: &Values, out: &mut Vec<u8>, operation: Operation, key: Key, version: u32) {
        match (operation, key.space) {
            (Operation::Append | Operation::Prepend, _) => out.extend_from_slice(&[b'+'; GROWTH]),
            (_, KeySpace::Counter) => out.extend_from_slice(b"0"),
            _ => values.append(out, key, version, self.size(key, version)),
        }
    }

    /// The length of what [`Workload::append_value`] appends.
    #[inline]
    pub fn value_length(&self, operation: Operation, key: Key, version: u32) -> usize {
        match (operation, key.space) {
            (Operation::Append | Operation::Prepend, _) => GROWTH,
            (_, KeySpace::Counter) => 1,
            _ => self.size(key, version),
        }
    }

    /// Checks a value that was read: some write of this workload stored exactly these bytes under `key`.
    ///
    /// # Errors
    /// What is wrong.
    #[inline]
    pub fn check(&self, values: &Values, key: Key, data: &[u8]) -> Result<(), String> {
        let tiny = data.len() < crate::value::HEADER;
        if !(self.random_sizes && tiny) {
            let expected = self.size(key, Values::version(data));
            if data.len() != expected {
                return Err(format!("{} bytes instead of {expected}", data.len()));
            }
        }
        values.check(key, data)
    }

    /// The spaces whose keys the mix uses.
    pub fn spaces(&self) -> Vec<KeySpace> {
        let mut spaces = Vec::new();
        for (operation, _) in self.mix.shares() {
            if !spaces.contains(&operation.key_space()) {
                spaces.push(operation.key_space());
            }
        }
        spaces
    }
}

/// One request of a stream. A multi-get asks for more keys, drawn with [`Source::another_key`].
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The command.
    pub operation: Operation,
    /// Its first or only key.
    pub key: Key,
    /// Number of the write, should it store something.
    pub version: u32,
}

/// Where a connection's requests come from.
pub trait Source {
    /// The next request, or none when the stream has ended.
    fn next(&mut self) -> Option<Request>;
    /// One more key for a multi-get.
    fn another_key(&mut self) -> Key;
    /// The number for a write that the stream did not plan, such as the fill after a miss.
    fn next_version(&mut self) -> u32;
}

/// An endless stream of requests drawn from the mix.
#[derive(Debug)]
pub struct MixedSource {
    workload: Arc<Workload>,
    sampler: Sampler,
    random: SmallRng,
    stream: u64,
    streams: u64,
    once: u64,
    version: u32,
}

impl MixedSource {
    /// Stream `stream` of `streams` in run `run`.
    ///
    /// # Errors
    /// [`BenchError::Option`] when the popularity cannot be drawn from.
    pub fn new(workload: Arc<Workload>, run: u64, stream: u64, streams: u64) -> Result<Self> {
        let sampler = Sampler::new(&workload.popularity, workload.keys, stream, streams)
            .map_err(|reason| BenchError::option("distribution", workload.keys, reason))?;
        let random = generator(workload.seed, run << RUN_SHIFT | stream);
        Ok(Self { workload, sampler, random, stream, streams, once: 0, version: 0 })
    }

    fn once_key(&mut self) -> Key {
        let number = self.once * self.streams + self.stream;
        self.once += 1;
        Key { space: KeySpace::Once, number }
    }

    #[inline]
    fn draw_key(&mut self, space: KeySpace) -> Key {
        let share = self.workload.once_share;
        if share > 0.0 && space == KeySpace::Value && unit(self.random.random()) < share {
            return self.once_key();
        }
        Key { space, number: self.sampler.next(&mut self.random) }
    }
}

impl Source for MixedSource {
    #[inline]
    fn next(&mut self) -> Option<Request> {
        let mut operation = *self.workload.mix.pick(self.random.random());
        let key = self.draw_key(operation.key_space());
        if key.space == KeySpace::Growing && self.random.random::<u64>().is_multiple_of(GROWTHS_BEFORE_RESET) {
            operation = Operation::Set;
        }
        Some(Request { operation, key, version: self.next_version() })
    }

    #[inline]
    fn another_key(&mut self) -> Key {
        self.draw_key(KeySpace::Value)
    }

    #[inline]
    fn next_version(&mut self) -> u32 {
        self.version = self.version.wrapping_add(1);
        self.version
    }
}

/// How often every key is set.
#[derive(Debug, Clone, Copy)]
pub struct Passes {
    /// The number of the first pass. Pass 0 goes in the order of the keys' numbers, each later one in another order.
    pub first: u32,
    /// How many there are; none means without end.
    pub count: Option<u32>,
}

/// Sets every key once in each pass; the number of the pass is the number of the write.
#[derive(Debug)]
pub struct FillSource {
    spaces: Vec<KeySpace>,
    keys: u64,
    scramble: Scramble,
    passes: Passes,
    /// Passes done.
    done: u32,
    /// Position within the pass, over all spaces.
    next: u64,
    stream: u64,
    streams: u64,
}

impl FillSource {
    /// The share of stream `stream` of `streams`.
    pub fn new(workload: &Workload, passes: Passes, stream: u64, streams: u64) -> Self {
        let scramble = Scramble::new(workload.keys);
        Self {
            spaces: workload.spaces(),
            keys: workload.keys,
            scramble,
            passes,
            done: 0,
            next: stream,
            stream,
            streams,
        }
    }

    fn pass(&self) -> u32 {
        self.passes.first.wrapping_add(self.done)
    }
}

impl Source for FillSource {
    fn next(&mut self) -> Option<Request> {
        let all = self.keys * self.spaces.len() as u64;
        if self.next >= all {
            self.done = self.done.wrapping_add(1);
            self.next = self.stream;
        }
        if self.passes.count.is_some_and(|count| self.done >= count) || self.next >= all {
            return None;
        }
        let space = self.spaces[(self.next / self.keys) as usize];
        let number = (0..self.pass()).fold(self.next % self.keys, |number, _| self.scramble.apply(number));
        self.next += self.streams;
        Some(Request { operation: Operation::Set, key: Key { space, number }, version: self.pass() })
    }

    fn another_key(&mut self) -> Key {
        unreachable!("a fill makes no multi-get")
    }

    fn next_version(&mut self) -> u32 {
        self.pass()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(keys: u64) -> Workload {
        Workload {
            seed: 1,
            keys,
            key_length: 10,
            popularity: Popularity::Uniform,
            sizes: Weighted::only(10),
            random_sizes: false,
            ttls: Weighted::only(0),
            mix: Weighted::only(Operation::Get),
            once_share: 0.0,
            lookaside: false,
        }
    }

    fn numbers(passes: Passes, streams: u64) -> Vec<u64> {
        let workload = workload(1000);
        let stream = |stream| {
            let mut source = FillSource::new(&workload, passes, stream, streams);
            std::iter::from_fn(move || source.next()).map(|request| request.key.number)
        };
        (0..streams).flat_map(stream).collect()
    }

    #[test]
    fn every_pass_sets_every_key_once() {
        for passes in [Passes { first: 0, count: Some(1) }, Passes { first: 3, count: Some(2) }] {
            for streams in [1, 3] {
                let mut all = numbers(passes, streams);
                all.sort_unstable();
                let expected: Vec<u64> = (0..1000).flat_map(|key| vec![key; passes.count.unwrap() as usize]).collect();
                assert_eq!(all, expected, "{passes:?} in {streams} streams");
            }
        }
    }

    #[test]
    fn runs_ask_for_different_keys_and_the_same_run_for_the_same() {
        let keys = |run| {
            let mut source = MixedSource::new(Arc::new(workload(1000)), run, 0, 1).unwrap();
            (0..100).map(|_| source.next().unwrap().key.number).collect::<Vec<_>>()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn passes_go_in_different_orders() {
        let orders: Vec<_> = (0..3).map(|first| numbers(Passes { first, count: Some(1) }, 1)).collect();
        assert!(orders[0].is_sorted());
        assert!(orders[0] != orders[1] && orders[1] != orders[2] && orders[0] != orders[2]);
    }

    #[test]
    fn passes_without_end_go_on() {
        let workload = workload(10);
        let mut source = FillSource::new(&workload, Passes { first: 1, count: None }, 0, 1);
        let versions: Vec<u32> = (0..35).map(|_| source.next().unwrap().version).collect();
        assert_eq!((versions[0], versions[9], versions[10], versions[34]), (1, 1, 2, 4));
    }
}
