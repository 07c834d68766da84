//! The keys that clients ask for most: `GET /hotkeys`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_admin::answer;
use serde_json::{Map, Value, json};

use super::Shown;
use crate::hot_keys::{Hottest, WINDOW};
use crate::latency::SAMPLE;

/// The answer where keys are not listed.
pub(super) const SECRET: &str = "keys are secrets here (--disable-dumping)\n";

/// Those of the last window that is over, as JSON.
pub(super) async fn hot_keys(State(shown): State<Arc<Shown>>) -> Response {
    let node = &shown.observed.node;
    if !node.live.answers_dump() {
        return (StatusCode::FORBIDDEN, SECRET).into_response();
    }
    if !node.live.finds_hot_keys() {
        return answer::json(StatusCode::OK, &json!({ "on": false }));
    }
    node.clock.refresh();
    let told = node.registry.hottest(node.clock.now());
    let page = json!({
        "on": true,
        "begun": told.begun,
        "seconds": WINDOW,
        "sampled_one_in": SAMPLE,
        "samples": told.samples,
        "by_requests": of(&told.by_requests),
        "by_bytes": of(&told.by_bytes),
    });
    answer::json(StatusCode::OK, &page)
}

fn of(hottest: &Hottest) -> Value {
    let keys: Vec<Value> = hottest
        .keys
        .iter()
        .map(|heavy| {
            let mut key = with_key(&heavy.key);
            key.insert("count".into(), heavy.weight.into());
            key.insert("too_high_by_at_most".into(), heavy.error.into());
            key.insert("share".into(), hottest.share(heavy.weight).into());
            key.into()
        })
        .collect();
    json!({ "total": hottest.total, "keys": keys })
}

/// An object with a key: as text where it is text, else in base64.
pub(super) fn with_key(key: &[u8]) -> Map<String, Value> {
    let (name, value) = match std::str::from_utf8(key) {
        Ok(text) => ("key", text.to_owned()),
        Err(_) => ("key64", STANDARD.encode(key)),
    };
    Map::from_iter([(name.to_owned(), value.into())])
}
