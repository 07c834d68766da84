//! A real memcached as a store: the suite as far as each protocol reaches, and what happens when it hangs, dies, comes back.

mod common;

use std::time::Duration;

use common::{Memcached, SEED, config, finish, wait_until};
use moneta_client::wire::Protocol;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Clock, Cursor, Deleted, ErrorKind, ItemRef, Key, Lookup, Number, Put, Walking, Written};
use moneta_testkit::suite::{self, Operation, Options, Payload, SuiteConfig};

const LIMITS: SuiteConfig = SuiteConfig { memory: 64 << 20, value_max: 100 << 10 };

/// What memcached leaves to chance or to settings: whether a number that becomes shorter is filled up with spaces depends on
/// who holds the item; an item may grow by appending beyond the suite's limit; a recache that is wanted just when the item
/// was touched depends on the second; and digits with a space or a zero before or after them are a number, whatever follows.
fn is_certain(operation: &Operation) -> bool {
    match operation {
        Operation::Set { value: value @ Payload::Bytes { length, .. }, request, .. } => {
            let joins = matches!(request.mode, WriteMode::Append | WriteMode::Prepend);
            let fits = *length < if joins { 1000 } else { 60 << 10 } || (!joins && *length > LIMITS.value_max);
            let is_like_a_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | 0 | b'\t'..=b'\r' | b' ');
            fits && !value.bytes().first().is_some_and(is_like_a_number)
        }
        Operation::Set { value: Payload::Text(text), .. } => {
            !text.contains(' ') && !text.starts_with("00") && text != "18446744073709551615"
        }
        Operation::Arithmetic { request, .. } => {
            !request.decrement && request.delta <= 1000 && request.create.is_none_or(|create| create.initial <= 1000)
        }
        Operation::Get { request, .. } => request.recache.is_none_or(|exptime| (0..2_000_000).contains(&exptime.0)),
        // Its list of keys leaves out what moves between its queues meanwhile.
        Operation::WalkOn | Operation::WalkAll => false,
        _ => true,
    }
}

/// memcached 1.6.18 lets no client choose CAS values (`E`), empty an item (`x`) or create one by appending (`N`), and
/// touches the old item instead of the new when a number becomes longer. Without `E`, giving back the recache of a
/// stale item changes its CAS value, so nothing is marked as stale either.
fn meta_of_1_6_18(operation: &Operation) -> bool {
    is_certain(operation)
        && match operation {
            Operation::Get { request, .. } => request.new_cas.is_none(),
            Operation::Set { request, .. } => {
                request.new_cas.is_none() && !request.invalidate && request.vivify.is_none()
            }
            Operation::Delete { request, .. } => {
                request.new_cas.is_none() && !request.drop_value && !request.invalidate
            }
            Operation::Arithmetic { request, .. } => request.new_cas.is_none() && request.touch.is_none(),
            _ => true,
        }
}

/// What both older protocols have a form for.
fn binary(operation: &Operation) -> bool {
    meta_of_1_6_18(operation)
        && match operation {
            Operation::Get { request, .. } => request.vivify.is_none() && request.recache.is_none() && request.bump,
            _ => true,
        }
}

fn text(operation: &Operation) -> bool {
    binary(operation)
        && match operation {
            Operation::Set { request, compare, .. } => {
                compare.is_none() || matches!(request.mode, WriteMode::Set | WriteMode::Replace | WriteMode::Add)
            }
            Operation::Delete { compare, .. } | Operation::Arithmetic { compare, .. } => compare.is_none(),
            _ => true,
        }
}

fn real_time() -> Options {
    Options::exact()
        .config(LIMITS)
        .versions_unknown()
        .real_time()
        .last_access_slack(60)
        .expiry_slack(60)
        .rounds(4)
        .operations(1500)
}

/// With one thread, and none that tends its queues, no thread holds an item while another request is at it: one that is held is
/// not counted on in place, and the new item that takes its place has lost its marks.
const NOBODY_HOLDS_ITEMS: [&str; 4] = ["-t", "1", "-o", "no_lru_maintainer"];

/// Each sequence begins with an empty memcached.
fn run_suite(protocol: Protocol, options: Options) {
    let memcached = Memcached::start(&NOBODY_HOLDS_ITEMS);
    let make = |limits: SuiteConfig, clock| {
        let config = RemoteConfig { protocol: Some(protocol), item_max: limits.value_max, ..config(memcached.path()) };
        let store = Remote::new(config, clock).expect("the configuration makes sense");
        finish(store.flush(Default::default())).expect("memcached answers");
        store
    };
    suite::run(make, options);
}

