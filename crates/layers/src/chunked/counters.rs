//! What a chunked store says of itself in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::metric::{Metric, Reading, Sample, Unit, samples};

/// Counters; each is rare, or beside a round trip.
#[derive(Debug, Default)]
pub(super) struct ChunkedCounters {
    pub(super) pieces_read: AtomicU64,
    pub(super) pieces_written: AtomicU64,
    /// Long values of which a piece was gone.
    pub(super) values_broken: AtomicU64,
    /// Entries found that are of an epoch that is over.
    pub(super) entries_outdated: AtomicU64,
    /// Entries found that were not written by this layer.
    pub(super) entries_foreign: AtomicU64,
    /// Changes that waited for another one on the same key.
    pub(super) key_waits: AtomicU64,
}

/// Counts one more.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Epochs are counted where they end.
const EPOCHS_ENDED: Metric = Metric::counter(
    "chunked_epochs_ended_total",
    Unit::Count,
    "Changes whose outcome below is unknown; what their stripe held is not read.",
);

/// The other metrics of a chunked store.
const METRICS: &[Reading<ChunkedCounters>] = &[
    Metric::counter("chunked_pieces_read_total", Unit::Count, "Pieces of long values read.")
        .read(|counters| read(&counters.pieces_read).into()),
    Metric::counter("chunked_pieces_written_total", Unit::Count, "Pieces of long values written.")
        .read(|counters| read(&counters.pieces_written).into()),
    Metric::counter("chunked_values_broken_total", Unit::Count, "Long values not served because a piece was gone.")
        .read(|counters| read(&counters.values_broken).into()),
    Metric::counter("chunked_entries_outdated_total", Unit::Count, "Entries not served because their epoch is over.")
        .read(|counters| read(&counters.entries_outdated).into()),
    Metric::counter(
        "chunked_entries_foreign_total",
        Unit::Count,
        "Entries not served because they are damaged or another program's.",
    )
    .read(|counters| read(&counters.entries_foreign).into()),
    Metric::counter("chunked_key_waits_total", Unit::Count, "Changes that waited for another one on the same key.")
        .read(|counters| read(&counters.key_waits).into()),
];

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The declarations of these metrics.
pub(crate) fn metrics() -> impl Iterator<Item = Metric> {
    std::iter::once(EPOCHS_ENDED).chain(METRICS.iter().map(Reading::metric))
}

impl ChunkedCounters {
    /// All of them. `ended`: epochs ended so far.
    pub(super) fn samples(&self, ended: u64) -> Vec<Sample> {
        let mut all = vec![EPOCHS_ENDED.sample(ended)];
        all.extend(samples(METRICS, self));
        all
    }
}
