//! Requests that waited long, and large values: `GET /slowlog`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use moneta_admin::answer;
use serde_json::{Value, json};

use super::Shown;
use super::hot::{SECRET, with_key};
use crate::slow_log::{Entry, Why};

/// The last ones, the latest first, as JSON.
pub(super) async fn slow_log(State(shown): State<Arc<Shown>>) -> Response {
    let node = &shown.observed.node;
    if !node.live.answers_dump() {
        return (StatusCode::FORBIDDEN, SECRET).into_response();
    }
    let [waited, large, left_out] = node.slow_log.counts();
    let page = json!({
        "from_ms": node.slow_log.milliseconds(),
        "from_bytes": node.slow_log.bytes(),
        "waited": waited,
        "large": large,
        "left_out": left_out,
        "entries": node.slow_log.entries().iter().map(of).collect::<Vec<_>>(),
    });
    answer::json(StatusCode::OK, &page)
}

fn of(entry: &Entry) -> Value {
    let mut page = with_key(&entry.key);
    let mut put = |name: &str, value: Value| page.insert(name.into(), value);
    put("at_ms", entry.at.into());
    put("command", entry.command.into());
    put("bytes", entry.bytes.into());
    put("tier", entry.tier.into());
    put("client", entry.client.map(|client| client.to_string()).into());
    put("user", entry.user.as_deref().into());
    put("connection", entry.connection.into());
    match entry.why {
        Why::Large => put("why", "large".into()),
        Why::Waited { milliseconds, worker_late, behind } => {
            put("waited_ms", milliseconds.into());
            put("store_ms", milliseconds.saturating_sub(worker_late).into());
            put("worker_late_ms", worker_late.into());
            put("behind_others", behind.into());
            put("why", "waited".into())
        }
    };
    page.into()
}
