//! Clients with other habits: some take a lock, some name the versions of what they write, and one fills hints.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use moneta_store::request::{Delete, Retrieve, Write, WriteMode};
use moneta_store::{
    Cx, Deleted, ErrorKind, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, Policy, Put, Store, Unseen, Value, Version,
    Written, steps,
};
use parking_lot::Mutex;

use crate::clients::{Books, keys};
use crate::common::SEED;
use crate::net::{Net, travel};
use crate::world::Proxy;

/// The key that is a lock: who adds it has it, and deletes it at the end.
pub const LOCK: &str = "lock";
/// The key whose versions a client names.
pub const NAMED: &str = "named";
/// How many keys are written while a proxy is cut off.
pub const FLOOD: usize = 24;
/// How long a proxy may take to find that nodes are back, or away, in steps; and where it may have written to them, so that this
/// is over, too.
pub const SETTLED: u64 = 1_200;
pub const SETTLED_IN_DOUBT: u64 = 4_500;
/// Longer than a request takes to fail, in steps.
const LONGEST: u64 = 600;
/// How far ahead of its proxy's clock a version is that a client names, at most, in milliseconds: nodes' clocks may be behind
/// that, and then refuse it.
const AHEAD: u64 = 300;
/// How far a version is ahead that every proxy refuses, in milliseconds.
const FAR_AHEAD: u64 = 365 * 86_400_000;
/// The farthest ahead that proxies believe, in milliseconds.
const BOUND: u64 = 500;

pub fn flood_key(number: usize) -> String {
    format!("flood{number}")
}

/// What is known of a key whose versions a client names.
#[derive(Default)]
pub struct Named {
    /// The newest that was answered as stored or deleted; and whether that is a delete.
    newest: Option<(Version, bool)>,
    /// All that may be stored, answered or not.
    sent: BTreeMap<Version, bool>,
}

impl Named {
    /// What the key may hold once all is at rest.
    pub fn may_be(&self, held: Option<Version>) -> bool {
        let Some((newest, is_deleted)) = self.newest else { return true };
        match held {
            Some(held) => held >= newest && self.sent.get(&held) == Some(&false),
            // Any delete that may have come to something, above it.
            None => is_deleted || self.sent.range(newest..).any(|(_, deleted)| *deleted),
        }
    }
}

/// One of several clients of all proxies that take a lock, hold it for a while and give it back. No two hold it at once, and a
/// holder finds it there when it gives it back: only its holder deletes it.
pub async fn locker(number: usize, proxy: Rc<Proxy>, mut rng: Rng, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let (key, store) = (Key::new(LOCK.as_bytes(), SEED), &proxy.cluster);
    while !books.borrow().over {
        travel(&net).await;
        books.borrow_mut().operations += 1;
        let request = Write { mode: WriteMode::Add, ..Write::default() };
        let added = steps::finish(store.call(&cx, &key, Op::Write(b"lock", &request), &mut Unseen)).await;
        match added {
            Ok(Outcome::Written(Written::Stored { .. })) => {}
            Ok(_) => continue,
            Err(error) => {
                books.borrow_mut().failed(format!("an add of {LOCK} failed: {error}"));
                continue;
            }
        }
        let holder = books.borrow_mut().holder.replace(number);
        if let Some(other) = holder {
            books.borrow_mut().failures.push(format!("{number} has taken the {LOCK} that {other} has"));
        }
        for _ in 0..rng.u32(0..3) {
            travel(&net).await;
        }
        books.borrow_mut().holder = None;
        let ended = steps::finish(store.call(&cx, &key, Op::Delete(&Delete::default()), &mut Unseen)).await;
        match ended {
            Ok(Outcome::Deleted(Deleted::Deleted)) => {}
            Ok(other) => books.borrow_mut().failures.push(format!("the {LOCK} of {number} is gone: {other:?}")),
            Err(error) => books.borrow_mut().failed(format!("a delete of {LOCK} failed: {error}")),
        }
    }
}

