//! Flushes, now and later.

use moneta_store::Lookup;
use moneta_store::request::{Retrieve, Write};

use crate::Table;

#[test]
fn a_flush_takes_what_is_there_and_not_what_comes_in_the_same_second() {
    for delay in [0, -1] {
        let table = Table::with("x");
        table.flush(delay);
        assert!(table.is_empty());
        table.stored("y", &Write::default());
        assert_eq!(table.read().value, b"y");
    }
}

#[test]
fn a_delayed_flush_takes_all_that_was_stored_before_its_moment() {
    let table = Table::with("x");
    table.flush(3);
    table.clock.advance(2);
    assert!(!table.is_empty());
    table.stored("stored after the call", &Write::default());
    table.clock.advance(1);
    assert_eq!(table.get(&Retrieve::default()), Err(Lookup::Miss { expired: false }));
    table.stored("y", &Write::default());
    table.clock.advance(10);
    assert_eq!(table.read().value, b"y");
}

#[test]
fn a_later_flush_replaces_one_that_still_waits() {
    let table = Table::empty();
    table.flush(3);
    table.flush(50);
    table.stored("x", &Write::default());
    table.clock.advance(10);
    assert!(!table.is_empty());
    table.flush(0);
    table.stored("y", &Write::default());
    table.clock.advance(100);
    assert_eq!(table.read().value, b"y", "an immediate flush cancels the delayed one");
}
