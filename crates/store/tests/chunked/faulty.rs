//! A server in another process, as bad as one can be: it fails, loses answers, hangs, and does what it was told long after it
//! was given up.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cursor, Deleted, ErrorKind, Install, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step, Store,
    StoreError, StoreStats, Tier, Visit, Walked, Walking, Written,
};

/// What it may do to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Answers late, and what is given up is done or is not: a tier in this process.
    Slow,
    /// Everything named above.
    Hostile,
}

/// The model behind a bad connection.
#[derive(Clone)]
pub struct Faulty {
    inner: ModelStore,
    manners: Manners,
    /// Commands on their way that nobody waits for any more.
    late: Arc<Mutex<Vec<Command>>>,
}

/// What was sent.
type Command = Box<dyn FnOnce(&ModelStore) + Send>;

/// What becomes of a change.
#[derive(Clone, Copy)]
enum Fate {
    Done,
    Slow,
    Refused,
    AnswerLost,
    DoneLate,
}

/// Waits for that many polls.
struct Turns(u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A command that was sent and is yet to be done. Given up, it is still sent.
struct Sent {
    command: Option<Command>,
    late: Option<Arc<Mutex<Vec<Command>>>>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let (Some(command), Some(late)) = (self.command.take(), &self.late) {
            late.lock().unwrap().push(command);
        }
    }
}

fn timeout() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "no answer in time")
}

impl Faulty {
    pub fn new(inner: ModelStore, manners: Manners) -> Self {
        Self { inner, manners, late: Arc::default() }
    }

    /// The server does something it was told before, if there is something.
    pub fn catch_up(&self) {
        let mut late = self.late.lock().unwrap();
        if !late.is_empty() {
            let number = fastrand::usize(..late.len());
            let command = late.swap_remove(number);
            drop(late);
            command(&self.inner);
        }
    }

    fn fate(&self) -> Fate {
        match (self.manners, fastrand::u8(..20)) {
            (_, 0..10) => Fate::Done,
            (Manners::Slow, _) | (_, 10..16) => Fate::Slow,
            (_, 16) => Fate::Refused,
            (_, 17) => Fate::AnswerLost,
            _ => Fate::DoneLate,
        }
    }

    /// A change, under whatever fate it has.
    fn change<T: Send + 'static>(&self, perform: impl FnOnce(&ModelStore) -> T + Send + 'static) -> Step<T> {
        if self.manners == Manners::Hostile && fastrand::u8(..4) == 0 {
            self.catch_up();
        }
        let fate = self.fate();
        if matches!(fate, Fate::Done) {
            return Step::done(perform(&self.inner));
        }
        let outcome = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&outcome);
        let command: Command = Box::new(move |inner| *kept.lock().unwrap() = Some(perform(inner)));
        let late = (self.manners == Manners::Hostile).then(|| Arc::clone(&self.late));
        let inner = self.inner.clone();
        // Sent before anybody polls for the answer.
        let mut sent = Sent { command: Some(command), late };
        let (before, after) = (fastrand::u32(..4), fastrand::u32(..4));
        Step::Wait(Box::pin(async move {
            Turns(before).await;
            match fate {
                Fate::Refused => sent.command = None,
                Fate::DoneLate => {}
                _ => sent.command.take().expect("it was not done")(&inner),
            }
            drop(sent);
            Turns(after).await;
            match fate {
                Fate::Slow => Ok(outcome.lock().unwrap().take().expect("it is done")),
                _ => Err(timeout()),
            }
        }))
    }

    fn read(&self, key: &Key<'_>) -> Step<Lookup> {
        let (inner, bytes, hash) = (self.inner.clone(), key.bytes.to_vec(), key.hash);
        let look = move || {
            let mut seen = None;
            let mut show = |item: &ItemRef<'_>| seen = Some(Item { meta: item.meta, value: item.value.to_vec() });
            let lookup = inner.peek(&Key { bytes: &bytes, hash }, &mut show).now();
            seen.map_or(lookup, |item| Ok(Lookup::Found(item)))
        };
        let fails = self.manners == Manners::Hostile && fastrand::u8(..10) == 0;
        if fastrand::bool() && !fails {
            return Step::Done(look());
        }
        let (before, after) = (fastrand::u32(..4), fastrand::u32(..4));
        Step::Wait(Box::pin(async move {
            Turns(before).await;
            let seen = look();
            Turns(after).await;
            if fails { Err(timeout()) } else { seen }
        }))
    }
}

impl Store for Faulty {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, _request: &Retrieve, _visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(key)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let (bytes, hash, value, request) = (key.bytes.to_vec(), key.hash, value.to_vec(), *request);
        self.change(move |inner| {
            inner.set(&Key { bytes: &bytes, hash }, &value, &request).now().expect("the model does not fail")
        })
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        let (bytes, hash, request) = (key.bytes.to_vec(), key.hash, *request);
        self.change(move |inner| {
            inner.delete(&Key { bytes: &bytes, hash }, &request).now().expect("the model does not fail")
        })
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.inner.arithmetic(key, request)
    }

    fn peek(&self, key: &Key<'_>, _visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(key)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.inner.flush(delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn resize(&self, limit: u64) -> bool {
        self.inner.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.observe(observer);
    }
}

impl Tier for Faulty {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        let (bytes, hash) = (key.bytes.to_vec(), key.hash);
        let item = Item { meta: item.meta, value: item.value.to_vec() };
        self.change(move |inner| {
            inner.install(&Key { bytes: &bytes, hash }, &item.as_ref(), how).now().expect("the model does not fail")
        })
    }

    fn next_cas(&self, key: &Key<'_>) -> u64 {
        self.inner.next_cas(key)
    }

    fn holds(&self, key: &Key<'_>) -> bool {
        self.inner.holds(key)
    }
}
