//! One key, for operators: `GET /key?key=K` tells what the store holds under it, and the version it was deleted under.
//!
//! Nothing is changed by looking, not even the order of eviction. Numbers of 64 bits are strings, since not all readers of JSON have
//! integers above 2^53.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_admin::answer::{self, unavailable};
use moneta_admin::ask::{Unanswered, ask};
use moneta_store::request::KEY_MAX;
use moneta_store::steps::into_pending;
use moneta_store::{Cx, ItemRef, Key, Lookup, Op, Outcome, Store, StoreError, Unseen};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Shown;

/// Time limit of a look.
const WITHIN: Duration = Duration::from_secs(8);

/// The most bytes of a value that are shown.
const SHOWN_MAX: usize = 64 << 10;

/// A value that lies in several places and is larger is not shown at all.
const COPIED_MAX: usize = 8 << 20;

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyQuery {
    /// The key, if it is text.
    key: Option<String>,
    /// The key in base64.
    key64: Option<String>,
    /// Whether to show the value: 0 or 1.
    #[serde(default)]
    value: u8,
}

impl KeyQuery {
    fn key(&self) -> Result<Vec<u8>, &'static str> {
        let key = match (&self.key, &self.key64) {
            (Some(key), None) => key.as_bytes().to_vec(),
            (None, Some(key)) => STANDARD.decode(key).map_err(|_| "key64: this is no base64\n")?,
            _ => return Err("name a key: ?key=K, or ?key64= and its base64\n"),
        };
        match key.len() {
            1..=KEY_MAX => Ok(key),
            _ => Err("a key has 1 to 250 bytes\n"),
        }
    }
}

/// Whether a request asks for a value.
pub(super) fn shows_value(uri: &Uri) -> bool {
    Query::<KeyQuery>::try_from_uri(uri).is_ok_and(|Query(asked)| asked.value != 0)
}

/// What the store holds under a key.
pub(super) async fn key(State(shown): State<Arc<Shown>>, asked: Result<Query<KeyQuery>, QueryRejection>) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    let key = match asked.key() {
        Ok(key) => key,
        Err(wrong) => return (StatusCode::BAD_REQUEST, wrong).into_response(),
    };
    let observed = Arc::clone(&shown.observed);
    if !observed.node.live.answers_dump() {
        return (StatusCode::FORBIDDEN, "keys are secrets here (--disable-dumping)\n").into_response();
    }
    observed.node.clock.refresh();
    let now = observed.node.clock.now();
    let shows_value = asked.value != 0;
    let looked = ask(&shown.statistics, WITHIN, move || look(&**observed.store(), &key, shows_value, now)).await;
    match looked {
        Ok(Ok(page)) => answer::json(StatusCode::OK, &page),
        Ok(Err(error)) => unavailable(&error.to_string()),
        Err(Unanswered) => unavailable("the store does not answer"),
    }
}

/// Looks; may block as long as the store does. `now`: Unix seconds.
fn look(store: &dyn Store, key: &[u8], shows_value: bool, now: u32) -> Result<Value, StoreError> {
    let mut page = Map::new();
    match std::str::from_utf8(key) {
        Ok(text) => page.insert("key".into(), text.into()),
        Err(_) => page.insert("key64".into(), STANDARD.encode(key).into()),
    };
    let named = Key::new(key, store.seed());
    let cx = Cx::outside();
    let mut item = None;
    let mut seen = |there: &ItemRef<'_>| item = Some(of_item(there, shows_value, now));
    let lookup = pollster::block_on(into_pending(store.call(&cx, &named, Op::Peek, &mut seen)))?.lookup();
    if let Lookup::Found(found) = &lookup {
        item = Some(of_item(&found.as_ref(), shows_value, now));
    }
    page.insert("found".into(), item.is_some().into());
    page.extend(item.into_iter().flatten());
    let deleted = pollster::block_on(into_pending(store.call(&cx, &named, Op::BuriedAs, &mut Unseen)))?;
    if let Outcome::Cas(version @ 1..) = deleted {
        page.insert("deleted_version".into(), version.to_string().into());
    }
    Ok(page.into())
}

/// What is told of an item.
fn of_item(item: &ItemRef<'_>, shows_value: bool, now: u32) -> Map<String, Value> {
    let meta = &item.meta;
    let told = json!({
        "cas": meta.cas.to_string(),
        "version": meta.version().0.to_string(),
        "flags": meta.flags,
        "bytes": item.value.len(),
        "expiry": (meta.expiry.0 != 0).then_some(meta.expiry.0),
        "ttl": meta.expiry.remaining(now),
        "idle": now.saturating_sub(meta.last_access),
        "fetched": meta.fetched,
        "stale": meta.stale,
    });
    let Value::Object(mut told) = told else { return Map::new() };
    if shows_value {
        let copied;
        let value = match item.value.as_slice() {
            Some(value) => value,
            None if item.value.len() <= COPIED_MAX => {
                copied = item.value.to_vec();
                &copied
            }
            None => &[],
        };
        let value = &value[..value.len().min(SHOWN_MAX)];
        told.insert("cut".into(), (value.len() < item.value.len()).into());
        told.insert("value64".into(), STANDARD.encode(value).into());
    }
    told
}
