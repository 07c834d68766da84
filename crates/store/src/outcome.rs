//! How a request to a store ends: at once, or after a wait that only this request takes part in.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use moneta_item::{Deleted, Lookup, Number, Version, Written};

use crate::error::StoreError;
use crate::visit::Visit;

/// The rest of a request that has to wait (for the SSD, for a peer). It stays on the worker that started it.
pub type Pending<T = Outcome> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// Reads of several keys that have to wait: one end for each key, in their order.
pub trait Reads {
    /// How the next read ends; `None` after the last one. `out` sees the item of a hit while it still lies in the store, and the
    /// read ends as [`Lookup::Visited`]; a hit that ends as [`Lookup::Found`] was not shown.
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>>;
}

/// [`Reads`] that stay on the worker that began them.
pub type PendingReads = Pin<Box<dyn Reads>>;

/// How an operation ends, by its kind.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`crate::Op::Read`] and [`crate::Op::Peek`].
    Read(Lookup),
    /// Of [`crate::Op::Write`] and [`crate::Op::Put`].
    Written(Written),
    /// Of [`crate::Op::Delete`].
    Deleted(Deleted),
    /// Of [`crate::Op::Arithmetic`].
    Number(Number),
    /// Of [`crate::Op::Holds`].
    Held(bool),
    /// Of [`crate::Op::NextCas`] and [`crate::Op::BuriedAs`].
    Cas(u64),
    /// Of operations that tell nothing.
    Done,
}

/// An operation's progress.
#[must_use]
pub enum Step<T = Outcome> {
    /// Answered without waiting: the way of a hit in RAM, and the only one that costs nothing.
    Done(Result<T, StoreError>),
    /// Parked: poll the future; later requests of the same connection may start meanwhile.
    Wait(Pending<T>),
}

impl<T> Step<T> {
    /// Answered, and well.
    #[inline]
    pub fn done(outcome: T) -> Self {
        Self::Done(Ok(outcome))
    }

    /// The outcome of a step that is known not to wait, as an engine's in RAM.
    ///
    /// # Panics
    /// If it has to wait.
    pub fn now(self) -> Result<T, StoreError> {
        match self {
            Self::Done(outcome) => outcome,
            Self::Wait(_) => panic!("the step waits"),
        }
    }
}

/// The end of an operation as its own kind. A store that ends one as another kind is wrong, and that is a panic.
impl Outcome {
    /// Of a read.
    #[inline]
    pub fn lookup(self) -> Lookup {
        match self {
            Self::Read(lookup) => lookup,
            other => other.mismatched("a read"),
        }
    }

    /// Of a write or a put.
    #[inline]
    pub fn written(self) -> Written {
        match self {
            Self::Written(written) => written,
            other => other.mismatched("a write"),
        }
    }

    /// Of a delete.
    #[inline]
    pub fn deleted(self) -> Deleted {
        match self {
            Self::Deleted(deleted) => deleted,
            other => other.mismatched("a delete"),
        }
    }

    /// Of arithmetic.
    #[inline]
    pub fn number(self) -> Number {
        match self {
            Self::Number(number) => number,
            other => other.mismatched("arithmetic"),
        }
    }

    /// Of a question for a version.
    pub fn version(self) -> Version {
        match self {
            Self::Cas(cas) => Version(cas),
            other => other.mismatched("a version"),
        }
    }

    #[cold]
    fn mismatched(self, kind: &str) -> ! {
        panic!("{kind} ended as {self:?}")
    }
}

macro_rules! outcomes {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Outcome {
            #[inline]
            fn from(outcome: $kind) -> Self {
                outcomes!(@ $kind outcome)
            }
        }
    )*};
    (@ Lookup $outcome:ident) => { Self::Read($outcome) };
    (@ Written $outcome:ident) => { Self::Written($outcome) };
    (@ Deleted $outcome:ident) => { Self::Deleted($outcome) };
    (@ Number $outcome:ident) => { Self::Number($outcome) };
}
outcomes!(Lookup, Written, Deleted, Number);

impl Step {
    /// Answered, and well.
    #[inline]
    pub fn ended(outcome: impl Into<Outcome>) -> Self {
        Self::Done(Ok(outcome.into()))
    }

    /// Of [`crate::Op::Holds`], which never waits. A store that does not know says yes.
    pub fn holds(self) -> bool {
        !matches!(self, Self::Done(Ok(Outcome::Held(false))))
    }

    /// Of [`crate::Op::NextCas`], which never waits; 0 without a count.
    pub fn cas(self) -> u64 {
        match self {
            Self::Done(Ok(Outcome::Cas(cas))) => cas,
            _ => 0,
        }
    }
}

impl<T: 'static> Step<T> {
    /// The step with another kind of outcome. Allocates where this one waits.
    #[inline]
    pub fn map<R: 'static>(self, with: impl FnOnce(T) -> R + 'static) -> Step<R> {
        match self {
            Self::Done(outcome) => Step::Done(outcome.map(with)),
            Self::Wait(pending) => Step::Wait(Box::pin(async move { pending.await.map(with) })),
        }
    }
}
