//! Storing whole items, marks and all.
//!
//! The item is stored by one command. Servers have no command for marks, so these follow in further ones, each bound to the
//! version just stored: first "stale", which frees the recache, then a read that wins it. If the recache is won and the item is
//! not stale, the item is stored with a short time to live, so that a read wins it, and then gets its true expiration time. Items
//! with marks are rare; in between, readers of the server see them without.

use moneta_client::wire::{Answer, Protocol, Read, Verb};
use moneta_store::request::{Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Expiry, Item, ItemMeta, ItemRef, Key, Outcome, OwnedKey, Put, Step, StoreError, Written};

use crate::caller::Caller;
use crate::connection::giving_back;
use crate::writes;

/// Time to live, in seconds, of an item whose recache is to be won, and what the winner asks for.
const SHORT: i64 = 60;

pub(crate) fn put(remote: &Caller, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step {
    if item.meta.cas != 0 && remote.dialect().is_none() {
        return put_later(remote, key, item, how);
    }
    let meta = &item.meta;
    let mode = if how == Put::Present { WriteMode::Replace } else { WriteMode::Set };
    let knows_cas = remote.dialect().is_some_and(|dialect| dialect.explicit_cas);
    let new_cas = (meta.cas != 0 && knows_cas).then_some(meta.cas);
    let won_afresh = meta.token_sent && !meta.stale;
    let exptime = if won_afresh { Exptime(SHORT) } else { absolute(meta.expiry, remote.now()) };
    let write = Write { mode, flags: meta.flags, exptime, new_cas, ..Write::default() };
    let owned;
    let value = match item.value.as_slice() {
        Some(value) => value,
        None => {
            owned = item.value.to_vec();
            &owned
        }
    };
    let step = writes::set(remote, key, value, &write);
    match step {
        Step::Wait(storing) if meta.stale || meta.token_sent => {
            let marking = Marking { remote: remote.clone(), key: OwnedKey::of(key), meta: *meta };
            Step::Wait(Box::pin(async move {
                match storing.await? {
                    Outcome::Written(Written::Stored { cas }) => marking.mark(cas).await.map(Outcome::Written),
                    other => Ok(other),
                }
            }))
        }
        other => other,
    }
}

/// What form an item takes depends on the server, of which nothing is known yet: a request before it waits for that.
fn put_later(remote: &Caller, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step {
    let (remote, held) = (remote.clone(), OwnedKey::of(key));
    let item = Item::copy(item);
    match remote.begin(Verb::Noop, key, &[]) {
        Ok(first) => Step::Wait(Box::pin(async move {
            let answer = first.await?;
            if answer != Answer::Done {
                return Err(remote.unexpected(answer));
            }
            match put(&remote, &held.key(), &item.as_ref(), how) {
                Step::Done(ended) => ended,
                Step::Wait(installing) => installing.await,
            }
        })),
        Err(error) => Step::Done(Err(error)),
    }
}

/// An expiry as a client would send it at `now`. One that is past is sent as such: in seconds it might count as relative.
fn absolute(expiry: Expiry, now: u32) -> Exptime {
    match expiry {
        Expiry::NEVER => Exptime::NEVER,
        Expiry(second) if expiry.is_dead(now) || i64::from(second) <= Exptime::RELATIVE_MAX => Exptime(-1),
        Expiry(second) => Exptime(i64::from(second)),
    }
}

/// An item that is stored and has its marks to come.
struct Marking {
    remote: Caller,
    key: OwnedKey,
    meta: ItemMeta,
}

impl Marking {
    async fn mark(&self, cas: u64) -> Result<Written, StoreError> {
        if self.remote.dialect().is_some_and(|dialect| dialect.protocol != Protocol::Meta) {
            let text = "the server does not know the meta protocol, which an item with marks needs";
            return Err(StoreError::new(moneta_store::ErrorKind::Unsupported, text));
        }
        if self.meta.stale {
            let delete = giving_back(cas, self.remote.dialect());
            match self.remote.begin(Verb::Delete(delete), &self.key.key(), &[])?.await? {
                Answer::Deleted => {}
                // Another client has changed the key since: keep its version.
                Answer::Exists | Answer::NotFound => return Ok(Written::Stored { cas }),
                other => return Err(self.remote.unexpected(other)),
            }
            if !self.meta.token_sent {
                // Without a say in it, the mark has given the item another CAS value, which no read tells without winning.
                return Ok(Written::Stored { cas: delete.new_cas.unwrap_or(0) });
            }
        }
        let recache = (!self.meta.stale).then_some(Exptime(2 * SHORT));
        let win = Retrieve { recache, bump: false, claim: true, ..Retrieve::default() };
        let cas = self.read(win).await?.unwrap_or(cas);
        if !self.meta.stale {
            let touch = Some(absolute(self.meta.expiry, self.remote.now()));
            self.read(Retrieve { touch, bump: false, claim: true, ..Retrieve::default() }).await?;
        }
        Ok(Written::Stored { cas })
    }

    /// A read for its side effects; tells the CAS value.
    async fn read(&self, retrieve: Retrieve) -> Result<Option<u64>, StoreError> {
        let verb = Verb::Read(Read { retrieve, value: false });
        match self.remote.begin(verb, &self.key.key(), &[])?.await? {
            Answer::Hit(seen) => Ok(Some(seen.cas)),
            Answer::Miss => Ok(None),
            other => Err(self.remote.unexpected(other)),
        }
    }
}
