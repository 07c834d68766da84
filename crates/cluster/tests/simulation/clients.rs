//! What clients do, and what they know of it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use moneta_store::component;
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Cx, Deleted, ErrorKind, Key, Lookup, Number, Op, Outcome, Policy, Store, StoreError, Unseen, Written, steps,
};
use parking_lot::Mutex;

use crate::common::SEED;
use crate::net::{Net, travel};
use crate::others::Named;
use crate::world::Proxy;

pub const CLIENTS: usize = 6;
/// How far clocks differ at most, in milliseconds, which are steps.
pub const SKEW: u64 = 200;

/// What is known of a client's own key: each of these may be what it holds.
pub type Possible = Vec<Option<String>>;

/// What clients know.
#[derive(Default)]
pub struct Books {
    pub own: HashMap<usize, Possible>,
    /// Increments answered, and those whose outcome is unknown.
    pub counted: u64,
    pub unknown: u64,
    pub failures: Vec<String>,
    pub operations: u64,
    pub errors: u64,
    /// Clients end after what they have begun.
    pub over: bool,
    /// By client: the step at which the last change of its key began, and false; or at which it ended, and true.
    pub changed: HashMap<usize, (u64, bool)>,
    /// The steps at which flushes began, and those at which they ended.
    pub flushes: Vec<(u64, Option<u64>)>,
    /// Clients whose keys a flush through another proxy has taken: until it has reached all nodes they may still see them.
    pub flushed: HashSet<usize>,
    /// Clients that have appended beside a flush, and neither set nor deleted since: where the flush had not reached all nodes,
    /// the value may have been made from an older one (docs/cluster.md).
    pub unsure: HashSet<usize>,
    /// Values of the key that several clients set, and the steps at which these sets were answered.
    pub shared: HashMap<String, u64>,
    /// Nothing fails: no message is lost, no node is away.
    pub is_quiet: bool,
    /// Clients whose key is on a node that lies, which may be the one that answers.
    pub unjudged: HashSet<usize>,
    /// A node that lies has the key that several clients set: two sets that it says to have taken have no other copy in common.
    pub sharers_unjudged: bool,
    /// Sets of the key that several clients set, which others always overtook.
    pub outrun: u64,
    /// Who has the lock.
    pub holder: Option<usize>,
    pub named: Named,
    /// Writes that were tried while a proxy was cut off.
    pub flooded: usize,
}

impl Books {
    /// Something failed, which it must not where nothing else fails.
    pub fn failed(&mut self, text: String) {
        self.errors += 1;
        if self.is_quiet {
            self.failures.push(text);
        }
    }

    /// Whether a flush may have taken what was written by an operation that began at this step and has just ended.
    fn may_be_flushed(&self, began: u64) -> bool {
        self.flushes.iter().any(|(_, ended)| ended.is_none_or(|ended| began < ended + SKEW))
    }
}

pub fn key_of(client: usize) -> String {
    format!("own{client}")
}

pub const COUNTER: &str = "counter";
/// The key that clients of all proxies set.
pub const SHARED: &str = "shared";

/// All keys.
pub fn keys() -> impl Iterator<Item = String> {
    (0..CLIENTS).map(key_of).chain([COUNTER.to_owned(), SHARED.to_owned()])
}

