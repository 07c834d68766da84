//! Statistics, and the nodes of a proxy.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use moneta_admin::answer::{self, unavailable};
use moneta_admin::ask::{Unanswered, ask};

use super::Shown;
use crate::stats::StatisticValue;

/// Time limit of statistics.
const NUMBERS_WITHIN: Duration = Duration::from_secs(8);

/// The output of the `stats` command as one JSON object with the same keys.
pub(super) async fn stats(State(shown): State<Arc<Shown>>) -> Response {
    let observed = Arc::clone(&shown.observed);
    observed.node.clock.refresh();
    let Ok(told) = ask(&shown.statistics, NUMBERS_WITHIN, move || observed.statistics()).await else {
        return unavailable(NO_ANSWER);
    };
    let page: serde_json::Map<_, _> = told.into_iter().map(|(name, told)| (name.into_owned(), told.into())).collect();
    answer::json(StatusCode::OK, &page.into())
}

/// The nodes of a proxy and how they are; not there on other servers.
pub(super) async fn proxy(State(shown): State<Arc<Shown>>) -> Response {
    let Some(routes) = shown.observed.node.routes() else {
        return (StatusCode::NOT_FOUND, "this server is no proxy\n").into_response();
    };
    match ask(&shown.statistics, NUMBERS_WITHIN, move || routes.status()).await {
        Ok(page) => answer::json(StatusCode::OK, &page),
        Err(Unanswered) => unavailable(NO_ANSWER),
    }
}

/// The answer if the store hangs.
const NO_ANSWER: &str = "the store does not answer";

/// Numbers as JSON numbers, so that tools can calculate with them.
impl From<StatisticValue> for serde_json::Value {
    fn from(told: StatisticValue) -> Self {
        match told {
            StatisticValue::Number(number) => number.into(),
            StatisticValue::Text(text) => text.into(),
        }
    }
}
