//! A server in another process, as bad as one can be: it fails, loses answers, hangs, and does what it was told long after it
//! was given up.

use std::sync::{Arc, Mutex};

use moneta_store::steps::read_owned;
use moneta_store::{Cx, ErrorKind, Key, Op, Outcome, OwnedKey, OwnedOp, Step, Store, StoreError, Unseen, Visit};
use moneta_testkit::doubles::{self, Double, Layer};
use moneta_testkit::model::ModelStore;

use crate::slow::Turns;

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
    /// Commands on their way whose senders have given up.
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
    pub fn new(inner: ModelStore, manners: Manners) -> Layer<Self> {
        Layer(Self { inner, manners, late: Arc::default() })
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
    fn change(&self, key: &Key<'_>, op: Op<'_>) -> Step {
        if self.manners == Manners::Hostile && fastrand::u8(..4) == 0 {
            self.catch_up();
        }
        let fate = self.fate();
        if matches!(fate, Fate::Done) {
            return self.inner.call(&Cx::outside(), key, op, &mut Unseen);
        }
        let outcome = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&outcome);
        let (key, op) = (OwnedKey::of(key), OwnedOp::of(op));
        let command: Command = Box::new(move |inner| {
            let step = op.with(|op| inner.call(&Cx::outside(), &key.key(), op, &mut Unseen));
            *kept.lock().unwrap() = Some(step.now());
        });
        let late = (self.manners == Manners::Hostile).then(|| Arc::clone(&self.late));
        let inner = self.inner.clone();
        // Sent before the first poll for the answer.
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
                Fate::Slow => outcome.lock().unwrap().take().expect("it is done"),
                _ => Err(timeout()),
            }
        }))
    }

    /// A look, whatever kind of read it is for.
    fn read(&self, cx: &Cx, key: &Key<'_>) -> Step {
        let fails = self.manners == Manners::Hostile && fastrand::u8(..10) == 0;
        if fastrand::bool() && !fails {
            return read_owned(&self.inner, cx, key, Op::Peek);
        }
        let look = doubles::later(&self.inner, cx, key, Op::Peek);
        let (before, after) = (fastrand::u32(..4), fastrand::u32(..4));
        Step::Wait(Box::pin(async move {
            Turns(before).await;
            let seen: Result<Outcome, StoreError> = look.await;
            Turns(after).await;
            if fails { Err(timeout()) } else { seen }
        }))
    }
}

impl Double for Faulty {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match op {
            Op::Read(_) | Op::Peek => self.read(cx, key),
            Op::Write(..) | Op::Put(..) | Op::Delete(_) => self.change(key, op),
            Op::Bury(_) | Op::Arithmetic(_) | Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas | Op::BuriedAs => {
                self.inner.call(cx, key, op, out)
            }
        }
    }
}
