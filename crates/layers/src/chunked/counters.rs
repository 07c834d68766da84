//! What a chunked store says of itself in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::{Figure, FigureKind};

/// Counters; each is rare, or beside a round trip.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) pieces_read: AtomicU64,
    pub(super) pieces_written: AtomicU64,
    /// Long values of which a piece was gone.
    pub(super) values_broken: AtomicU64,
    /// Entries found that are of an epoch that is over.
    pub(super) entries_outdated: AtomicU64,
    /// Entries found that nobody of this kind wrote.
    pub(super) entries_foreign: AtomicU64,
    /// Changes that waited for another one on the same key.
    pub(super) key_waits: AtomicU64,
}

/// Counts one more.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// All of them. `ended`: epochs ended so far.
    pub(super) fn figures(&self, ended: u64) -> Vec<Figure> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let figures = [
            (
                "chunked_epochs_ended_total",
                "Changes whose outcome below is unknown; what their stripe held is not read.",
                ended,
            ),
            ("chunked_pieces_read_total", "Pieces of long values read.", read(&self.pieces_read)),
            ("chunked_pieces_written_total", "Pieces of long values written.", read(&self.pieces_written)),
            (
                "chunked_values_broken_total",
                "Long values not served because a piece was gone.",
                read(&self.values_broken),
            ),
            (
                "chunked_entries_outdated_total",
                "Entries not served because their epoch is over.",
                read(&self.entries_outdated),
            ),
            (
                "chunked_entries_foreign_total",
                "Entries not served because they are damaged or another program's.",
                read(&self.entries_foreign),
            ),
            ("chunked_key_waits_total", "Changes that waited for another one on the same key.", read(&self.key_waits)),
        ];
        let figure = |(name, help, value)| Figure {
            name,
            help,
            kind: FigureKind::Counter,
            labels: Vec::new(),
            value: value as f64,
        };
        figures.into_iter().map(figure).collect()
    }
}
