//! No read ever shows an older version than the newest that was acknowledged or seen before it began, whatever the upper
//! tier's server does. Guards against the worst of caches: an old value that comes back.
//!
//! Clients read, write, delete and touch a few keys over a reliable lower tier and an upper one in a hostile server, several
//! requests at a time, polled in any order and some given up in the middle. Each write has its own number; at most one
//! writes a key at a time, so numbers say what is older.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use moneta_layers::{Chunked, ChunkedConfig, Promotion, Tiered, TieredConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, ItemRef, Key, KeyHash, Lookup, Policy, Step, StoreError, Written};
use moneta_testkit::doubles::{Layer, UnderPolicy};
use moneta_testkit::model::ModelStore;
use moneta_testkit::suite::{self, SuiteConfig};

use crate::faulty::{Faulty, Manners};

const START: u32 = 1_700_000_000;
const CUT: ChunkedConfig = ChunkedConfig { piece_bytes: 300, whole_max: 500, item_max: 1 << 20 };
/// Few keys, so that requests meet.
const KEYS: usize = 3;
/// Requests under way at once, at most.
const UNDER_WAY: usize = 6;
const STEPS: usize = 1500;

type Client = Layer<UnderPolicy<Tiered<Chunked<Layer<Faulty>>, Layer<Faulty>>>>;

/// Whether entries are told apart by their epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Epochs {
    Kept,
    Ignored,
}

/// Why a request that has ended must not have ended so; `None`: all is well.
type Verdict = Result<(), String>;

/// What is known of a key.
#[derive(Clone, Default)]
struct Known {
    /// Number of the last write begun. 0 is the beginning, with nothing there.
    last: u64,
    /// No read that begins now may show anything older.
    floor: u64,
    /// Numbers that are deletes.
    deletes: Vec<u64>,
    is_written: bool,
}

/// What a request came to.
enum Outcome {
    Read(Option<Vec<u8>>),
    Written,
}

/// A request under way.
struct AskedPiece {
    key: usize,
    /// The floor when a read began, the number of a write.
    number: u64,
    is_write: bool,
    future: Pin<Box<dyn Future<Output = Result<Outcome, StoreError>>>>,
}

struct Campaign {
    clients: [Client; 2],
    server: Layer<Faulty>,
    known: [Known; KEYS],
    asked: Vec<AskedPiece>,
}

/// The value of a write: in one entry or in pieces, and every byte of it known from its number.
fn value(number: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let length = rng.usize(..2000);
    [number.to_le_bytes().to_vec(), std::iter::repeat_with(|| rng.u8(..)).take(length).collect()].concat()
}

fn name(key: usize) -> [u8; 1] {
    [b'a' + key as u8]
}

impl Campaign {
    fn new(epochs: Epochs) -> Self {
        let clock = Arc::new(Clock::manual(START));
        let model = || ModelStore::new(Arc::clone(&clock), 1 << 20);
        let server = Faulty::new(model(), Manners::Hostile);
        let make = if epochs == Epochs::Kept { Chunked::new } else { Chunked::without_epochs };
        let upper = make(server.clone(), CUT, Arc::clone(&clock));
        let config =
            TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: 1 << 20, cluster: false };
        let store = Tiered::new(upper, Faulty::new(model(), Manners::Slow), config, clock);
        let clients = [UnderPolicy::batch(store.clone()), UnderPolicy::new(store, || Policy::Online)];
        let mut known: [Known; KEYS] = Default::default();
        known.iter_mut().for_each(|known| known.deletes.push(0));
        Self { clients, server, known, asked: Vec::new() }
    }

    fn run(mut self) -> Verdict {
        for _ in 0..STEPS {
            match fastrand::u8(..20) {
                0..6 if self.asked.len() < UNDER_WAY => self.begin(),
                0..18 if !self.asked.is_empty() => {
                    let number = fastrand::usize(..self.asked.len());
                    self.poll(number)?;
                }
                18 if !self.asked.is_empty() => self.give_up(),
                _ => self.server.catch_up(),
            }
        }
        while !self.asked.is_empty() {
            self.poll(fastrand::usize(..self.asked.len()))?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        let key = fastrand::usize(..KEYS);
        let client = self.clients[fastrand::usize(..2)].clone();
        let known = &mut self.known[key];
        let bytes = name(key);
        let hashed = Key::new(&bytes, KeyHash::seeded(0));
        let asked = match fastrand::u8(..10) {
            0..3 if !known.is_written => {
                known.last += 1;
                let value = value(known.last);
                Step::Wait(written(client.set(&hashed, &value, &Write::default())))
            }
            3 if !known.is_written => {
                known.last += 1;
                known.deletes.push(known.last);
                match client.delete(&hashed, &Delete::default()) {
                    Step::Done(outcome) => Step::Done(outcome.map(|_| Outcome::Written)),
                    Step::Wait(pending) => Step::Wait(Box::pin(async { pending.await.map(|_| Outcome::Written) })),
                }
            }
            kind => {
                let touch = (kind == 9).then_some(Exptime(1000));
                self.asked.push(AskedPiece {
                    key,
                    number: known.floor,
                    is_write: false,
                    future: read(&client, &hashed, touch),
                });
                return;
            }
        };
        known.is_written = true;
        let future: Pin<Box<dyn Future<Output = _>>> = match asked {
            Step::Done(outcome) => Box::pin(std::future::ready(outcome)),
            Step::Wait(pending) => pending,
        };
        self.asked.push(AskedPiece { key, number: known.last, is_write: true, future });
    }

    fn poll(&mut self, number: usize) -> Verdict {
        let future = self.asked[number].future.as_mut();
        let Poll::Ready(outcome) = future.poll(&mut Context::from_waker(Waker::noop())) else { return Ok(()) };
        let asked = self.asked.swap_remove(number);
        let known = &mut self.known[asked.key];
        match outcome.map_err(|error| format!("a client was told: {error}"))? {
            Outcome::Written => {
                known.is_written = false;
                known.floor = known.floor.max(asked.number);
            }
            Outcome::Read(seen) => known.judge(asked.number, seen.as_deref())?,
        }
        Ok(())
    }

    /// A client leaves. Whether what it wrote counts is unknown.
    fn give_up(&mut self) {
        let asked = self.asked.swap_remove(fastrand::usize(..self.asked.len()));
        if asked.is_write {
            self.known[asked.key].is_written = false;
        }
    }
}

