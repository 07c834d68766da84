//! The feed.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use moneta_admin::{Right, Role, Route, stream};
use moneta_ledger::Cursor;
use serde::Deserialize;

use super::Desk;
use crate::commits::Who;
use crate::error::Refusal;
use crate::feed::as_events;
use crate::journal::{Kind, Wanted};
use crate::names;

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    vec![Route::get("/v1/{environment}/feed", feed, desk.clone()).streaming().needs(Right::Role(Role::Follow))]
}

#[derive(Deserialize)]
struct Asked {
    kinds: Option<String>,
    app: Option<String>,
    cursor: Option<String>,
}

async fn feed(
    State(desk): State<Desk>,
    Path(environment): Path<String>,
    Query(asked): Query<Asked>,
    who: Who,
    headers: HeaderMap,
) -> Response {
    let lines = begin(&desk, &environment, &asked, &who);
    let lines = lines.and_then(|(wanted, cursor)| desk.control.feed(&environment, wanted, cursor));
    let lines = match lines {
        Ok(lines) => lines,
        Err(refusal) => return refusal.into_response(),
    };
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepts.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/event-stream")) {
        let mut answer = stream::chunks("text/event-stream", lines.map(|lines| as_events(&lines)));
        answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        return answer;
    }
    stream::chunks("application/jsonl", lines)
}

/// What a reader wants, and from where, if it may have that.
fn begin(desk: &Desk, environment: &str, asked: &Asked, who: &Who) -> Result<(Wanted, Option<Cursor>), Refusal> {
    let kinds = match &asked.kinds {
        None => Kind::ALL.to_vec(),
        Some(kinds) => {
            let named = |name: &str| {
                let known = || Refusal::invalid(format!("kinds are {}", Kind::ALL.map(Kind::name).join(", ")));
                Kind::named(name).ok_or_else(known)
            };
            kinds.split(',').map(|name| named(name.trim())).collect::<Result<_, _>>()?
        }
    };
    if let Some(app) = &asked.app {
        names::check("an app", app)?;
    }
    if !desk.access.reads_all(who, environment) {
        let is_own = asked.app.as_ref().is_some_and(|app| desk.access.registers(who, environment, app));
        if !is_own {
            return Err(Refusal::forbidden("app= has to name an app of yours, or you need the role `read`"));
        }
    }
    // One that is not understood is of nothing that is known here.
    let cursor = asked.cursor.as_ref().and_then(|cursor| cursor.parse().ok());
    Ok((Wanted { kinds, app: asked.app.as_deref().map(Into::into) }, cursor))
}
