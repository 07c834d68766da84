//! The feed over HTTP: `GET /changes` tells what changed from a place on, one JSON object a line.
//!
//! A reader asks again with the cursor of the last line; with `wait` the answer comes as soon as there is a change. Numbers of
//! 64 bits are strings, since not all readers of JSON have integers above 2^53.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use moneta_protocol::base64;
use moneta_store::feed::{Batch, Change, Feed, Place};
use moneta_store::holding::{Held, held};
use moneta_store::{Cx, Policy, Store, StoreError, Version};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::desk::{Desk, Unanswered, ask};

/// Longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Time limit of an answer, without the wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Most changes of an answer.
const CHANGES_MAX: usize = 10_000;
/// An answer ends behind the change that makes it longer than this, bytes.
const ANSWER_BYTES: usize = 4 << 20;
/// Changes that are read from the feed at once.
const READ_AT_ONCE: usize = 256;

/// What a reader asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Where to begin, as the last line of an answer said.
    cursor: Option<String>,
    /// Where to begin instead: at what changed since, in milliseconds since the Unix epoch. Without either: now.
    since: Option<u64>,
    /// How long to wait for a change, milliseconds.
    #[serde(default)]
    wait: u64,
    /// Most changes of the answer.
    #[serde(default = "changes_default")]
    limit: usize,
    /// Whether to tell values: 0 or 1.
    #[serde(default)]
    values: u8,
    /// Only of keys that begin so.
    #[serde(default)]
    prefix: String,
    /// Only what was written in this region.
    region: Option<u8>,
}

fn changes_default() -> usize {
    1000
}

/// The changes from a place on.
pub(super) async fn changes(
    State(desk): State<Arc<Desk>>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    let observed = match desk.observed() {
        Ok(observed) => observed,
        Err(doing) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{doing}\n")).into_response(),
    };
    let store = Arc::clone(observed.store());
    let Some(feed) = store.parts().feed else {
        return (StatusCode::NOT_FOUND, "this node has no feed: start it with --cluster\n").into_response();
    };
    let from = match (&asked.cursor, asked.since) {
        (Some(cursor), _) => match place_of(cursor) {
            Some(place) => place,
            None => return (StatusCode::BAD_REQUEST, "the cursor is none\n").into_response(),
        },
        (None, Some(since)) => feed.since(since),
        (None, None) => feed.end(),
    };
    if asked.wait > 0 {
        // Whether one comes or not, the answer tells where to read on.
        let _ = timeout(Duration::from_millis(asked.wait).min(WAIT_MAX), feed.changed(from)).await;
    }
    observed.node.clock.refresh();
    let told = Arc::clone(&store);
    match ask(&desk.feed, ANSWER_WITHIN, move || answer(&told, from, &asked)).await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(Unanswered) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response(),
    }
}

fn place_of(cursor: &str) -> Option<Place> {
    let (incarnation, position) = cursor.split_once('-')?;
    Some(Place { incarnation: u64::from_str_radix(incarnation, 16).ok()?, position: position.parse().ok()? })
}

/// The lines of an answer.
fn answer(store: &Arc<dyn Store>, from: Place, asked: &Asked) -> Result<Vec<u8>, StoreError> {
    let feed: &dyn Feed = store.parts().feed.expect("it had one");
    let mut lines = Vec::new();
    let mut line = |object: Value| {
        lines.extend_from_slice(object.to_string().as_bytes());
        lines.push(b'\n');
        lines.len()
    };
    let (mut place, mut left) = (from, asked.limit.min(CHANGES_MAX));
    let mut watermark;
    'reading: loop {
        let Batch { gap, changes, next, watermark: told } = feed.read(place, left.min(READ_AT_ONCE));
        if let Some(since) = gap {
            line(json!({ "kind": "gap", "since": since }));
        }
        let (begun, count) = (next.position - changes.len() as u64, changes.len());
        (place, watermark) = (next, told);
        for (number, change) in changes.into_iter().enumerate() {
            let Some(object) = describe(store, &change, asked)? else { continue };
            if line(object) > ANSWER_BYTES && number + 1 < count {
                place = Place { position: begun + number as u64 + 1, ..next };
                // What is left was told when this was read.
                watermark = 0;
                break 'reading;
            }
        }
        left -= count;
        if count < READ_AT_ONCE || left == 0 {
            break;
        }
    }
    let cursor = format!("{:x}-{}", place.incarnation, place.position);
    line(json!({ "kind": "end", "cursor": cursor, "watermark": watermark }));
    Ok(lines)
}

/// A change as a reader is told; `None` if it is not to be told, or no longer there.
fn describe(store: &Arc<dyn Store>, change: &Change, asked: &Asked) -> Result<Option<Value>, StoreError> {
    let wanted = |key: &[u8]| key.starts_with(asked.prefix.as_bytes());
    let of_region = |version: Version| asked.region.is_none_or(|region| version.origin().region() == region);
    Ok(match change {
        Change::Flushed(floor) if of_region(floor.version) => {
            Some(json!({ "kind": "flush", "version": floor.version.0.to_string(), "second": floor.second }))
        }
        Change::Deleted(key, version) if wanted(key) && of_region(*version) => Some(deleted(key, *version)),
        Change::Set(key) if wanted(key) => {
            let cx = Cx::outside().under(Policy::Batch);
            match pollster::block_on(held(store, &cx, key))? {
                Held::Item(item) if of_region(item.meta.version()) => {
                    let mut object = named("set", key);
                    object.insert("version".into(), item.meta.cas.to_string().into());
                    object.insert("flags".into(), item.meta.flags.into());
                    object.insert("expiry".into(), item.meta.expiry.0.into());
                    object.insert("stale".into(), item.meta.stale.into());
                    if asked.values != 0 {
                        object.insert("value".into(), base64::encode_key(&item.value).into());
                    }
                    Some(object.into())
                }
                Held::Buried(version) if of_region(version) => Some(deleted(key, version)),
                _ => None,
            }
        }
        _ => None,
    })
}

fn deleted(key: &[u8], version: Version) -> Value {
    let mut object = named("delete", key);
    object.insert("version".into(), version.0.to_string().into());
    object.into()
}

/// An object with a key: as text, or in base64 if it is none.
fn named(kind: &str, key: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    match std::str::from_utf8(key) {
        Ok(text) => object.insert("key".into(), text.into()),
        Err(_) => object.insert("key64".into(), base64::encode_key(key).into()),
    };
    object
}
