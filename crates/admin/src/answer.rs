//! Answers that many pages give.

use std::fmt;
use std::sync::Arc;

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

/// The answer to requests for pages that are not there: by default 404.
#[derive(Clone, Default)]
pub struct Missing(Option<Arc<dyn Fn() -> Option<Response> + Send + Sync>>);

impl Missing {
    /// Answers what `answer` says, which must not wait; 404 where it says nothing.
    pub fn new(answer: impl Fn() -> Option<Response> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(answer)))
    }

    pub(crate) fn answer(&self) -> Response {
        self.0.as_ref().and_then(|answer| answer()).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
    }
}

impl fmt::Debug for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Missing")
    }
}
