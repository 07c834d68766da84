//! Reads.
//!
//! A meta read wins the recache of a stale item even if it does not ask for that; other reads do not show the marks or the
//! expiration time. So a read that wins without asking gives the recache back before it ends: it marks the same version as stale
//! again, which revokes only its own claim. In between, other readers see that the recache is taken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_client::wire::{Answer, Protocol, Read, Seen, Verb};
use moneta_store::request::Retrieve;
use moneta_store::{Expiry, Item, Key, Lookup, Outcome, OwnedKey, Step, StoreError};

use crate::caller::Caller;
use crate::connection::{Claim, giving_back, wins};
use crate::exchange::Exchange;

pub(crate) fn get(remote: &Caller, key: &Key<'_>, request: &Retrieve) -> Step {
    look(remote, key, Asks::Item, request)
}

pub(crate) fn peek(remote: &Caller, key: &Key<'_>) -> Step {
    look(remote, key, Asks::Peek, &Retrieve { bump: false, ..Retrieve::default() })
}

/// A read without a waiter, so that the server counts a use of the item.
pub(crate) fn note_hit(remote: &Caller, key: &Key<'_>) {
    // As a future that is dropped: should it win a recache, that is given back.
    if remote.dialect().is_some_and(|dialect| dialect.protocol == Protocol::Meta) {
        drop(look(remote, key, Asks::Use, &Retrieve::default()));
    }
}

/// What a read asks for.
#[derive(Clone, Copy)]
enum Asks {
    /// An item.
    Item,
    /// That the item counts as used.
    Use,
    /// An item, which does not count as used.
    Peek,
}

impl Asks {
    #[inline]
    fn verb(self, request: &Retrieve) -> Verb {
        match self {
            Self::Item => Verb::Read(Read { retrieve: *request, value: true }),
            Self::Use => Verb::Read(Read { retrieve: *request, value: false }),
            Self::Peek => Verb::Peek { value: true },
        }
    }
}

fn look(remote: &Caller, key: &Key<'_>, asks: Asks, request: &Retrieve) -> Step {
    match begin(remote, key, asks, request) {
        Ok(reading) => Step::Wait(Box::pin(reading)),
        Err(error) => Step::Done(Err(error)),
    }
}

#[inline]
fn begin(remote: &Caller, key: &Key<'_>, asks: Asks, request: &Retrieve) -> Result<Reading, StoreError> {
    let exchange = remote.begin(asks.verb(request), key, &[])?;
    Ok(Reading { exchange, remote: remote.clone(), asks, request: *request, key: OwnedKey::of(key), held: None })
}

/// A read under way.
struct Reading {
    exchange: Exchange,
    remote: Caller,
    asks: Asks,
    request: Retrieve,
    key: OwnedKey,
    /// What was found, while what was won with it is given back.
    held: Option<Item>,
}

impl Future for Reading {
    type Output = Result<Outcome, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = match ready!(self.exchange.poll_outcome(context)) {
                Err(failure) if failure.is_displaced && self.held.is_none() => match self.ask_anew() {
                    Ok(()) => continue,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                outcome => outcome.map_err(StoreError::from),
            };
            // Whether it could be given back changes nothing of what was read.
            if let Some(item) = self.held.take() {
                return Poll::Ready(Ok(Lookup::Found(item).into()));
            }
            let seen = match answer {
                Ok(Answer::Hit(seen)) => seen,
                Ok(Answer::Miss) => return Poll::Ready(Ok(Lookup::Miss { expired: false }.into())),
                Ok(other) => return Poll::Ready(Err(self.remote.unexpected(other))),
                Err(error) => return Poll::Ready(Err(error)),
            };
            let giving_back = if wins(&seen) && !self.request.claim {
                give_back(&self.remote, &self.key.key(), seen.cas)
            } else {
                None
            };
            let item = self.found(seen, giving_back.is_some());
            match giving_back {
                None => return Poll::Ready(Ok(Lookup::Found(item).into())),
                Some(exchange) => (self.exchange, self.held) = (exchange, Some(item)),
            }
        }
    }
}

impl Reading {
    /// Its connection was left, and with it the question.
    #[cold]
    fn ask_anew(&mut self) -> Result<(), StoreError> {
        self.exchange = self.remote.begin(self.asks.verb(&self.request), &self.key.key(), &[])?;
        Ok(())
    }

    #[inline]
    fn found(&self, seen: Seen<'_>, gives_back: bool) -> Item {
        let created = self.request.vivify.is_some() && seen.won && !seen.stale && seen.ttl == Some(-1);
        let now = self.remote.now();
        let mut meta = seen.meta(now);
        meta.won &= !gives_back;
        if let Some(exptime) = if created { self.request.vivify } else { self.request.touch } {
            meta.expiry = Expiry::resolve(exptime, now);
        }
        Item { meta, value: seen.value.into_owned().into() }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.request.claim || self.held.is_some() {
            return;
        }
        let key = self.key.key();
        let won = self.exchange.give_up(|| Claim { key: key.bytes.into(), hash: key.hash });
        if let Some(won) = won {
            drop(give_back(&self.remote, &Key { bytes: &won.key, hash: won.hash }, won.cas));
        }
    }
}

/// Marks the version with `cas` as stale again, free to be won. `None`: the server is gone, and so is what was won.
pub(crate) fn give_back(remote: &Caller, key: &Key<'_>, cas: u64) -> Option<Exchange> {
    remote.begin(Verb::Delete(giving_back(cas, remote.dialect())), key, &[]).ok()
}