#[test]
fn over_meta_it_does_what_the_model_does() {
    run_suite(Protocol::Meta, real_time().asks(meta_of_1_6_18).bare_numbers().fetched_slack().items_estimated());
}

#[test]
fn over_binary_it_does_what_the_model_does() {
    run_suite(Protocol::Binary, real_time().asks(binary).bare_items());
}

#[test]
fn over_text_it_does_what_the_model_does() {
    run_suite(Protocol::Text, real_time().asks(text).bare_items().plain_keys());
}

fn key(text: &str) -> Key<'_> {
    Key::new(text.as_bytes(), SEED)
}

fn get(store: &Remote, name: &str) -> Result<Lookup, ErrorKind> {
    finish(store.get(&key(name), &Retrieve::default(), &mut |_: &ItemRef<'_>| ())).map_err(|error| error.kind())
}

fn set(store: &Remote, name: &str, value: &str) -> Result<Written, ErrorKind> {
    finish(store.set(&key(name), value.as_bytes(), &Write::default())).map_err(|error| error.kind())
}

fn remote(config: RemoteConfig) -> Remote {
    common::remote(config)
}

#[test]
fn the_best_protocol_is_found_out() {
    for (options, expected) in [(&[][..], Protocol::Meta), (&["-B", "binary"][..], Protocol::Binary)] {
        let memcached = Memcached::start(options);
        let store = remote(config(memcached.path()));
        assert!(matches!(set(&store, "a", "1"), Ok(Written::Stored { cas: 1.. })));
        assert!(matches!(get(&store, "a"), Ok(Lookup::Found(item)) if item.value == b"1"));
        assert_eq!(store.dialect().map(|dialect| dialect.protocol), Some(expected));
    }
}

#[test]
fn what_a_protocol_has_no_form_for_is_refused_and_nothing_else_disturbed() {
    let memcached = Memcached::start(&[]);
    for protocol in [Protocol::Text, Protocol::Binary] {
        let store = remote(RemoteConfig { protocol: Some(protocol), ..config(memcached.path()) });
        let invalidate = Delete { invalidate: true, ..Delete::default() };
        let kind = finish(store.delete(&key("a"), &invalidate)).expect_err("text and binary know no marks").kind();
        assert_eq!(kind, ErrorKind::Unsupported);
        let unseen = Retrieve { bump: false, ..Retrieve::default() };
        let read = finish(store.get(&key("a"), &unseen, &mut |_: &ItemRef<'_>| ()));
        assert_eq!(read.expect_err("every read counts").kind(), ErrorKind::Unsupported);
        assert!(set(&store, "a", "1").is_ok());
    }
    let store = remote(config(memcached.path()));
    let chosen = Write { new_cas: Some(77), ..Write::default() };
    let kind = finish(store.set(&key("a"), b"2", &chosen)).err().map(|error| error.kind());
    let knows = store.dialect().is_some_and(|dialect| dialect.explicit_cas);
    assert_eq!(kind, (!knows).then_some(ErrorKind::Unsupported));
}

#[test]
fn errors_of_the_server_are_told_by_what_they_mean() {
    let memcached = Memcached::start(&["-M"]);
    for protocol in [Protocol::Meta, Protocol::Text, Protocol::Binary] {
        let store = remote(RemoteConfig { protocol: Some(protocol), item_max: 4 << 20, ..config(memcached.path()) });
        finish(store.flush(Default::default())).expect("memcached answers");
        assert!(set(&store, "a", "1").is_ok());
        let large = "x".repeat(2 << 20);
        assert_eq!(set(&store, "a", &large), Ok(Written::TooLarge), "{protocol:?}");
        assert_eq!(get(&store, "a"), Ok(Lookup::Miss { expired: false }), "the old value is gone");
        assert!(set(&store, "a", "abc").is_ok());
        let count = finish(store.arithmetic(&key("a"), &Arithmetic { delta: 1, ..Arithmetic::default() }));
        assert_eq!(count.expect("memcached answers"), Number::NonNumeric);
        assert_eq!(
            finish(store.delete(&key("none"), &Delete::default())).expect("memcached answers"),
            Deleted::NotFound
        );
        let value = "y".repeat(90 << 10);
        let full = (0..2000)
            .map(|number| set(&store, &format!("fill{number}"), &value))
            .find(|end| !matches!(end, Ok(Written::Stored { .. })));
        assert_eq!(full, Some(Ok(Written::OutOfMemory)), "{protocol:?}");
    }
}

#[test]
fn a_restart_heals_by_itself() {
    let mut memcached = Memcached::start(&[]);
    let store = remote(config(memcached.path()));
    assert!(set(&store, "a", "1").is_ok());
    memcached.kill();
    let kind = wait_for_error(&store);
    assert_eq!(kind, ErrorKind::Unreachable);
    wait_until("the store says so", || store.health().unready);
    memcached.run();
    wait_until("the store finds it again", || !store.health().unready);
    assert_eq!(get(&store, "a"), Ok(Lookup::Miss { expired: false }));
    assert!(matches!(set(&store, "a", "2"), Ok(Written::Stored { .. })));
}

/// Without requests, a restart is not even noticed.
#[test]
fn a_restart_between_two_requests_costs_none_of_them() {
    let mut memcached = Memcached::start(&[]);
    let store = remote(config(memcached.path()));
    for round in 0..3 {
        assert!(matches!(set(&store, "a", "1"), Ok(Written::Stored { .. })), "round {round}");
        assert!(matches!(get(&store, "a"), Ok(Lookup::Found(_))), "round {round}");
        memcached.kill();
        memcached.run();
        wait_until("it is up", || !store.health().unready);
        assert_eq!(get(&store, "a"), Ok(Lookup::Miss { expired: false }), "round {round}");
    }
}

fn wait_for_error(store: &Remote) -> ErrorKind {
    let mut kind = None;
    wait_until("requests fail", || {
        kind = get(store, "a").err();
        kind.is_some()
    });
    kind.expect("it was waited for")
}

#[test]
fn a_hung_server_costs_a_bounded_wait_and_then_none() {
    let memcached = Memcached::start(&[]);
    let config = RemoteConfig {
        request_timeout: Duration::from_millis(300).into(),
        timeouts_max: 2,
        ..config(memcached.path())
    };
    let store = remote(config);
    wait_until("it answers", || set(&store, "a", "1").is_ok());
    memcached.process().stop();
    assert_eq!(get(&store, "a").err(), Some(ErrorKind::Timeout));
    wait_until("it is taken for dead", || {
        let _ = get(&store, "a");
        store.health().unready
    });
    assert_eq!(get(&store, "a"), Err(ErrorKind::Unreachable));
    memcached.process().cont();
    wait_until("requests succeed again", || matches!(get(&store, "a"), Ok(Lookup::Found(item)) if item.value == b"1"));
    assert!(!store.health().unready);
}

#[test]
fn a_walk_shows_everything_and_may_be_left() {
    let memcached = Memcached::start(&["-o", "no_lru_maintainer"]);
    let store = remote(config(memcached.path()));
    for number in 0..1500 {
        set(&store, &format!("key {number}"), &"x".repeat(number % 50)).expect("memcached answers");
    }
    let mut lengths = std::collections::HashMap::new();
    let mut cursor = Cursor::default();
    loop {
        let walking = store.walk(&mut cursor, &mut |item| {
            lengths.insert(String::from_utf8(item.key.to_vec()).expect("keys are text"), item.value_bytes);
        });
        match walking {
            Walking::More => {}
            Walking::End => break,
            Walking::Wait(pending) => common::wait_for(pending).expect("memcached answers"),
        }
    }
    assert_eq!(lengths.len(), 1500);
    assert!((0..1500).all(|number| lengths[&format!("key {number}")] == number % 50));
    // Left at once, it holds up no other client.
    let mut cursor = Cursor::default();
    if let Walking::Wait(pending) = store.walk(&mut cursor, &mut |_| ()) {
        drop(pending);
    }
    drop(cursor);
    assert!(get(&store, "key 1").is_ok());
}

#[test]
fn whole_items_are_installed_with_their_marks() {
    let memcached = Memcached::start(&[]);
    let store = remote(config(memcached.path()));
    let now = Clock::system().now();
    set(&store, "probe", "").expect("memcached answers");
    for (stale, token_sent) in [(false, false), (true, false), (false, true), (true, true)] {
        for expiry in [0, now + 1000] {
            let meta = moneta_store::ItemMeta {
                flags: 9,
                expiry: moneta_store::Expiry(expiry),
                stale,
                token_sent,
                ..Default::default()
            };
            let item = moneta_store::Item { meta, value: b"value".to_vec().into() };
            let written = finish(store.put(&key("item"), &item.as_ref(), Put::Any));
            assert!(matches!(written, Ok(Written::Stored { .. })), "{written:?}");
            let Ok(Lookup::Found(found)) = finish(store.peek(&key("item"), &mut |_: &ItemRef<'_>| ())) else {
                panic!("gone")
            };
            assert_eq!((found.meta.stale, found.meta.token_sent, found.meta.flags), (stale, token_sent, 9));
            assert!(found.meta.expiry.0.abs_diff(expiry) <= 60, "{:?} for {expiry}", found.meta.expiry);
            assert_eq!(found.value, b"value");
        }
    }
}
