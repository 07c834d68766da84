//! Deletes, and the items that some of them leave.

use moneta_store::request::Delete;
use moneta_store::{Deleted, Expiry};

use crate::{Table, at, seconds};

#[test]
fn an_invalidated_item_keeps_its_value_and_time_and_gets_a_new_cas_value() {
    let table = Table::with("x");
    let before = table.read().meta;
    table.invalidate();
    let item = table.peek();
    assert_eq!(item.value, b"x");
    assert!(item.meta.cas > before.cas);
    assert_eq!((item.meta.flags, item.meta.expiry, item.meta.fetched), (7, at(100), true));
}

#[test]
fn the_first_reader_of_a_stale_item_wins_and_the_others_are_told() {
    let table = Table::with("x");
    table.invalidate();
    let first = table.read().meta;
    assert!(first.stale && first.won && !first.token_sent);
    let second = table.read().meta;
    assert!(second.stale && !second.won && second.token_sent);
}

#[test]
fn invalidating_again_lets_another_reader_win() {
    let table = Table::with("x");
    table.invalidate();
    assert!(table.read().meta.won);
    table.invalidate();
    assert!(table.read().meta.won);
}

#[test]
fn an_invalidation_may_set_the_time_left_to_live() {
    let table = Table::with("x");
    table.delete(&Delete { invalidate: true, touch: seconds(20), ..Delete::default() });
    assert_eq!(table.peek().meta.expiry, at(20));
    table.delete(&Delete { invalidate: true, touch: seconds(-1), ..Delete::default() });
    assert!(table.is_empty());
}

#[test]
fn a_time_to_live_alone_does_not_keep_a_deleted_item() {
    let table = Table::with("x");
    table.delete(&Delete { touch: seconds(20), ..Delete::default() });
    assert!(table.is_empty());
}

#[test]
fn deletes_of_every_kind_compare_first() {
    let table = Table::with("x");
    let cas = table.peek().meta.cas;
    for (invalidate, drop_value) in [(false, false), (true, false), (false, true), (true, true)] {
        let other = Delete { compare: Some(cas + 1), invalidate, drop_value, ..Delete::default() };
        assert_eq!(table.delete(&other), Deleted::Exists);
    }
    assert_eq!(table.peek().meta.cas, cas);
    assert_eq!(table.delete(&Delete { compare: Some(cas), ..Delete::default() }), Deleted::Deleted);
    assert!(table.is_empty());
}

#[test]
fn a_dropped_value_leaves_an_empty_item_under_the_old_cas_value() {
    let table = Table::with("xyz");
    let cas = table.read().meta.cas;
    table.delete(&Delete { drop_value: true, ..Delete::default() });
    let item = table.peek();
    assert!(item.value.is_empty());
    assert_eq!((item.meta.flags, item.meta.cas, item.meta.expiry), (0, cas, Expiry::NEVER));
    assert!(!item.meta.stale && !item.meta.token_sent && !item.meta.fetched);
}

#[test]
fn a_dropped_value_takes_a_new_time_to_live_and_an_explicit_cas_value() {
    let table = Table::with("xyz");
    table.delete(&Delete { drop_value: true, touch: seconds(20), new_cas: Some(500), ..Delete::default() });
    let meta = table.peek().meta;
    assert_eq!((meta.cas, meta.expiry), (500, at(20)));
}

#[test]
fn a_dropped_and_invalidated_item_is_stale_under_a_new_cas_value() {
    let table = Table::with("xyz");
    let cas = table.read().meta.cas;
    table.delete(&Delete { drop_value: true, invalidate: true, ..Delete::default() });
    let item = table.read();
    assert!(item.value.is_empty() && item.meta.stale && item.meta.won);
    assert!(item.meta.cas > cas);
    assert_eq!(item.meta.expiry, Expiry::NEVER);
}
