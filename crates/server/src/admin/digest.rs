//! What a node holds, in short: for comparing two copies without sending their keys. docs/repair.md has the form.
//!
//! `POST /digest` tells for each bucket of keys how many items count, and the XOR of a hash of each; with `only`, the items of some
//! buckets. What counts is what is current and was made in a time: an item's version says when, on every copy alike, whenever the
//! copy got it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use moneta_admin::answer;
use moneta_admin::ask::{Unanswered, ask};
use moneta_feed::text;
use moneta_store::feed::{Buckets, Change, Set};
use moneta_store::{Cursor, Cx, ItemMeta, Policy, Store, StoreError, Version, Walked, Walking};
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use super::Shown;

/// Longest that all items of a node may take to be walked.
const WALK_WITHIN: Duration = Duration::from_secs(3600);
/// Bytes of a list of items, at most; who gets more asks for fewer buckets.
const LIST_MAX: usize = 64 << 20;
/// Bytes of a request: all buckets by number.
pub(super) const REQUEST_MAX: usize = 1 << 20;
/// Most buckets.
const BUCKETS_MAX: u32 = 1 << 16;

/// What is asked for. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Only what was made then or later.
    #[serde(default)]
    since: u64,
    /// Only what was made before.
    until: u64,
    /// In how many buckets: a power of two, at most 65,536.
    #[serde(default = "buckets_default")]
    buckets: u32,
    /// Only keys that begin so.
    #[serde(default)]
    prefix: String,
    /// The items of these buckets, in place of the digests of all.
    only: Option<Vec<u16>>,
}

fn buckets_default() -> u32 {
    4096
}

impl Asked {
    fn refusal(&self) -> Option<String> {
        if !self.buckets.is_power_of_two() || self.buckets > BUCKETS_MAX {
            return Some(format!("buckets: {} is no power of two up to {BUCKETS_MAX}", self.buckets));
        }
        let beyond = |only: &Vec<u16>| only.iter().any(|bucket| u32::from(*bucket) >= self.buckets);
        self.only.as_ref().filter(|only| beyond(only)).map(|_| "only: there is no such bucket".to_owned())
    }

    fn has(&self, item: &Walked<'_>, now: u32) -> bool {
        let version = item.meta.version();
        version > Version::ZERO
            && (self.since..self.until).contains(&version.millis())
            && item.key.starts_with(self.prefix.as_bytes())
            && !item.meta.expiry.is_dead(now)
    }

    fn bucket_of(&self, key: &[u8]) -> u16 {
        let shift = 16 - self.buckets.trailing_zeros();
        if shift == 16 { 0 } else { Buckets::of(key) >> shift }
    }
}

/// The hash of an item as digests have it: XXH3-64 of its version and its end in seconds, both little-endian, and its key.
fn hash(key: &[u8], meta: &ItemMeta) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&meta.version().0.to_le_bytes());
    hash.update(&meta.expiry.0.to_le_bytes());
    hash.update(key);
    hash.digest()
}

/// Why there is no answer.
enum Refused {
    /// This store does not list its keys.
    Unlisted,
    /// More items than an answer has room for.
    TooMany,
    /// The store failed.
    Failed(StoreError),
}

/// The digests of a node's items, or a list of some.
pub(super) async fn digest(State(shown): State<Arc<Shown>>, body: Bytes) -> Response {
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    if let Some(wrong) = asked.refusal() {
        return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response();
    }
    let observed = Arc::clone(&shown.observed);
    if !observed.may_be_copied() {
        return (StatusCode::FORBIDDEN, "keys are secrets here (--disable-dumping)\n").into_response();
    }
    let node = Arc::clone(&observed.node);
    let store = Arc::clone(observed.store());
    node.clock.refresh();
    let now = node.clock.now();
    let listeners: Vec<String> = observed.addresses.iter().map(ToString::to_string).collect();
    let floor = store.parts().flush.map_or(Version::ZERO, |flush| flush.floors().bound);
    let head = format!("DIGEST {} {} {}\r\n", asked.buckets, floor.0, listeners.join(","));
    let question = move || match asked.only.clone() {
        None => told(&store, &asked, now, head),
        Some(mut only) => {
            only.sort_unstable();
            list(&store, &asked, &only, now, head)
        }
    };
    match ask(&shown.walks, WALK_WITHIN, question).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/octet-stream")], text).into_response(),
        Ok(Err(Refused::Unlisted)) => (StatusCode::NOT_FOUND, "this store cannot list its keys\n").into_response(),
        Ok(Err(Refused::TooMany)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too many items: ask for fewer buckets\n").into_response()
        }
        Ok(Err(Refused::Failed(error))) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(Unanswered) => answer::unavailable("the store does not answer"),
    }
}

