//! Numbers in values: what is one, and what becomes of the item around it.

use moneta_store::request::{Arithmetic, Create, Exptime};
use moneta_store::{Expiry, Number};

use crate::{START, Table, at, seconds};

#[test]
fn a_shorter_number_is_padded_with_spaces_in_place() {
    let table = Table::with("100");
    assert!(matches!(table.decr(95), Number::Value { number: 5, .. }));
    assert_eq!(table.peek().value, b"5  ");
    assert!(matches!(table.incr(2), Number::Value { number: 7, .. }), "a padded number is a number");
    assert!(matches!(table.decr(50), Number::Value { number: 0, .. }), "subtraction stops at nothing");
    assert_eq!(table.peek().value, b"0  ");
    assert!(matches!(table.incr(1000), Number::Value { number: 1000, .. }));
    assert_eq!(table.peek().value, b"1000");
}

#[test]
fn addition_wraps_and_pads_too() {
    let table = Table::with("18446744073709551615");
    assert!(matches!(table.incr(1), Number::Value { number: 0, .. }));
    assert_eq!(table.peek().value, b"0                   ");
}

#[test]
fn leading_zeros_and_what_stands_behind_a_space_are_lost() {
    let table = Table::with("007");
    table.incr(1);
    assert_eq!(table.peek().value, b"8  ");
    let table = Table::with("5 abc");
    table.incr(1);
    assert_eq!(table.peek().value, b"6    ");
}

#[test]
fn a_number_that_stays_in_place_keeps_stale_token_and_fetched() {
    let table = Table::with("50");
    table.read();
    table.invalidate();
    table.read();
    let cas = table.peek().meta.cas;
    assert!(matches!(table.incr(1), Number::Value { meta, created: false, .. } if meta.cas > cas && meta.stale));
    let meta = table.peek().meta;
    assert!(meta.stale && meta.token_sent && meta.fetched);
    assert_eq!((meta.flags, meta.expiry), (7, at(100)));
}

#[test]
fn a_number_that_grows_is_a_fresh_item_with_the_old_flags_and_expiry() {
    let table = Table::with("9");
    table.read();
    table.invalidate();
    table.read();
    table.incr(1);
    let meta = table.peek().meta;
    assert!(!meta.stale && !meta.token_sent && !meta.fetched);
    assert_eq!((meta.flags, meta.expiry), (7, at(100)));
}

#[test]
fn arithmetic_does_not_count_as_a_fetch_and_claims_no_recache() {
    let table = Table::with("50");
    table.invalidate();
    assert!(matches!(table.incr(1), Number::Value { meta, .. } if !meta.won));
    let meta = table.read().meta;
    assert!(!meta.fetched && meta.won);
}

#[test]
fn arithmetic_counts_as_an_access_as_any_write_does() {
    let table = Table::with("50");
    table.clock.advance(5);
    table.incr(1);
    assert_eq!(table.peek().meta.last_access, START + 5);
}

#[test]
fn arithmetic_may_touch_whether_the_number_grows_or_not() {
    let table = Table::with("8");
    for left in [50, 60] {
        let touching = Arithmetic { delta: 1, touch: seconds(left), ..Arithmetic::default() };
        let expected = Expiry::resolve(Exptime(left), START);
        assert!(matches!(table.arithmetic(&touching), Number::Value { meta, .. } if meta.expiry == expected));
        assert_eq!(table.peek().meta.expiry, expected);
    }
}

#[test]
fn a_created_number_is_the_initial_one_untouched() {
    let table = Table::empty();
    let create = Some(Create { initial: 13, exptime: Exptime(30) });
    let request = Arithmetic { delta: 5, create, touch: seconds(60), compare: Some(4), ..Arithmetic::default() };
    let Number::Value { number, meta, created } = table.arithmetic(&request) else { panic!("nothing was created") };
    assert_eq!((number, created, meta.expiry_before, meta.expiry), (13, true, Expiry::NEVER, at(30)));
    assert!(!meta.fetched && !meta.won && !meta.token_sent);
    let again = Arithmetic { compare: Some(table.peek().meta.cas), ..request };
    assert!(matches!(table.arithmetic(&again), Number::Value { number: 18, created: false, .. }));
}

#[test]
fn arithmetic_on_nothing_is_not_found_unless_it_creates() {
    assert_eq!(Table::empty().incr(1), Number::NotFound);
    assert_eq!(Table::empty().arithmetic(&Arithmetic { compare: Some(5), ..Arithmetic::default() }), Number::NotFound);
}

#[test]
fn an_empty_value_is_no_number_before_it_is_compared_and_a_text_after() {
    let other = Arithmetic { compare: Some(u64::MAX), ..Arithmetic::default() };
    assert_eq!(Table::with("").arithmetic(&other), Number::NonNumeric);
    assert_eq!(Table::with("abc").arithmetic(&other), Number::Exists);
    assert_eq!(Table::with("abc").incr(1), Number::NonNumeric);
}
