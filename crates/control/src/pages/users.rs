//! The users of this process, as nodes and proxies are told them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use moneta_admin::ask::ask;
use moneta_admin::{Places, Right, Role, Route, Turn};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::Desk;
use crate::commits::Who;
use crate::control::{Told, Users};
use crate::error::Refusal;
use crate::names;

/// The longest wait for a change, in seconds: a connection lives for half a minute, and the answer takes its time.
const WAIT_MAX: u64 = 20;
/// How long the table may take to be made, where many ask for different ones.
const MADE_WITHIN: Duration = Duration::from_secs(8);

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let desk = (desk.clone(), Turn::of(1));
    let route = Route::get("/v1/{environment}/users", users, desk).in_places(Places::Feed);
    vec![route.needs(Right::Role(Role::Register))]
}

#[derive(Deserialize)]
struct Asked {
    wait: Option<u64>,
}

async fn users(
    State((desk, turn)): State<(Desk, Turn)>,
    Path(environment): Path<String>,
    Query(asked): Query<Asked>,
    who: Who,
    headers: HeaderMap,
) -> Response {
    let Some(users) = desk.users else {
        return Refusal::missing("this control plane has no users to hand on: it was started without --users")
            .into_response();
    };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let until = Instant::now() + Duration::from_secs(asked.wait.unwrap_or(0).min(WAIT_MAX));
    match told(&users, &turn, &environment, &who, known, until).await {
        Ok((tag, None)) => (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response(),
        Ok((tag, Some(text))) => {
            let headers = [
                (header::ETAG, &*tag),
                (header::CONTENT_TYPE, "application/toml"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, text).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// The table with its tag; without its text if it still is what is known when the wait is over.
async fn told(
    users: &Arc<dyn Users>,
    turn: &Turn,
    environment: &str,
    who: &Who,
    known: Option<&str>,
    until: Instant,
) -> Result<(String, Option<Bytes>), Refusal> {
    names::check("an environment", environment)?;
    let mut changes = users.changes();
    loop {
        changes.mark_unchanged();
        let (users, who, environment) = (Arc::clone(users), who.clone(), environment.to_owned());
        // Of many users it takes as long as a second.
        let made = ask(turn, MADE_WITHIN, move || users.handed_to(&who, &environment)).await;
        let Told { text, tag } = made.map_err(|_| Refusal::unavailable("many ask for users"))??;
        let tag = format!("\"{tag}\"");
        if known != Some(tag.as_str()) {
            return Ok((tag, Some(text)));
        }
        if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
            return Ok((tag, None));
        }
    }
}
