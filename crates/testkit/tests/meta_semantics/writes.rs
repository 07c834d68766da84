//! Writes: what they compare, what they keep of the old item, what they make stale.

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Deleted, Lookup, Number, Written};

use crate::{Table, VALUE_MAX, at, seconds};

#[test]
fn for_every_command_an_expired_item_is_no_item() {
    let table = Table::with("5");
    table.clock.advance(100);
    let touch = Retrieve { touch: seconds(50), ..Retrieve::default() };
    assert_eq!(table.get(&touch), Err(Lookup::Miss { expired: true }));
    assert_eq!(table.incr(1), Number::NotFound);
    assert_eq!(table.delete(&Delete { invalidate: true, ..Delete::default() }), Deleted::NotFound);
    assert_eq!(table.set("y", &Write { mode: WriteMode::Append, ..Write::default() }), Written::NotStored);
    assert_eq!(table.set("y", &Write { compare: Some(1), ..Write::default() }), Written::NotFound);
    table.stored("y", &Write { mode: WriteMode::Add, ..Write::default() });
    assert_eq!(table.read().value, b"y");
}

#[test]
fn a_set_or_a_matching_cas_makes_a_stale_item_fresh() {
    for compare in [false, true] {
        let table = Table::with("x");
        table.invalidate();
        let cas = table.read().meta.cas;
        table.stored("y", &Write { compare: compare.then_some(cas), ..Write::default() });
        let meta = table.read().meta;
        assert!(!meta.stale && !meta.token_sent && !meta.won && !meta.fetched);
    }
}

#[test]
fn an_invalidating_set_with_a_lower_cas_stores_a_stale_value_with_the_old_expiry() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    let late = Write { flags: 3, exptime: Exptime(50), compare: Some(cas - 1), invalidate: true, ..Write::default() };
    let new = table.stored("yy", &late);
    let item = table.read();
    assert_eq!((item.value.as_slice(), item.meta.flags, item.meta.cas), (&b"yy"[..], 3, new));
    assert_eq!(item.meta.expiry, at(100));
    assert!(new > cas && item.meta.stale && item.meta.won);
    table.stored("zz", &Write { mode: WriteMode::Replace, ..late });
    let again = table.read().meta;
    assert!(again.stale && again.token_sent && !again.won, "the token once sent stays sent");
}

#[test]
fn an_invalidating_set_with_a_higher_cas_is_refused() {
    let table = Table::with("x");
    let high = Write { compare: Some(u64::MAX), invalidate: true, ..Write::default() };
    assert_eq!(table.set("y", &high), Written::Exists);
    assert_eq!(table.peek().value, b"x");
}

#[test]
fn an_invalidating_set_that_compares_equal_or_not_at_all_is_an_ordinary_set() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    table.stored("y", &Write { compare: Some(cas), invalidate: true, ..Write::default() });
    assert!(!table.read().meta.stale);
    table.stored("z", &Write { invalidate: true, exptime: Exptime(50), ..Write::default() });
    let meta = table.read().meta;
    assert!(!meta.stale);
    assert_eq!(meta.expiry, at(50));
}

#[test]
fn comparing_with_nothing_is_not_found_for_set_and_replace_and_no_obstacle_to_add() {
    let table = Table::empty();
    let compare = |mode| Write { mode, compare: Some(5), ..Write::default() };
    assert_eq!(table.set("x", &compare(WriteMode::Set)), Written::NotFound);
    assert_eq!(table.set("x", &compare(WriteMode::Replace)), Written::NotFound);
    assert_eq!(table.set("x", &compare(WriteMode::Append)), Written::NotStored);
    assert_eq!(table.set("x", &compare(WriteMode::Prepend)), Written::NotStored);
    table.stored("x", &compare(WriteMode::Add));
}

#[test]
fn an_add_on_something_is_not_stored_whatever_it_compares_with() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    for compare in [None, Some(cas), Some(cas + 1)] {
        assert_eq!(table.set("y", &Write { mode: WriteMode::Add, compare, ..Write::default() }), Written::NotStored);
    }
}

#[test]
fn a_replace_that_compares_is_a_compare_and_swap() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    let replace = |compare| Write { mode: WriteMode::Replace, compare: Some(compare), ..Write::default() };
    assert_eq!(table.set("y", &replace(cas + 1)), Written::Exists);
    table.stored("y", &replace(cas));
    assert_eq!(Table::empty().set("y", &Write { mode: WriteMode::Replace, ..Write::default() }), Written::NotStored);
}

#[test]
fn append_and_prepend_keep_flags_and_expiry_and_nothing_else() {
    for (mode, joined) in [(WriteMode::Append, b"xy"), (WriteMode::Prepend, b"yx")] {
        let table = Table::with("x");
        table.read();
        table.invalidate();
        table.read();
        let cas = table.peek().meta.cas;
        let write = Write { mode, flags: 9, exptime: Exptime(5), vivify: seconds(60), ..Write::default() };
        assert!(table.stored("y", &write) > cas);
        let item = table.read();
        assert_eq!((item.value.as_slice(), item.meta.flags, item.meta.expiry), (&joined[..], 7, at(100)));
        assert!(!item.meta.stale && !item.meta.token_sent && !item.meta.won && !item.meta.fetched);
    }
}

#[test]
fn an_append_compares_and_no_lower_cas_gets_it_through() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    let append =
        |compare, invalidate| Write { mode: WriteMode::Append, compare: Some(compare), invalidate, ..Write::default() };
    assert_eq!(table.set("y", &append(cas - 1, false)), Written::Exists);
    assert_eq!(table.set("y", &append(cas - 1, true)), Written::Exists);
    table.stored("y", &append(cas, false));
}

#[test]
fn an_append_to_nothing_creates_only_when_asked_and_with_the_time_asked() {
    let table = Table::empty();
    let append = Write { mode: WriteMode::Append, flags: 5, exptime: Exptime(20), ..Write::default() };
    assert_eq!(table.set("z", &append), Written::NotStored);
    table.stored("z", &Write { vivify: seconds(30), ..append });
    let item = table.read();
    assert_eq!((item.value.as_slice(), item.meta.flags, item.meta.expiry), (&b"z"[..], 5, at(30)));
    assert!(!item.meta.won && !item.meta.token_sent);
}

#[test]
fn an_explicit_cas_value_is_taken_as_it_is() {
    let table = Table::empty();
    assert_eq!(table.stored("1", &Write { new_cas: Some(900), ..Write::default() }), 900);
    assert_eq!(table.peek().meta.cas, 900);
    let explicit = Arithmetic { delta: 1, new_cas: Some(800), ..Arithmetic::default() };
    assert!(matches!(table.arithmetic(&explicit), Number::Value { meta, .. } if meta.cas == 800));
    table.delete(&Delete { invalidate: true, new_cas: Some(700), ..Delete::default() });
    assert_eq!(table.peek().meta.cas, 700);
}

#[test]
fn a_value_too_large_costs_the_one_before_it() {
    let table = Table::with("x");
    let huge = "x".repeat(VALUE_MAX + 1);
    assert_eq!(table.set(&huge, &Write::default()), Written::TooLarge);
    assert!(table.is_empty());
    table.stored(&huge[1..], &Write::default());
}

#[test]
fn an_append_that_would_grow_too_large_leaves_the_item_alone() {
    let table = Table::with("x");
    let rest = "y".repeat(VALUE_MAX);
    let append = Write { mode: WriteMode::Append, ..Write::default() };
    assert_eq!(table.set(&rest, &append), Written::NotStored);
    assert_eq!(table.peek().value, b"x");
    table.stored(&rest[1..], &append);
}
