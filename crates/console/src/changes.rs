//! Tells browsers that something of an environment has changed: server-sent events that say no more than that, at most one a
//! second, after which
//! a page fetches what it shows again; and a tick every few seconds, since what travels with renewals changes all the time.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use moneta_admin::{Right, Role, Route, stream};
use moneta_control::journal::{Kind, Wanted};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::console::Console;

/// At most one event in so long.
const APART: Duration = Duration::from_secs(1);
/// A tick.
const TICK: Duration = Duration::from_secs(5);

pub(crate) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let route = Route::get("/console/{environment}/changes", changes, Arc::clone(console));
    vec![route.streaming().needs(Right::Role(Role::Read))]
}

#[derive(Deserialize)]
struct Asked {
    app: Option<String>,
}

async fn changes(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    let wanted = Wanted { kinds: Kind::ALL.to_vec(), app: asked.app.map(Into::into) };
    // From now on: what was before is on the page.
    let feed =
        console.control.look(|state, _| state.at).and_then(|at| console.control.feed(&environment, wanted, Some(at)));
    let feed = match feed {
        Ok(feed) => feed,
        Err(refusal) => return refusal.into_response(),
    };
    let events = futures_util::stream::unfold(Box::pin(feed), |mut feed| async move {
        let begun = Instant::now();
        let mut is_changed = false;
        loop {
            let until = begun + if is_changed { APART } else { TICK };
            match timeout_at(until, feed.next()).await {
                Ok(Some(lines)) => is_changed |= lines.starts_with(b"{\"put\"") || lines.starts_with(b"{\"delete\""),
                // It is not in step any more: the browser connects again.
                Ok(None) => return None,
                Err(_) => break,
            }
        }
        Some((Event::default().event(if is_changed { "change" } else { "tick" }).data("now"), feed))
    });
    stream::events(events)
}
