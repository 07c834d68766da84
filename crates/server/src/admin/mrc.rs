//! The curve of misses over RAM: `GET /mrc`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use moneta_admin::answer;
use moneta_curve::HALF_LIFE;
use serde_json::json;

use super::Shown;
use crate::miss_curve::ITEM_BYTES;

/// The curve as JSON. It names no key, so those who see the metrics may see it.
pub(super) async fn miss_curve(State(shown): State<Arc<Shown>>) -> Response {
    let node = &shown.observed.node;
    node.clock.refresh();
    let page = match node.told_curve() {
        None => json!({ "on": node.keeps_miss_curve() }),
        Some(told) => json!({
            "on": true,
            "sampled_one_in": told.sampled_one_in,
            "half_life_seconds": HALF_LIFE,
            "item_overhead_bytes": ITEM_BYTES,
            "memory_bytes": told.memory,
            "items": told.footprint.0,
            "item_bytes": told.footprint.1,
            "curve": told.curve,
        }),
    };
    answer::json(StatusCode::OK, &page)
}
