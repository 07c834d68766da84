//! Queries over HTTP.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use moneta_admin::ask::{FairTurn, ask_as};
use moneta_admin::{Right, Role, Route};

use super::Desk;
use super::answer::answered;
use crate::commits::Who;
use crate::error::Refusal;
use crate::query::{Question, TURN_WITHIN, select};

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let state = (desk.clone(), FairTurn::of(1));
    vec![Route::get("/v1/{environment}/query", query, state).needs(Right::Role(Role::Read))]
}

async fn query(
    State((desk, turn)): State<(Desk, FairTurn)>,
    who: Who,
    Path(environment): Path<String>,
    Query(question): Query<Question>,
) -> Response {
    // Expressions take a processor for as long as they may: not the one that answers others.
    let (control, history) = (Arc::clone(&desk.control), desk.history.clone());
    let selected = move || select(&control, history.as_deref(), &environment, question);
    let answer = ask_as(who.asker(), &turn, TURN_WITHIN, selected).await;
    answered(answer.unwrap_or_else(|_| Err(Refusal::unavailable("other queries take their time: ask again"))))
}
