//! What a server shows on the desk of its process ([`moneta_process::desk`]): metrics, health, statistics, the feed.
//!
//! Calls to the store run on helper threads for a bounded time.

mod changes;
mod digest;
mod hot;
mod key;
mod metrics;
mod mrc;
pub(crate) mod observed;
mod pages;
mod slow;
mod snapshot;
mod vitals;

use std::sync::Arc;

use moneta_admin::{Places, Right, Route, Turn};
use moneta_process::Desk;
use moneta_store::metric::{Metric, Reading};

use crate::certificates;
use crate::counters;
use crate::listener_state;
use crate::secret_ends;
use observed::Observed;

/// Answers from the feed that are made at once.
const FEEDS: usize = 4;

/// The declarations of the metrics of every server, those of its process and its store aside.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let of_counters = counters::METRICS.iter().map(Reading::metric);
    let of_listeners = listener_state::METRICS.iter().map(Reading::metric);
    let of_certificates = certificates::METRICS.iter().map(Reading::metric);
    let all = metrics::TABLE.iter().map(Reading::metric).chain(of_counters).chain(of_certificates);
    let of_secrets = secret_ends::METRICS.iter().map(Reading::metric);
    all.chain(of_listeners).chain(of_secrets).chain([metrics::APP_LIMITS])
}

/// What the pages of a server ask.
#[derive(Debug)]
struct Shown {
    observed: Arc<Observed>,
    /// Admits one request at a time that asks for statistics.
    statistics: Turn,
    /// Admits one request at a time that asks for vitals, and what earlier ones have seen.
    vitals: Turn,
    looks: vitals::Looks,
    /// Admits a few requests at a time that read the feed.
    feed: Turn,
    /// Admits one request at a time that walks all items.
    walks: Turn,
}

/// Shows a server on the desk.
pub(crate) fn show(observed: &Arc<Observed>, desk: &Desk) {
    let shown = Arc::new(Shown {
        observed: Arc::clone(observed),
        statistics: Turn::of(1),
        vitals: Turn::of(1),
        looks: vitals::Looks::default(),
        feed: Turn::of(FEEDS),
        walks: Turn::of(1),
    });
    let shown = || Arc::clone(&shown);
    let pages = [
        Route::get("/stats", pages::stats, shown()),
        Route::get("/proxy", pages::proxy, shown()),
        Route::get("/changes", changes::changes, shown()).in_places(Places::Feed).needs(Right::Replicate),
        Route::get("/vitals", vitals::vitals, shown()),
        Route::get("/regions", vitals::regions, shown()),
        Route::post("/digest", digest::digest, shown())
            .in_places(Places::Feed)
            .needs(Right::Replicate)
            .with_body(digest::REQUEST_MAX),
        Route::get("/key", key::key, shown()).needs(Right::List).needs_where(Right::Values, key::shows_value),
        Route::get("/hotkeys", hot::hot_keys, shown()).needs(Right::List),
        Route::get("/mrc", mrc::miss_curve, shown()),
        Route::get("/slowlog", slow::slow_log, shown()).needs(Right::List),
        Route::get("/feed/readers", changes::readers, shown()),
    ];
    desk.show(Arc::<Observed>::clone(observed), pages);
}