/// One client, of nodes that may lose items: it changes and reads a key that no other client changes, and adds to a counter that
/// all do.
pub async fn client(
    number: usize,
    loses: bool,
    proxy: Rc<Proxy>,
    mut rng: Rng,
    net: Arc<Mutex<Net>>,
    books: Rc<RefCell<Books>>,
) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let (own, counter) = (key_of(number), Key::new(COUNTER.as_bytes(), SEED));
    let own = Key::new(own.as_bytes(), SEED);
    let store = &proxy.cluster;
    for round in 0.. {
        if books.borrow().over {
            return;
        }
        // What fails at once takes time, too.
        travel(&net).await;
        books.borrow_mut().operations += 1;
        let possible = books.borrow().own.get(&number).cloned().unwrap_or_else(|| vec![None]);
        let began = net.lock().step;
        let choice = rng.u8(0..13);
        let note = |mut now: Possible| {
            let is_known = now.len() == 1;
            let mut books = books.borrow_mut();
            if books.may_be_flushed(began) {
                now.push(None);
            }
            now.sort();
            now.dedup();
            books.own.insert(number, now);
            books.changed.insert(number, (net.lock().step, true));
            books.flushed.remove(&number);
            if choice == 3 && books.may_be_flushed(began) {
                books.unsure.insert(number);
            } else if choice != 3 && is_known {
                books.unsure.remove(&number);
            }
        };
        let failed = |what, error: &StoreError| {
            books.borrow_mut().failed(format!("{what} of own{number} failed at {began}: {error}"));
        };
        let is_judged = !books.borrow().unjudged.contains(&number);
        // What a flush has taken meanwhile is missing.
        let may_be_missing =
            |possible: &Possible| loses || possible.contains(&None) || books.borrow().may_be_flushed(began);
        if choice < 5 {
            books.borrow_mut().changed.insert(number, (began, false));
        }
        match choice {
            0..3 => {
                let value = format!("{number}.{round}");
                let request = Write::default();
                let op = Op::Write(value.as_bytes(), &request);
                match steps::finish(store.call(&cx, &own, op, &mut Unseen)).await {
                    Ok(Outcome::Written(Written::Stored { .. })) => note(vec![Some(value)]),
                    Ok(other) => panic!("a set ended as {other:?}"),
                    Err(error) => {
                        failed("a set", &error);
                        note([possible, vec![Some(value)]].concat());
                    }
                }
            }
            // What a node that lies has of a deleted key is appended to, too.
            3 if possible.len() < 20 && (is_judged || !possible.contains(&None)) => {
                let request = Write { mode: WriteMode::Append, ..Write::default() };
                let op = Op::Write(b"+", &request);
                let appended = possible.iter().flatten().map(|value| Some(format!("{value}+"))).collect::<Vec<_>>();
                match steps::finish(store.call(&cx, &own, op, &mut Unseen)).await {
                    Ok(Outcome::Written(Written::Stored { .. })) => note(appended),
                    // A set of unknown outcome may still take effect.
                    Ok(_) if may_be_missing(&possible) => {
                        let ended = net.lock().step;
                        books.borrow_mut().changed.insert(number, (ended, true)).map_or((), |_| ())
                    }
                    Ok(other) => {
                        let text = format!("an append to one of {possible:?} of own{number} ended as {other:?}");
                        books.borrow_mut().failures.push(text);
                        note(possible);
                    }
                    Err(error) => {
                        failed("an append", &error);
                        note([possible, appended].concat());
                    }
                }
            }
            4 => match steps::finish(store.call(&cx, &own, Op::Delete(&Delete::default()), &mut Unseen)).await {
                Ok(deleted) => {
                    let had = matches!(deleted, Outcome::Deleted(Deleted::Deleted));
                    if is_judged && books.borrow().is_quiet && !had && !may_be_missing(&possible) {
                        let text = format!("a delete of own{number} found nothing, where one of {possible:?} was");
                        books.borrow_mut().failures.push(text);
                    }
                    note(vec![None]);
                }
                Err(error) => {
                    failed("a delete", &error);
                    note([possible, vec![None]].concat());
                }
            },
            5..9 => {
                let request = Retrieve::default();
                match steps::finish(store.call(&cx, &own, Op::Read(&request), &mut Unseen)).await {
                    Ok(Outcome::Read(Lookup::Found(item))) => {
                        let value = Some(String::from_utf8_lossy(&item.value).into_owned());
                        if is_judged && !possible.contains(&value) && !books.borrow().unsure.contains(&number) {
                            let text = format!("own{number} shows {value:?} and may be one of {possible:?}");
                            books.borrow_mut().failures.push(text);
                        }
                    }
                    Ok(_) if is_judged && !may_be_missing(&possible) => {
                        let text = format!("own{number} is missing and may be one of {possible:?}");
                        books.borrow_mut().failures.push(text);
                    }
                    Ok(_) => {}
                    Err(error) => failed("a get", &error),
                }
            }
            9 => {
                // What a proxy reads that did not write it: that fills its near copies, too.
                let other = key_of(rng.usize(0..CLIENTS));
                let other = Key::new(other.as_bytes(), SEED);
                let _ = steps::finish(store.call(&cx, &other, Op::Read(&Retrieve::default()), &mut Unseen)).await;
            }
            _ => {
                let create = Some(Create { initial: 1, exptime: Exptime::NEVER });
                let request = Arithmetic { delta: 1, create, ..Arithmetic::default() };
                match steps::finish(store.call(&cx, &counter, Op::Arithmetic(&request), &mut Unseen)).await {
                    Ok(Outcome::Number(Number::Value { .. })) => books.borrow_mut().counted += 1,
                    Ok(other) => panic!("an increment ended as {other:?}"),
                    Err(error) => {
                        failed("an increment", &error);
                        books.borrow_mut().unknown += 1;
                    }
                }
            }
        }
    }
}

