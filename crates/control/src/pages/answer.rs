//! Answers of JSON, and bodies of JSON.

use axum::body::Bytes;
use axum::extract::FromRequest;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use moneta_admin::answer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::Refusal;

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer::json(status, &json!({ "error": self.why }))
    }
}

/// A page of JSON, or why there is none.
pub(super) fn answered<T: Serialize>(result: Result<T, Refusal>) -> Response {
    match result.map(|value| serde_json::to_value(value)) {
        Ok(Ok(value)) => answer::json(StatusCode::OK, &value),
        Ok(Err(error)) => Refusal::unavailable(error.to_string()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// The body of a request, within the limit of its page.
pub(crate) struct Body(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Refusal;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Refusal> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::too_large("the body is too long"),
            _ => Refusal::invalid("the body did not arrive"),
        })
    }
}

impl Body {
    /// What it says.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.0)
            .map_err(|error| Refusal::invalid(format!("the body is not understood: {error}")))
    }
}
