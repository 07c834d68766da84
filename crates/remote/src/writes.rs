//! Writes, deletes, flushes: each is one command of the server's.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_client::wire::{Answer, Verb};
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::{Deleted, Key, Step, StoreError, Version, Written};

use crate::caller::Caller;
use crate::exchange::Exchange;

pub(crate) fn set(remote: &Caller, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
    if value.len() > remote.config().item_max {
        return refuse_too_large(remote, key);
    }
    step::<Written, _>(remote, remote.begin(Verb::Write(*request), key, value))
}

/// What is too large leaves its key without a value, on a server that would have taken it too.
fn refuse_too_large(remote: &Caller, key: &Key<'_>) -> Step {
    match remote.begin(Verb::Delete(Delete::default()), key, &[]) {
        Ok(exchange) => {
            let remote = remote.clone();
            Step::Wait(Box::pin(async move {
                match exchange.await? {
                    Answer::Deleted | Answer::NotFound => Ok(Written::TooLarge.into()),
                    other => Err(remote.unexpected(other)),
                }
            }))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

pub(crate) fn delete(remote: &Caller, key: &Key<'_>, request: &Delete) -> Step {
    step::<Deleted, _>(remote, remote.begin(Verb::Delete(*request), key, &[]))
}

pub(crate) fn flush(remote: &Caller, delay: Exptime) -> Step<()> {
    let key = Key { bytes: &[], hash: 0 };
    step::<(), ()>(remote, remote.begin(Verb::Flush(delay), &key, &[]))
}

/// What an answer may mean.
pub(crate) trait Ending: Sized {
    fn of(answer: Answer) -> Result<Self, Answer>;
}

impl Ending for Written {
    #[inline]
    fn of(answer: Answer) -> Result<Self, Answer> {
        Ok(match answer {
            Answer::Stored { cas } => Self::Stored { cas },
            Answer::Unchanged { cas } => Self::Unchanged { cas },
            Answer::NotStored => Self::NotStored,
            Answer::Exists => Self::Exists,
            Answer::Superseded { by } => Self::Superseded { by },
            Answer::NotFound => Self::NotFound,
            Answer::TooLarge => Self::TooLarge,
            Answer::OutOfMemory => Self::OutOfMemory,
            other => return Err(other),
        })
    }
}

impl Ending for Deleted {
    fn of(answer: Answer) -> Result<Self, Answer> {
        Ok(match answer {
            Answer::Deleted => Self::Deleted,
            Answer::Exists => Self::Exists,
            Answer::Superseded { by } => Self::Superseded { by },
            Answer::NotFound => Self::NotFound,
            other => return Err(other),
        })
    }
}

impl Ending for () {
    fn of(answer: Answer) -> Result<Self, Answer> {
        if answer == Answer::Done { Ok(()) } else { Err(answer) }
    }
}

impl Ending for Version {
    fn of(answer: Answer) -> Result<Self, Answer> {
        match answer {
            Answer::Newest(version) => Ok(version),
            other => Err(other),
        }
    }
}

/// A request under way, whose answer means `T` and which ends as `R`.
struct Ended<T, R> {
    exchange: Exchange,
    remote: Caller,
    ending: PhantomData<fn() -> (T, R)>,
}

pub(crate) fn step<T, R>(remote: &Caller, begun: Result<Exchange, StoreError>) -> Step<R>
where
    T: Ending + Into<R> + 'static,
    R: 'static,
{
    match begun {
        Ok(exchange) => {
            let remote = remote.clone();
            Step::Wait(Box::pin(Ended::<T, R> { exchange, remote, ending: PhantomData }))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

impl<T: Ending + Into<R>, R> Future for Ended<T, R> {
    type Output = Result<R, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.exchange).poll(context));
        let ended = answer.and_then(|answer| T::of(answer).map_err(|other| self.remote.unexpected(other)));
        Poll::Ready(ended.map(Into::into))
    }
}
