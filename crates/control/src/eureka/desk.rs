//! What all pages of Eureka's interface work with.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use moneta_admin::ask::Turn;

use super::registry::Registry;
use crate::control::{Access, Control};
use crate::error::Refusal;

/// What pages work with.
#[derive(Clone)]
pub(super) struct Eureka {
    pub(super) control: Arc<Control>,
    pub(super) access: Arc<dyn Access>,
    pub(super) registry: Arc<Registry>,
    /// Admits one at a time that has everything encoded.
    pub(super) turn: Turn,
}

pub(super) fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, format!("{refusal}\n")).into_response()
}

/// Whether a list of names with commas between them has this one.
pub(super) fn is_named(names: Option<&str>, name: &str) -> bool {
    names.is_some_and(|names| names.split(',').any(|one| one.trim().eq_ignore_ascii_case(name)))
}