/// One of several clients that set and read one key. Behind its set it sees that, or what was set meanwhile or later, whatever
/// its proxy's clock says.
pub async fn sharer(number: usize, proxy: Rc<Proxy>, mut rng: Rng, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let (key, store) = (Key::new(SHARED.as_bytes(), SEED), &proxy.cluster);
    // The step at which the last set began that was answered.
    let mut set = 0;
    for round in 0.. {
        if books.borrow().over {
            return;
        }
        travel(&net).await;
        let began = net.lock().step;
        if rng.bool() {
            let value = format!("{number}.{round}");
            let request = Write::default();
            let op = Op::Write(value.as_bytes(), &request);
            match steps::finish(store.call(&cx, &key, op, &mut Unseen)).await {
                Ok(_) => {
                    set = began;
                    books.borrow_mut().shared.insert(value, net.lock().step);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => books.borrow_mut().outrun += 1,
                Err(error) => books.borrow_mut().failed(format!("a set of {SHARED} failed: {error}")),
            }
        } else if let Ok(Outcome::Read(Lookup::Found(item))) =
            steps::finish(store.call(&cx, &key, Op::Read(&Retrieve::default()), &mut Unseen)).await
        {
            let value = String::from_utf8_lossy(&item.value).into_owned();
            let books = &mut *books.borrow_mut();
            let is_overtaken = net.lock().overtaking.contains(&value);
            let is_judged = !is_overtaken && !books.sharers_unjudged;
            if let Some(ended) = books.shared.get(&value).filter(|ended| is_judged && **ended < set) {
                books.failures.push(format!("{SHARED} shows {value} of {ended} to {number}, which set it after {set}"));
            }
        }
    }
}

/// Flushes all nodes through one proxy or another now and then. What was written long enough before is gone then.
pub async fn flusher(proxies: Vec<Rc<Proxy>>, mut rng: Rng, net: Arc<Mutex<Net>>, books: Rc<RefCell<Books>>) {
    loop {
        for _ in 0..rng.u32(50..200) {
            travel(&net).await;
        }
        if books.borrow().over {
            return;
        }
        let through = rng.usize(0..proxies.len());
        let proxy = &proxies[through];
        let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
        let began = net.lock().step;
        let flush = {
            let mut books = books.borrow_mut();
            books.flushes.push((began, None));
            books
                .own
                .values_mut()
                .filter(|possible| !possible.contains(&None))
                .for_each(|possible| possible.push(None));
            books.flushes.len() - 1
        };
        let ended = steps::finish(component::flush(&proxy.cluster, &cx, Exptime::NEVER)).await;
        let books = &mut *books.borrow_mut();
        books.flushes[flush].1 = Some(net.lock().step);
        if ended.is_ok() {
            let is_before = |(at, ended): (u64, bool)| ended && at + SKEW < began;
            for (&client, _) in books.changed.iter().filter(|(_, changed)| is_before(**changed)) {
                if client % proxies.len() == through {
                    books.own.insert(client, vec![None]);
                } else {
                    books.flushed.insert(client);
                }
            }
        }
    }
}
