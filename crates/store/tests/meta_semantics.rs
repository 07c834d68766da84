//! The truth table of the commands whose corners no manual spells out, as sentences about the model that every store is
//! compared with.
//!
//! Guards against the silent kind of incompatibility: two stores that agree with each other and not with memcached. Seen on
//! a live memcached 1.6.18; explicit CAS values (meta `E`), dropped values (`md x`) and vivifying appends (`ms MA N`), which
//! that version lacks, as 1.6.45 has them.

use std::sync::Arc;

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Clock, Deleted, Expiry, Item, ItemRef, Key, Lookup, Number, Store, Written};

const START: u32 = 1_000_000_000;
const VALUE_MAX: usize = 1000;

/// A model under a clock that only the test moves, with one key to play on.
struct Table {
    clock: Arc<Clock>,
    store: ModelStore,
}

fn key() -> Key<'static> {
    Key::new(b"k", 0)
}

fn seconds(count: i64) -> Option<Exptime> {
    Some(Exptime(count))
}

fn at(seconds: u32) -> Expiry {
    Expiry(START + seconds)
}

impl Table {
    fn empty() -> Self {
        let clock = Arc::new(Clock::manual(START));
        Self { store: ModelStore::new(Arc::clone(&clock), VALUE_MAX), clock }
    }

    /// `ms k <value> T100 F7`.
    fn with(value: &str) -> Self {
        let table = Self::empty();
        table.stored(value, &Write { flags: 7, exptime: Exptime(100), ..Write::default() });
        table
    }

    fn set(&self, value: &str, request: &Write) -> Written {
        self.store.set(&key(), value.as_bytes(), request).now().unwrap()
    }

    fn stored(&self, value: &str, request: &Write) -> u64 {
        match self.set(value, request) {
            Written::Stored { cas } => cas,
            other => panic!("expected to store, got {other:?}"),
        }
    }

    fn get(&self, request: &Retrieve) -> Result<Item, Lookup> {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item { meta: item.meta, value: item.value.to_vec() });
        let lookup = self.store.get(&key(), request, &mut visitor).now().unwrap();
        seen.ok_or(lookup)
    }

    /// `mg k` with everything it can show.
    fn read(&self) -> Item {
        self.get(&Retrieve::default()).expect("something to read")
    }

    fn peek(&self) -> Item {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item { meta: item.meta, value: item.value.to_vec() });
        let lookup = self.store.peek(&key(), &mut visitor).now().unwrap();
        seen.unwrap_or_else(|| panic!("something to see, not {lookup:?}"))
    }

    fn is_empty(&self) -> bool {
        matches!(self.get(&Retrieve { bump: false, ..Retrieve::default() }), Err(Lookup::Miss { .. }))
    }

    fn delete(&self, request: &Delete) -> Deleted {
        self.store.delete(&key(), request).now().unwrap()
    }

    /// `md k I`.
    fn invalidate(&self) {
        assert_eq!(self.delete(&Delete { invalidate: true, ..Delete::default() }), Deleted::Deleted);
    }

    fn arithmetic(&self, request: &Arithmetic) -> Number {
        self.store.arithmetic(&key(), request).now().unwrap()
    }

    fn incr(&self, delta: u64) -> Number {
        self.arithmetic(&Arithmetic { delta, ..Arithmetic::default() })
    }

    fn decr(&self, delta: u64) -> Number {
        self.arithmetic(&Arithmetic { delta, decrement: true, ..Arithmetic::default() })
    }

    fn flush(&self, delay: i64) {
        self.store.flush(Exptime(delay)).now().unwrap();
    }
}

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
fn nobody_wins_an_item_that_never_expires_or_with_no_time_asked() {
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
