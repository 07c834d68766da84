//! What a chunked store says of itself in numbers.

use moneta_store::Counter;
use moneta_store::metric::{Metric, Reading, Sample, Unit, samples};

/// Counters; each is rare, or beside a round trip.
#[derive(Debug, Default)]
pub(super) struct ChunkedCounters {
    pub(super) pieces_read: Counter,
    pub(super) pieces_written: Counter,
    /// Long values of which a piece was gone.
    pub(super) values_broken: Counter,
    /// Entries found that are of an epoch that is over.
    pub(super) entries_outdated: Counter,
    /// Entries found that were not written by this layer.
    pub(super) entries_foreign: Counter,
    /// Changes that waited for another one on the same key.
    pub(super) key_waits: Counter,
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
        .read(|counters| counters.pieces_read.get().into()),
    Metric::counter("chunked_pieces_written_total", Unit::Count, "Pieces of long values written.")
        .read(|counters| counters.pieces_written.get().into()),
    Metric::counter("chunked_values_broken_total", Unit::Count, "Long values not served because a piece was gone.")
        .read(|counters| counters.values_broken.get().into()),
    Metric::counter("chunked_entries_outdated_total", Unit::Count, "Entries not served because their epoch is over.")
        .read(|counters| counters.entries_outdated.get().into()),
    Metric::counter(
        "chunked_entries_foreign_total",
        Unit::Count,
        "Entries not served because they are damaged or another program's.",
    )
    .read(|counters| counters.entries_foreign.get().into()),
    Metric::counter("chunked_key_waits_total", Unit::Count, "Changes that waited for another one on the same key.")
        .read(|counters| counters.key_waits.get().into()),
];

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