/// A client that may name versions, as a relay does: some are old, some a little ahead, and some a year, which are refused.
pub async fn namer(number: usize, proxy: Rc<Proxy>, mut rng: Rng, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let (key, store) = (Key::new(NAMED.as_bytes(), SEED), &proxy.cluster);
    while !books.borrow().over {
        travel(&net).await;
        books.borrow_mut().operations += 1;
        let now = proxy.clock.millis();
        let is_far = rng.u8(0..4) == 0;
        let at = if is_far { now + FAR_AHEAD } else { now + rng.u64(0..AHEAD * 2) - AHEAD };
        // Of this client, so that no two are the same.
        let version = Version(Version::at(at).0 | (rng.u64(0..1 << 13) << 9) | number as u64);
        if rng.u8(0..3) == 0 {
            let ended = steps::finish(store.call(&cx, &key, Op::Read(&Retrieve::default()), &mut Unseen)).await;
            if let Err(error) = ended {
                books.borrow_mut().failed(format!("a get of {NAMED} failed: {error}"));
            }
            continue;
        }
        let is_delete = rng.u8(0..4) == 0;
        if !is_far {
            books.borrow_mut().named.sent.insert(version, is_delete);
        }
        let meta = ItemMeta { cas: version.0, ..ItemMeta::default() };
        let item = ItemRef { meta, value: Value::whole(b"named") };
        let op = match is_delete {
            true => Op::Bury(version),
            false => Op::Put(&item, Put::Newer { as_of: now, base: None }),
        };
        let ended = steps::finish(store.call(&cx, &key, op, &mut Unseen)).await;
        let books = &mut *books.borrow_mut();
        match ended {
            Ok(Outcome::Written(Written::Stored { .. }) | Outcome::Deleted(Deleted::Deleted | Deleted::NotFound)) => {
                if is_far {
                    books.failures.push(format!("{NAMED} was stored under a version of a year ahead"));
                } else if books.named.newest.is_none_or(|(newest, _)| newest < version) {
                    books.named.newest = Some((version, is_delete));
                }
            }
            Ok(Outcome::Written(Written::Superseded { by }) | Outcome::Deleted(Deleted::Superseded { by })) => {
                if by < version {
                    books.failures.push(format!("{NAMED} of {version:?} is said to be older than {by:?}"));
                }
            }
            Ok(other) => books.failures.push(format!("a write of {NAMED} ended as {other:?}")),
            Err(error) if is_far && error.kind() == ErrorKind::ClockAhead => {}
            Err(error) => books.failed(format!("a write of {NAMED} failed: {error}")),
        }
    }
}

/// A client that names versions of keys that others write, as far ahead as proxies believe, though its listener allows none: that
/// is refused, unless `is_taken`.
pub async fn forger(
    key: &'static str,
    is_taken: bool,
    proxy: Rc<Proxy>,
    mut rng: Rng,
    net: Arc<Mutex<Net>>,
    books: Rc<RefCell<Books>>,
) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let key = Key::new(key.as_bytes(), SEED);
    while !books.borrow().over {
        for _ in 0..rng.u32(1..20) {
            travel(&net).await;
        }
        let version = Version::at(proxy.clock.millis() + BOUND);
        // What the listener refuses reaches no store.
        if is_taken {
            let _ = steps::finish(proxy.cluster.call(&cx, &key, Op::Bury(version), &mut Unseen)).await;
        }
    }
}

/// Writes many keys before its proxy is cut off, tries to write them again while it is, and reads them some time later: all are
/// there.
pub async fn flooder(proxy: Rc<Proxy>, cut: Range<u64>, settled: u64, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let names: Vec<String> = (0..FLOOD).map(flood_key).collect();
    let set = async |name: &str, value: &[u8]| {
        let key = Key::new(name.as_bytes(), SEED);
        let request = Write::default();
        steps::finish(proxy.cluster.call(&cx, &key, Op::Write(value, &request), &mut Unseen)).await
    };
    // Side by side: one after the other some seeds lose so many messages that the cut comes first.
    let before = names.iter().map(async |name| {
        while set(name, b"before").await.is_err() {
            travel(&net).await;
        }
    });
    futures_util::future::join_all(before).await;
    assert!(net.lock().step < cut.start, "there is time for all");
    while net.lock().step <= cut.start {
        travel(&net).await;
    }
    for name in names.iter().cycle() {
        travel(&net).await;
        // What is sent arrives while the proxy is cut off.
        if net.lock().step + LONGEST > cut.end {
            break;
        }
        let written = set(name, b"after").await;
        books.borrow_mut().flooded += 1;
        assert!(written.is_err(), "the proxy is cut off");
    }
    while net.lock().step < cut.end + settled {
        travel(&net).await;
    }
    for name in &names {
        let key = Key::new(name.as_bytes(), SEED);
        let op = Op::Read(&Retrieve::default());
        match steps::finish(proxy.cluster.call(&cx, &key, op, &mut Unseen)).await {
            Ok(Outcome::Read(Lookup::Found(_))) => {}
            other => books.borrow_mut().failures.push(format!("{name} cannot be read behind the cut: {other:?}")),
        }
    }
}

/// Reads all keys through a proxy when a node has been dead for long: each is answered.
pub async fn mourner(proxy: Rc<Proxy>, at: u64, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    while net.lock().step < at {
        travel(&net).await;
    }
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    for name in keys() {
        let op = Op::Read(&Retrieve::default());
        let ended = steps::finish(proxy.cluster.call(&cx, &Key::new(name.as_bytes(), SEED), op, &mut Unseen)).await;
        if let Err(error) = ended {
            books.borrow_mut().failures.push(format!("{name} cannot be read beside a dead node: {error}"));
        }
    }
}
