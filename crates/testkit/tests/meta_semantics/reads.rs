//! Reads: what they show, touch, create and win.

use moneta_store::request::{Retrieve, Write};
use moneta_store::{Expiry, Lookup};

use crate::{START, Table, at, seconds};

#[test]
fn a_read_shows_the_item_as_it_was_before_the_read() {
    let table = Table::with("x");
    table.clock.advance(2);
    let first = table.read().meta;
    assert_eq!((first.fetched, first.last_access), (false, START));
    table.clock.advance(3);
    let second = table.read().meta;
    assert_eq!((second.fetched, second.last_access), (true, START + 2));
}

#[test]
fn a_read_that_does_not_count_still_touches_and_still_wins() {
    let table = Table::with("x");
    table.invalidate();
    table.clock.advance(2);
    let quiet = Retrieve { bump: false, touch: seconds(50), ..Retrieve::default() };
    assert!(table.get(&quiet).unwrap().meta.won);
    let meta = table.read().meta;
    assert_eq!((meta.fetched, meta.last_access, meta.expiry), (false, START, at(52)));
    assert!(meta.token_sent && !meta.won);
}

#[test]
fn a_touch_changes_the_expiry_and_leaves_the_cas_value() {
    let table = Table::with("x");
    let before = table.peek().meta;
    let meta = table.get(&Retrieve { touch: seconds(50), ..Retrieve::default() }).unwrap().meta;
    assert_eq!((meta.expiry_before, meta.expiry, meta.cas), (at(100), at(50), before.cas));
}

#[test]
fn a_touch_into_the_past_shows_the_item_a_last_time() {
    let table = Table::with("x");
    let last = table.get(&Retrieve { touch: seconds(-1), ..Retrieve::default() }).unwrap();
    assert_eq!(last.value, b"x");
    assert!(table.is_empty());
}

#[test]
fn an_item_lives_until_the_second_it_expires_in() {
    let table = Table::with("x");
    table.clock.advance(99);
    assert!(!table.is_empty());
    table.clock.advance(1);
    assert_eq!(table.get(&Retrieve::default()), Err(Lookup::Miss { expired: true }));
}

#[test]
fn a_vivifying_read_creates_an_empty_item_and_wins_it() {
    let table = Table::empty();
    let vivify = Retrieve { vivify: seconds(30), new_cas: Some(77), ..Retrieve::default() };
    let first = table.get(&vivify).unwrap();
    assert!(first.value.is_empty());
    assert!(first.meta.won && !first.meta.token_sent && !first.meta.stale && !first.meta.fetched);
    assert_eq!((first.meta.cas, first.meta.expiry_before, first.meta.expiry), (77, Expiry::NEVER, at(30)));
    let second = table.get(&vivify).unwrap().meta;
    assert!(second.token_sent && !second.won && !second.stale);
}

#[test]
fn the_creating_read_counts_as_a_fetch_itself() {
    let table = Table::empty();
    table.get(&Retrieve { vivify: seconds(30), ..Retrieve::default() }).unwrap();
    assert!(table.read().meta.fetched);
    let table = Table::empty();
    table.get(&Retrieve { vivify: seconds(30), bump: false, ..Retrieve::default() }).unwrap();
    assert!(!table.read().meta.fetched, "unless the read is one that does not count");
}

#[test]
fn a_creating_read_takes_the_time_to_live_of_its_vivify_and_not_of_its_touch() {
    let table = Table::empty();
    let both = Retrieve { vivify: seconds(30), touch: seconds(60), ..Retrieve::default() };
    assert_eq!(table.get(&both).unwrap().meta.expiry, at(30));
    assert_eq!(table.get(&both).unwrap().meta.expiry, at(60));
}

#[test]
fn an_item_vivified_into_the_past_is_shown_once() {
    let table = Table::empty();
    let vivify = Retrieve { vivify: seconds(-1), ..Retrieve::default() };
    assert!(table.get(&vivify).unwrap().meta.won);
    assert!(table.is_empty());
    assert!(table.get(&vivify).unwrap().meta.won);
}

#[test]
fn one_reader_wins_the_recache_when_less_than_asked_is_left_to_live() {
    let table = Table::with("x");
    let recache = |left| Retrieve { recache: seconds(left), ..Retrieve::default() };
    assert!(!table.get(&recache(100)).unwrap().meta.won);
    let winner = table.get(&recache(101)).unwrap().meta;
    assert!(winner.won && !winner.token_sent && !winner.stale);
    let loser = table.get(&recache(101)).unwrap().meta;
    assert!(!loser.won && loser.token_sent);
    assert!(table.read().meta.token_sent);
}

#[test]
fn no_client_wins_an_item_that_never_expires_or_with_no_time_asked() {
    let table = Table::with("x");
    for left in [0, -1] {
        assert!(!table.get(&Retrieve { recache: seconds(left), ..Retrieve::default() }).unwrap().meta.won);
    }
    table.stored("x", &Write::default());
    assert!(!table.get(&Retrieve { recache: seconds(1000), ..Retrieve::default() }).unwrap().meta.won);
}

#[test]
fn the_recache_is_judged_before_the_same_read_touches() {
    let table = Table::with("x");
    let both = Retrieve { recache: seconds(101), touch: seconds(500), ..Retrieve::default() };
    assert!(table.get(&both).unwrap().meta.won);
}

#[test]
fn a_look_leaves_no_trace() {
    let table = Table::with("x");
    table.invalidate();
    table.clock.advance(5);
    let first = table.peek();
    assert!(!first.meta.won && !first.meta.token_sent);
    assert_eq!(table.peek(), first);
    assert!(table.read().meta.won);
}

#[test]
fn a_classic_read_leaves_the_recache_of_a_stale_item_to_a_meta_read() {
    let table = Table::with("old");
    table.invalidate();
    assert!(!table.classic_get(&Retrieve::default()).unwrap().meta.won);
    assert!(table.read().meta.won);
}