impl Known {
    fn judge(&mut self, floor: u64, seen: Option<&[u8]>) -> Verdict {
        let number = match seen {
            Some(seen) => {
                let number = u64::from_le_bytes(seen[..8].try_into().expect("a number"));
                if seen != value(number) {
                    return Err(format!("a torn value of number {number}"));
                }
                number
            }
            None => {
                let delete = self.deletes.iter().copied().find(|number| *number >= floor);
                delete.ok_or_else(|| format!("nothing, where number {floor} is"))?
            }
        };
        if number < floor {
            return Err(format!("number {number} was seen again after {floor}"));
        }
        self.floor = self.floor.max(number);
        Ok(())
    }
}

fn written(step: Step<Written>) -> Pin<Box<dyn Future<Output = Result<Outcome, StoreError>>>> {
    Box::pin(async {
        let written = match step {
            Step::Done(outcome) => outcome,
            Step::Wait(pending) => pending.await,
        };
        assert!(matches!(written?, Written::Stored { .. }));
        Ok(Outcome::Written)
    })
}

fn read(
    client: &Client,
    key: &Key<'_>,
    touch: Option<Exptime>,
) -> Pin<Box<dyn Future<Output = Result<Outcome, StoreError>>>> {
    let request = Retrieve { touch, ..Retrieve::default() };
    let mut seen = None;
    let step = client.get(key, &request, &mut |item: &ItemRef<'_>| seen = Some(item.value.to_vec()));
    Box::pin(async move {
        let lookup = match step {
            Step::Done(outcome) => outcome?,
            Step::Wait(pending) => pending.await?,
        };
        Ok(Outcome::Read(match lookup {
            Lookup::Found(item) => Some(item.value.into_vec()),
            _ => seen,
        }))
    })
}

fn campaign(epochs: Epochs, seed: u64) -> Verdict {
    fastrand::seed(seed);
    Campaign::new(epochs).run()
}

#[test]
fn nothing_old_is_ever_shown_again() {
    for seed in 0..400 {
        if let Err(reason) = campaign(Epochs::Kept, seed) {
            panic!("campaign {seed}: {reason}");
        }
    }
}

#[test]
fn without_epochs_something_old_is_shown_again() {
    let found = (0..400).find_map(|seed| campaign(Epochs::Ignored, seed).err());
    assert!(found.is_some_and(|reason| reason.contains("was seen again")), "the campaign finds nothing");
}

#[test]
fn threads_over_a_hostile_server_neither_lose_nor_tear() {
    for seed in 0..2 {
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let model = || ModelStore::new(Arc::clone(&clock), config.value_max);
            // Few values are in pieces: those of overwritten ones stay below, and the model is slow to walk.
            let cut = ChunkedConfig { piece_bytes: 2000, whole_max: 2500, item_max: 1 << 20 };
            let upper = Chunked::new(Faulty::new(model(), Manners::Hostile), cut, Arc::clone(&clock));
            let config = TieredConfig {
                promotion: Promotion::Always,
                write_budget: None,
                item_max: config.value_max,
                cluster: false,
            };
            Tiered::new(upper, Faulty::new(model(), Manners::Slow), config, clock)
        };
        let ran = catch_unwind(AssertUnwindSafe(|| suite::concurrent(make, 4, seed)));
        assert!(ran.is_ok(), "seed {seed}");
    }
}
