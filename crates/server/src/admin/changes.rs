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
use moneta_store::feed::{Batch, Change, Feed, Place, Told, Wanted};
use moneta_store::holding::{Held, held};
use moneta_store::{Cx, ItemMeta, Policy, Store, StoreError, Version};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::desk::{Desk, Unanswered, ask};

/// Longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often a reader that waits looks for a change.
const LOOK_EVERY: Duration = Duration::from_millis(5);
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
        (Some(cursor), _) => match cursor.parse::<Place>() {
            Ok(place) => place,
            Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
        },
        (None, Some(since)) => feed.since(since),
        (None, None) => feed.end(),
    };
    // Whether a change comes or not, the answer tells where to read on.
    let until = Instant::now() + Duration::from_millis(asked.wait).min(WAIT_MAX);
    while Instant::now() < until && !feed.has_more(from) {
        sleep(LOOK_EVERY).await;
    }
    observed.node.clock.refresh();
    let told = Arc::clone(&store);
    match ask(&desk.feed, ANSWER_WITHIN, move || answer(&told, from, &asked)).await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(Unanswered) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response(),
    }
}

/// The lines of an answer.
fn answer(store: &Arc<dyn Store>, from: Place, asked: &Asked) -> Result<Vec<u8>, StoreError> {
    let feed: &dyn Feed = store.parts().feed.expect("it had one");
    let wanted =
        Wanted { values: asked.values != 0, prefix: asked.prefix.as_bytes().to_vec(), region: asked.region };
    let mut reader = feed.reader(from, wanted.clone());
    let mut lines = Vec::new();
    let mut line = |object: Value| {
        lines.extend_from_slice(object.to_string().as_bytes());
        lines.push(b'\n');
        lines.len()
    };
    let (mut left, mut length) = (asked.limit.min(CHANGES_MAX), 0);
    let (mut place, mut watermark, mut more);
    'reading: loop {
        let Batch { gap, changes, next, watermark: told, is_end } =
            reader.read(left.min(READ_AT_ONCE), ANSWER_BYTES.saturating_sub(length))?;
        if let Some(since) = gap {
            line(json!({ "kind": "gap", "since": since }));
        }
        let count = changes.len();
        (place, watermark, more) = (next, told, !is_end);
        for (number, Told { change, next }) in changes.into_iter().enumerate() {
            let Some(object) = describe(store, change, &wanted)? else { continue };
            length = line(object);
            if length > ANSWER_BYTES && number + 1 < count {
                // What is left was told when this was read.
                (place, watermark, more) = (next, 0, true);
                break 'reading;
            }
        }
        left -= count;
        if is_end || left == 0 || length >= ANSWER_BYTES {
            break;
        }
    }
    line(json!({ "kind": "end", "cursor": place.to_string(), "watermark": watermark, "more": more }));
    Ok(lines)
}

/// A change as a reader is told; `None` if it is not to be told, or no longer there.
fn describe(store: &Arc<dyn Store>, change: Change, wanted: &Wanted) -> Result<Option<Value>, StoreError> {
    Ok(match change {
        Change::Flushed(floor) if wanted.has_version(floor.version) => {
            Some(json!({ "kind": "flush", "version": floor.version.0.to_string(), "second": floor.second }))
        }
        Change::Lost(until) => Some(json!({ "kind": "lost", "until": until })),
        Change::Deleted(key, version) if wanted.has_key(&key) && wanted.has_version(version) => {
            Some(deleted(&key, version))
        }
        Change::Item(left) if wanted.has_key(&left.key) && wanted.has_version(left.meta.version()) => {
            let mut object = set(&left.key, &left.meta, left.value.as_deref());
            if let Some(as_of) = left.as_of {
                object.insert("as_of".into(), as_of.into());
            }
            Some(object.into())
        }
        Change::Set(key) if wanted.has_key(&key) => {
            let cx = Cx::outside().under(Policy::Batch);
            match pollster::block_on(held(store, &cx, &key))? {
                Held::Item(item) if wanted.has_version(item.meta.version()) => {
                    Some(set(&key, &item.meta, wanted.values.then_some(&item.value[..])).into())
                }
                Held::Buried(version) if wanted.has_version(version) => Some(deleted(&key, version)),
                _ => None,
            }
        }
        _ => None,
    })
}

fn set(key: &[u8], meta: &ItemMeta, value: Option<&[u8]>) -> Map<String, Value> {
    let mut object = named("set", key);
    object.insert("version".into(), meta.cas.to_string().into());
    object.insert("flags".into(), meta.flags.into());
    object.insert("expiry".into(), meta.expiry.0.into());
    object.insert("stale".into(), meta.stale.into());
    if let Some(value) = value {
        object.insert("value".into(), base64::encode_key(value).into());
    }
    object
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
