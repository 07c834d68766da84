//! What maintenance does once an interval: it makes writes durable, removes expired items, and raises the sequence floor.

use std::panic::{AssertUnwindSafe, catch_unwind};

use moneta_store::offload::answer;
use moneta_store::{Key, OwnedOp};

use crate::database::Database;
use crate::error::Failure;
use crate::inner::Inner;
use crate::queue::Request;

/// Keys in doubt that are tried again at each turn.
const UNTRUSTED: usize = 1000;

/// A part of a turn.
type Part<D> = fn(&Inner<D>) -> Result<(), Failure>;

/// Does all tasks of an interval even if some fail or panic; returns the first error.
pub(crate) fn turn<D: Database>(inner: &Inner<D>) -> Result<(), Failure> {
    let parts: [Part<D>; 4] = [
        |inner| inner.shared.settle(),
        |inner| inner.shared.renew_sequence(),
        |inner| inner.database.maintain(),
        settle_untrusted,
    ];
    let ended = parts.map(|part| {
        let panicked = |_| Err(Failure::Broken("a part of maintenance panicked".into()));
        catch_unwind(AssertUnwindSafe(|| part(inner))).unwrap_or_else(panicked)
    });
    ended.into_iter().collect()
}

/// Has the writers remove what they could not: the library, or a part of it, may work again.
fn settle_untrusted<D: Database>(inner: &Inner<D>) -> Result<(), Failure> {
    if inner.shared.untrusted.all() {
        inner.shared.untrusted.flush_begins();
        inner.shared.empty()?;
        inner.shared.untrusted.flush_ended();
    }
    for key in inner.shared.untrusted.some(UNTRUSTED) {
        let key = Key::new(&key, inner.shared.seed());
        // No request waits for the outcome; if it fails, the key stays in doubt.
        let (answer, _) = answer();
        inner.ask(&key, Request::new(&key, OwnedOp::Drop, answer));
    }
    Ok(())
}
