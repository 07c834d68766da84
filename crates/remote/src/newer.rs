//! Writes, deletes and flushes by version: each is one command of a Moneta. A server that knows no versions is not asked.

use std::borrow::Cow;

use moneta_client::wire::{Answer, Verb};
use moneta_store::versions::Floor;
use moneta_store::{Deleted, ItemRef, Key, Newer, Step, Version, Written};

use crate::caller::Caller;
use crate::writes;

pub(crate) fn put(remote: &Caller, key: &Key<'_>, item: &ItemRef<'_>, as_of: u64, base: Option<Version>) -> Step {
    let meta = &item.meta;
    if item.value.len() > remote.config().item_max {
        return refuse_too_large(remote, key, meta.version());
    }
    let newer = Newer {
        version: meta.version(),
        as_of: Some(as_of),
        base,
        flags: meta.flags,
        expiry: meta.expiry,
        stale: meta.stale,
        token_sent: meta.token_sent,
    };
    let value = item.value.as_slice().map_or_else(|| Cow::Owned(item.value.to_vec()), Cow::Borrowed);
    writes::step::<Written, _>(remote, remote.begin(Verb::PutNewer(newer), key, &value))
}

/// What is older goes. Other copies may take the item itself, so it does not count as deleted.
fn refuse_too_large(remote: &Caller, key: &Key<'_>, version: Version) -> Step {
    match remote.begin(Verb::Bury(version.just_below()), key, &[]) {
        Ok(exchange) => {
            let remote = remote.clone();
            Step::Wait(Box::pin(async move {
                match exchange.await? {
                    Answer::Deleted | Answer::NotFound => Ok(Written::TooLarge.into()),
                    Answer::Superseded { by } => Ok(Written::Superseded { by }.into()),
                    other => Err(remote.unexpected(other)),
                }
            }))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

pub(crate) fn bury(remote: &Caller, key: &Key<'_>, version: Version) -> Step {
    writes::step::<Deleted, _>(remote, remote.begin(Verb::Bury(version), key, &[]))
}

pub(crate) fn newest(remote: &Caller) -> Step<Version> {
    let key = Key { bytes: &[], hash: 0 };
    writes::step::<Version, Version>(remote, remote.begin(Verb::Newest, &key, &[]))
}

pub(crate) fn floor(remote: &Caller, floor: Floor) -> Step<()> {
    let key = Key { bytes: &[], hash: 0 };
    let Floor { version, second } = floor;
    writes::step::<(), ()>(remote, remote.begin(Verb::Floor { version, second }, &key, &[]))
}
