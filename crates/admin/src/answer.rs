//! Answers that many pages give.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A page of JSON.
pub fn json(status: StatusCode, page: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{page}\n")).into_response()
}

/// The answer of what cannot be told now: status 503 and the reason.
pub fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
