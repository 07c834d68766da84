//! The admin pages of options: what is in force and from where, and setting one by hand.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use moneta_admin::ask::{Turn, ask};
use moneta_admin::{ClientAddress, Principal, Route, answer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::reload::{InForceOption, LiveOptions};

/// The page of what is in force.
pub const PATH: &str = "/options";
const ONE: &str = "/options/{name}";
/// The most bytes of a value and what is said of it.
const BODY_MAX: usize = 64 << 10;
/// How long setting one may take, which may write a file.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Desk {
    reload: Arc<dyn LiveOptions>,
    // One after the other: each looks at all sources.
    turn: Turn,
}

/// The pages of a process whose options are these.
pub fn routes(reload: Arc<dyn LiveOptions>) -> Vec<Route> {
    let shows = Desk { reload, turn: Turn::of(1) };
    let changes = Desk { reload: Arc::clone(&shows.reload), turn: Turn::of(1) };
    vec![
        Route::get(PATH, show, shows),
        Route::put(ONE, set, changes.clone()).with_body(BODY_MAX),
        Route::delete(ONE, unset, changes),
    ]
}

async fn show(State(desk): State<Desk>) -> Response {
    let reload = Arc::clone(&desk.reload);
    let row = |option: InForceOption| {
        let mut row =
            json!({ "option": option.key, "value": option.value, "from": option.from, "live": option.is_live });
        if let Some(app) = option.app {
            row["app"] = app.into();
        }
        row
    };
    match ask(&desk.turn, WITHIN, move || reload.in_force()).await {
        Ok(options) => {
            let options: Vec<Value> = options.into_iter().map(row).collect();
            answer::json(StatusCode::OK, &json!({ "options": options }))
        }
        Err(_) => answer::unavailable("the options cannot be told now"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    value: String,
    #[serde(default)]
    save: bool,
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    save: bool,
}

type Who = (Option<Extension<Principal>>, Option<Extension<ClientAddress>>);

async fn set(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    principal: Option<Extension<Principal>>,
    address: Option<Extension<ClientAddress>>,
    body: Bytes,
) -> Response {
    match serde_json::from_slice::<Wanted>(&body) {
        Ok(Wanted { value, save }) => change(desk, name, Some(value), save, (principal, address)).await,
        Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("the body is not understood: {error}")),
    }
}

async fn unset(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    principal: Option<Extension<Principal>>,
    address: Option<Extension<ClientAddress>>,
) -> Response {
    change(desk, name, None, asked.save, (principal, address)).await
}

async fn change(desk: Desk, name: String, value: Option<String>, save: bool, (principal, address): Who) -> Response {
    let named = principal.map(|Extension(principal)| principal.to_string()).filter(|name| !name.is_empty());
    let by = named.or_else(|| address.map(|Extension(ClientAddress(address))| address.to_string())).unwrap_or_default();
    let reload = Arc::clone(&desk.reload);
    let changed = ask(&desk.turn, WITHIN, move || {
        reload.set(&name, value.as_deref(), save, &by)?;
        let row = reload.in_force().into_iter().find(|option| option.key == name && option.app.is_none());
        anyhow::Ok(row.map(|row| json!({ "option": row.key, "value": row.value, "from": row.from })))
    });
    match changed.await {
        Ok(Ok(row)) => answer::json(StatusCode::OK, &row.unwrap_or_default()),
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, &format!("{error:#}")),
        Err(_) => answer::unavailable("it takes too long: look whether it is in force"),
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    answer::json(status, &json!({ "error": why }))
}
