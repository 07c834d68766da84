//! What an entry of the ledger says.

use moneta_ledger::Entry;
use serde::Deserialize;

/// What an entry says; one that makes no sense is left out, and the log says so.
pub(crate) fn decode<T: for<'de> Deserialize<'de>>(entry: &Entry) -> Option<T> {
    serde_json::from_slice(&entry.value)
        .inspect_err(|error| tracing::error!(key = entry.key, %error, "the ledger has what is not understood"))
        .ok()
}
