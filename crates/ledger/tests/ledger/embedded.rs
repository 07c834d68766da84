//! The promises of a ledger, on the embedded one.

use std::sync::Arc;

use moneta_ledger::{Embedded, Ledger};
use tempfile::TempDir;

fn made() -> (Arc<dyn Ledger>, TempDir) {
    let directory = TempDir::new().expect("a temporary folder");
    let ledger = Embedded::open(directory.path()).expect("it opens");
    (Arc::new(ledger), directory)
}

crate::conformance!(made());

#[test]
fn random_operations_do_what_a_map_does() {
    crate::suite::model::run(made);
}
