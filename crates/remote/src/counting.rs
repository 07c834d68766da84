//! Arithmetic. Servers can create a missing number, but do not tell whether they did, which the store must know. So a missing
//! number is added, and if another client was faster, the arithmetic is retried. The request takes effect at the one step that
//! succeeds; most counters exist at the first.

use moneta_client::wire::{self, Answer, Verb};
use moneta_store::request::{Arithmetic, Create, Write, WriteMode};
use moneta_store::{ErrorKind, Expiry, ItemMeta, Key, Number, Outcome, OwnedKey, Step, StoreError};

use crate::caller::Caller;
use crate::exchange::Exchange;

/// How often a key may be deleted and created by others while one request on it goes on.
const ATTEMPTS: u32 = 16;

pub(crate) fn arithmetic(remote: &Caller, key: &Key<'_>, request: &Arithmetic) -> Step {
    match count(remote, key, request) {
        Ok(first) => {
            let (remote, key, request) = (remote.clone(), OwnedKey::of(key), *request);
            Step::Wait(Box::pin(async move { finish(remote, key, request, first).await.map(Outcome::Number) }))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

fn count(remote: &Caller, key: &Key<'_>, request: &Arithmetic) -> Result<Exchange, StoreError> {
    remote.begin(Verb::Arithmetic(Arithmetic { create: None, ..*request }), key, &[])
}

async fn finish(
    remote: Caller,
    key: OwnedKey,
    request: Arithmetic,
    mut counting: Exchange,
) -> Result<Number, StoreError> {
    for _ in 0..ATTEMPTS {
        let answer = counting.await?;
        let create = match (answer, request.create) {
            (Answer::NotFound, Some(create)) => create,
            (answer, _) => return counted(&remote, &request, answer),
        };
        if let Some(ended) = add(&remote, &key, &request, create).await? {
            return Ok(ended);
        }
        counting = count(&remote, &key.key(), &request)?;
    }
    Err(StoreError::new(ErrorKind::Timeout, "the number is created and deleted all the time"))
}

/// Adds the first value; `None` if another client has added one.
async fn add(
    remote: &Caller,
    key: &OwnedKey,
    request: &Arithmetic,
    create: Create,
) -> Result<Option<Number>, StoreError> {
    let Create { initial, exptime } = create;
    let write = Write { mode: WriteMode::Add, exptime, new_cas: request.new_cas, ..Write::default() };
    let answer = remote.begin(Verb::Write(write), &key.key(), initial.to_string().as_bytes())?.await?;
    match answer {
        Answer::Stored { cas } => {
            let now = remote.now();
            let expiry = Expiry::resolve(exptime, now);
            let meta = ItemMeta { cas, expiry, last_access: now, ..ItemMeta::default() };
            Ok(Some(Number::Value { number: initial, meta, created: true }))
        }
        Answer::NotStored => Ok(None),
        Answer::OutOfMemory => Ok(Some(Number::OutOfMemory)),
        other => Err(remote.unexpected(other)),
    }
}

/// What a server tells of a number it has counted on: the CAS value, and how long it lives.
fn counted(remote: &Caller, request: &Arithmetic, answer: Answer) -> Result<Number, StoreError> {
    Ok(match answer {
        Answer::Number { number, cas, ttl } => {
            let now = remote.now();
            let expiry_before = wire::expiry(ttl, now);
            let expiry = request.touch.map_or(expiry_before, |exptime| Expiry::resolve(exptime, now));
            let meta = ItemMeta { cas, expiry, expiry_before, last_access: now, ..ItemMeta::default() };
            Number::Value { number, meta, created: false }
        }
        Answer::NonNumeric => Number::NonNumeric,
        Answer::Exists => Number::Exists,
        Answer::NotFound => Number::NotFound,
        Answer::OutOfMemory => Number::OutOfMemory,
        other => return Err(remote.unexpected(other)),
    })
}
