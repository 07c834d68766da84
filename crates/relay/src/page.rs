//! The page of a relay: what it reads, how far it is, and what did not cross.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use moneta_admin::Route;
use moneta_feed::GapCause;
use serde_json::{Map, Value, json};

use crate::apply::Refusal;
use crate::config::Mode;
use crate::counts::of;
use crate::relay::Relay;
use crate::view::RelayShared;

/// Where the page is.
pub const PATH: &str = "/relay";

/// The page. `more`: what other parts have to say on it, under their names.
pub fn route(relay: &Arc<Relay>, more: impl Fn() -> Map<String, Value> + Send + Sync + 'static) -> Route {
    let (relay, more) = (Arc::clone(relay), Arc::new(more));
    Route::get(
        PATH,
        move |State(relay): State<Arc<Relay>>| {
            let mut page = shown(&relay.shared);
            page.extend(more());
            ready(([(CONTENT_TYPE, "application/json")], Value::Object(page).to_string()))
        },
        relay,
    )
}

/// The numbers of the page at `/`.
pub fn numbers(relay: &Arc<Relay>) -> Route {
    Route::get(
        "/vitals",
        |State(relay): State<Arc<Relay>>| {
            ready(([(CONTENT_TYPE, "application/json")], json!({ "tiles": relay.shared.tiles() }).to_string()))
        },
        Arc::clone(relay),
    )
}

impl RelayShared {
    /// Each with its title, its unit, and a value, or a total of which the growth is shown.
    fn tiles(&self) -> Value {
        let counts = &self.counts;
        let sum = |all: &[AtomicU64]| all.iter().map(of).sum::<u64>();
        // Nothing was read yet: there is no lag to tell.
        let lag = (self.whole() > 0).then(|| u64::try_from(self.lag().as_millis()).unwrap_or(u64::MAX));
        json!([
            { "title": "lag", "unit": "ms", "value": lag },
            { "title": "changes read", "unit": "count", "total": of(&counts.read) },
            { "title": "bytes read", "unit": "bytes", "total": of(&counts.bytes) },
            { "title": "changes taken", "unit": "count", "total": of(&counts.taken) },
            { "title": "under way", "unit": "count", "value": counts.under_way() },
            { "title": "refused", "unit": "count", "value": sum(&counts.refused) },
            { "title": "gaps", "unit": "count", "value": sum(&counts.gaps) },
            { "title": "other copies taken", "unit": "count", "value": of(&counts.switches) },
        ])
    }
}

impl Relay {
    /// How far it is, for those who follow the fleet.
    pub fn vitals(&self) -> Value {
        let shared = &self.shared;
        json!({
            "from": shared.config.region,
            "whole": shared.whole(),
            "lag_ms": u64::try_from(shared.lag().as_millis()).unwrap_or(u64::MAX),
            "lag_changes": shared.lag_changes(),
            "under_way": shared.counts.under_way(),
            "up": shared.is_up(),
            "shares": shared.view.lock().shares.iter().map(|share| share.number).collect::<Vec<_>>(),
        })
    }
}

fn shown(shared: &RelayShared) -> Map<String, Value> {
    shared.clock.refresh();
    let now = shared.clock.millis();
    let (config, counts) = (&shared.config, &shared.counts);
    let view = shared.view.lock();
    let streams: Vec<Value> = view
        .streams
        .iter()
        .map(|stream| {
            let watermark = stream.state.watermark.load(Ordering::Relaxed);
            json!({
                "share": stream.share.to_string(),
                "slot": stream.slot,
                "address": stream.address.to_string(),
                "whole": watermark,
                "lag_ms": now.saturating_sub(watermark),
                "lag_changes": stream.state.behind(),
                "rate": stream.rate.get(),
                "failing": stream.state.trouble().map(|(why, since)| json!({"why": why, "seconds": since.as_secs()})),
            })
        })
        .collect();
    let mut page = Map::new();
    page.insert("app".into(), config.app.clone().into());
    page.insert("region".into(), config.region.into());
    page.insert("mode".into(), if config.mode == Mode::Full { "full" } else { "invalidate" }.into());
    page.insert("flush".into(), if config.flush { "relay" } else { "off" }.into());
    page.insert("copy".into(), view.copy.clone().into());
    page.insert("epoch".into(), view.epoch.into());
    page.insert("streams".into(), streams.into());
    page.insert("progress_failure".into(), json!(view.unkept));
    page.insert("shares".into(), view.shares.iter().map(ToString::to_string).collect());
    page.insert("lease_failure".into(), json!(view.unleased));
    let partitions = shared.topic.as_ref().map(|topic| topic.partitions());
    page.insert("partitions".into(), json!(partitions));
    page.insert("topic_failure".into(), json!(shared.topic_failure()));
    drop(view);
    page.insert("whole".into(), shared.whole().into());
    page.insert("lag_ms".into(), json!(u64::try_from(shared.lag().as_millis()).unwrap_or(u64::MAX)));
    page.insert("lag_changes".into(), json!(shared.lag_changes()));
    page.insert("under_way".into(), counts.under_way().into());
    let refused: Map<String, Value> =
        Refusal::ALL.map(|one| (one.word().to_owned(), of(&counts.refused[one as usize]).into())).into_iter().collect();
    let done = json!({
        "read": of(&counts.read),
        "bytes": of(&counts.bytes),
        "taken": of(&counts.taken),
        "superseded": of(&counts.superseded),
        "outdated": of(&counts.outdated),
        "unsure": of(&counts.unsure),
        "retries": of(&counts.retries),
        "refused": refused,
        "flushes_left_out": of(&counts.flushes_left_out),
        "rolled_back_left_out": of(&counts.rolled_back),
        "switches": of(&counts.switches),
    });
    page.insert("changes".into(), done);
    let gaps: Vec<Value> = shared
        .gaps
        .lock()
        .iter()
        .map(|gap| json!({"since": gap.since, "until": gap.until, "cause": gap.cause.map(GapCause::word)}))
        .collect();
    page.insert("gaps".into(), gaps.into());
    if let Some(probe) = &shared.probe {
        page.insert("probe".into(), json!(probe.report()));
    }
    page
}
