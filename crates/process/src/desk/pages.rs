//! Metrics and readiness.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use moneta_admin::answer::{self, unavailable};
use moneta_admin::ask::{Unanswered, ask};
use moneta_admin::format::Format;
use moneta_admin::render;
use serde_json::json;

use super::life::{self, Life, NO_ANSWER, Readiness};
use super::metrics as of_process;

/// Time limit of the parts' metrics: less than the ten seconds that Prometheus waits for a scrape.
const METRICS_WITHIN: Duration = Duration::from_secs(8);

/// Metrics for Prometheus, in the text format that is asked for.
pub(super) async fn metrics(State(life): State<Arc<Life>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::preferred(&accept.join(","));
    let parts = match life.parts() {
        Ok(parts) => parts,
        Err(doing) => return unavailable(&doing),
    };
    let asked = Arc::clone(&life);
    let told = move || {
        let mut all = of_process::samples(&asked, asked.is_ready(&life::health(&parts)));
        all.extend(life::samples(&parts));
        render::text(all)
    };
    match ask(&life.metrics, METRICS_WITHIN, told).await {
        Ok(Ok(text)) => {
            let head = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
            (head, format.of(text)).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(Unanswered) => unavailable(NO_ANSWER),
    }
}

/// Whether the process is ready for clients, or why not, and what its parts say of themselves.
pub(super) async fn readyz(State(life): State<Arc<Life>>) -> Response {
    let parts = life.parts().unwrap_or_default();
    let Readiness { is_ready, phase, notes } = life.readiness().await;
    let mut page = json!({ "ready": is_ready, "phase": phase, "notes": notes });
    if let Some(fields) = page.as_object_mut().filter(|_| !parts.is_empty()) {
        fields.insert("degraded".into(), (is_ready && !notes.is_empty()).into());
        fields.extend(parts.iter().flat_map(|part| part.facts()));
    }
    answer::json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &page)
}
