//! Writes, deletes, flushes: each is one command of the server's.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::{Deleted, Key, Step, StoreError, Written};

use crate::exchange::Exchange;
use crate::remote::Remote;
use crate::wire::{Answer, Verb};

pub(crate) fn set(remote: &Remote, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
    if value.len() > remote.config().item_max {
        return refuse_too_large(remote, key);
    }
    step(remote, remote.begin(Verb::Write(*request), key, value))
}

/// What is too large leaves its key without a value, on a server that would have taken it too.
fn refuse_too_large(remote: &Remote, key: &Key<'_>) -> Step<Written> {
    match remote.begin(Verb::Delete(Delete::default()), key, &[]) {
        Ok(exchange) => {
            let remote = remote.clone();
            Step::Wait(Box::pin(async move {
                match exchange.await? {
                    Answer::Deleted | Answer::NotFound => Ok(Written::TooLarge),
                    other => Err(remote.unexpected(other)),
                }
            }))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

pub(crate) fn delete(remote: &Remote, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
    step(remote, remote.begin(Verb::Delete(*request), key, &[]))
}

pub(crate) fn flush(remote: &Remote, delay: Exptime) -> Step<()> {
    let key = Key { bytes: &[], hash: 0 };
    step(remote, remote.begin(Verb::Flush(delay), &key, &[]))
}

/// What an answer may mean.
pub(crate) trait Ending: Sized {
    fn from(answer: Answer) -> Result<Self, Answer>;
}

impl Ending for Written {
    #[inline]
    fn from(answer: Answer) -> Result<Self, Answer> {
        Ok(match answer {
            Answer::Stored { cas } => Self::Stored { cas },
            Answer::NotStored => Self::NotStored,
            Answer::Exists => Self::Exists,
            Answer::NotFound => Self::NotFound,
            Answer::TooLarge => Self::TooLarge,
            Answer::OutOfMemory => Self::OutOfMemory,
            other => return Err(other),
        })
    }
}

impl Ending for Deleted {
    fn from(answer: Answer) -> Result<Self, Answer> {
        Ok(match answer {
            Answer::Deleted => Self::Deleted,
            Answer::Exists => Self::Exists,
            Answer::NotFound => Self::NotFound,
            other => return Err(other),
        })
    }
}

impl Ending for () {
    fn from(answer: Answer) -> Result<Self, Answer> {
        if answer == Answer::Done { Ok(()) } else { Err(answer) }
    }
}

/// A request under way.
struct Ended<T> {
    exchange: Exchange,
    remote: Remote,
    ending: PhantomData<fn() -> T>,
}

fn step<T: Ending + 'static>(remote: &Remote, begun: Result<Exchange, StoreError>) -> Step<T> {
    match begun {
        Ok(exchange) => Step::Wait(Box::pin(Ended { exchange, remote: remote.clone(), ending: PhantomData })),
        Err(error) => Step::Done(Err(error)),
    }
}

impl<T: Ending> Future for Ended<T> {
    type Output = Result<T, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.exchange).poll(context));
        Poll::Ready(answer.and_then(|answer| T::from(answer).map_err(|other| self.remote.unexpected(other))))
    }
}