fn told(store: &Arc<dyn Store>, asked: &Asked, now: u32, head: String) -> Result<Vec<u8>, Refused> {
    let mut buckets: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    walk(store, asked, &mut |item| {
        if asked.has(item, now) {
            let (count, all) = buckets.entry(asked.bucket_of(item.key)).or_default();
            *count += 1;
            *all ^= hash(item.key, &item.meta);
        }
        true
    })?;
    let mut text = head;
    for (bucket, (count, all)) in buckets {
        text.push_str(&format!("{bucket} {count} {all:016x}\r\n"));
    }
    text.push_str("END\r\n");
    Ok(text.into_bytes())
}

fn list(store: &Arc<dyn Store>, asked: &Asked, only: &[u16], now: u32, head: String) -> Result<Vec<u8>, Refused> {
    let mut lines = head.into_bytes();
    let mut fits = true;
    walk(store, asked, &mut |item| {
        if asked.has(item, now) && only.binary_search(&asked.bucket_of(item.key)).is_ok() {
            let key = Bytes::copy_from_slice(item.key);
            text::write(&Change::Set(Set { key, meta: item.meta, value: None, as_of: None }), &mut lines);
            fits = lines.len() <= LIST_MAX;
        }
        fits
    })?;
    if !fits {
        return Err(Refused::TooMany);
    }
    lines.extend_from_slice(text::END);
    Ok(lines)
}

/// Shows all items whose versions were made since then, and perhaps others, until `show` says that it is enough.
fn walk(store: &Arc<dyn Store>, asked: &Asked, show: &mut dyn FnMut(&Walked<'_>) -> bool) -> Result<(), Refused> {
    let parts = store.parts();
    let walk = parts.walk.ok_or(Refused::Unlisted)?;
    if asked.since >= asked.until {
        // Who asks so wants the first line alone.
        return Ok(());
    }
    let cx = Cx::outside().under(Policy::Batch);
    let (mut cursor, mut goes_on) = (Cursor::since(asked.since), true);
    while goes_on {
        let ended = walk.walk(&cx, &mut cursor, &mut |item| {
            if goes_on {
                goes_on = show(item);
            }
        });
        match ended {
            Walking::More => {}
            Walking::End => return Ok(()),
            Walking::Wait(pending) => pollster::block_on(pending).map_err(Refused::Failed)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use moneta_store::Expiry;

    use super::*;

    #[test]
    fn a_hash_differs_with_key_version_and_end() {
        let meta = |cas, expiry| ItemMeta { cas, expiry: Expiry(expiry), ..ItemMeta::default() };
        let all = [hash(b"a", &meta(1, 2)), hash(b"b", &meta(1, 2)), hash(b"a", &meta(2, 2)), hash(b"a", &meta(1, 3))];
        assert!((1..4).all(|at| !all[..at].contains(&all[at])), "{all:x?}");
    }

    #[test]
    fn buckets_are_those_of_a_ring_of_slots_put_together() {
        let asked = |buckets| Asked { since: 0, until: 1, buckets, prefix: String::new(), only: None };
        for key in 0..100u32 {
            let key = key.to_le_bytes();
            assert_eq!(asked(1).bucket_of(&key), 0);
            assert_eq!(asked(1 << 16).bucket_of(&key), Buckets::of(&key));
            assert_eq!(asked(256).bucket_of(&key), Buckets::of(&key) / 256);
        }
        assert!(asked(3).refusal().is_some() && asked(1 << 17).refusal().is_some() && asked(2).refusal().is_none());
        assert!(Asked { only: Some(vec![2]), ..asked(2) }.refusal().is_some());
    }
}
