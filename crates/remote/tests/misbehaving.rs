//! Servers that hang, lie, stutter and go: what a request may come to then. The one thing that must never happen is that a
//! request gets another one's reply; every value here says whose it is.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::peer::{AskedRequest, Peer, Visit};
use common::{SEED, finish, wait_until};
use moneta_client::wire::Protocol;
use moneta_net::Address;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::{Retrieve, Write};
use moneta_store::{Calls, Clock, ErrorKind, ItemRef, Key, Lookup, Step, StoreError, Written};

fn impatient(peer: &Peer) -> RemoteConfig {
    RemoteConfig {
        request_timeout: Duration::from_millis(250).into(),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        timeouts_max: 1000,
        item_max: 1 << 20,
        ..RemoteConfig::new(Address::Unix(peer.path()), SEED)
    }
}

fn remote(config: RemoteConfig) -> Remote {
    Remote::new(config, Arc::new(Clock::system())).expect("the configuration makes sense")
}

fn begin(store: &Remote, key: &str) -> Step<Lookup> {
    store.get(&Key::new(key.as_bytes(), SEED), &Retrieve::default(), &mut |_: &ItemRef<'_>| ())
}

fn get(store: &Remote, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    finish(begin(store, key)).map(|lookup| match lookup {
        Lookup::Found(item) => Some(item.value.into_vec()),
        _ => None,
    })
}

fn set(store: &Remote, key: &str, value: &[u8]) -> Result<Written, StoreError> {
    finish(store.set(&Key::new(key.as_bytes(), SEED), value, &Write::default()))
}

fn value_of(key: &str) -> Vec<u8> {
    format!("the value of {key}, ").repeat(1 + key.len() % 7).into_bytes()
}

/// Answers reads, most of them; what else it does follows from `dice`.
fn unreliable(mut visit: Visit, dice: &AtomicU64) {
    let mut rng = fastrand::Rng::with_seed(dice.fetch_add(1, Ordering::Relaxed));
    while let Some(asked) = visit.next() {
        let reply = asked.hit(&value_of(&asked.key));
        let going_on = match rng.u32(0..1500) {
            // The reply never comes, but those after it do.
            0..8 => true,
            // Half of it, and then the end.
            8..12 => {
                visit.say(&reply[..rng.usize(0..reply.len())]);
                false
            }
            12..16 => visit.say(b"\x00\xffVA 3 rubbish\r\n") && visit.say(&reply),
            16..18 => false,
            // Twice.
            18..22 => visit.say(&reply) && visit.say(&reply),
            // Late, maybe after everybody has gone.
            22..26 => {
                std::thread::sleep(Duration::from_millis(rng.u64(200..400)));
                visit.say(&reply)
            }
            26..200 => {
                let (front, back) = reply.split_at(rng.usize(0..reply.len()));
                visit.say(front) && {
                    std::thread::yield_now();
                    visit.say(back)
                }
            }
            _ => visit.say(&reply),
        };
        if !going_on {
            return;
        }
    }
}

fn no_client_gets_the_reply_of_another(protocol: Protocol) {
    let dice = AtomicU64::new(moneta_testkit::suite::seed());
    let peer = Peer::play(Some(protocol), move |visit| unreliable(visit, &dice));
    let store = remote(RemoteConfig { connections: 2, ..impatient(&peer) });
    let (hits, errors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, hits, errors) = (&store, &hits, &errors);
            scope.spawn(move || {
                for round in 0..60 {
                    // Batches: begun together, so that much is in flight when something goes wrong.
                    let keys: Vec<String> = (0..25).map(|number| format!("key:{thread}:{round}:{number}")).collect();
                    let steps: Vec<_> = keys.iter().map(|key| begin(store, key)).collect();
                    for (number, (key, step)) in keys.iter().zip(steps).enumerate() {
                        // Some are given up.
                        if number % 10 == 9 {
                            drop(step);
                            continue;
                        }
                        match finish(step) {
                            Ok(Lookup::Found(item)) => {
                                assert_eq!(item.value, value_of(key), "{key} has another's value");
                                hits.fetch_add(1, Ordering::Relaxed);
                            }
                            Ok(other) => panic!("{key}: {other:?}, though every key has a value"),
                            Err(error) => {
                                let kind = error.kind();
                                assert!(
                                    matches!(kind, ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::Unreachable),
                                    "{error}"
                                );
                                errors.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
    });
    let (hits, errors) = (hits.into_inner(), errors.into_inner());
    assert!(hits > 0 && errors > 0, "{hits} hits and {errors} errors: nothing is shown without both");
}

#[test]
fn no_client_gets_the_reply_of_another_over_meta() {
    no_client_gets_the_reply_of_another(Protocol::Meta);
}

#[test]
fn no_client_gets_the_reply_of_another_over_text() {
    no_client_gets_the_reply_of_another(Protocol::Text);
}

#[test]
fn a_server_that_hangs_is_taken_for_dead_until_it_answers() {
    let awake = Arc::new(AtomicBool::new(true));
    let theirs = Arc::clone(&awake);
    // Its kernel accepts connections all the time.
    let peer = Peer::play(None, move |mut visit| {
        let probe = std::iter::from_fn(|| visit.next()).take(5).count();
        if probe < 5 || !theirs.load(Ordering::SeqCst) {
            return std::thread::sleep(Duration::from_secs(1));
        }
        visit.say(b"VERSION 1.6.45\r\nMN\r\nEN\r\nERROR\r\nVERSION 1.6.45\r\n");
        while let Some(asked) = visit.next() {
            if theirs.load(Ordering::SeqCst) {
                visit.say(&asked.hit(b"here"));
            }
        }
    });
    let store = remote(RemoteConfig { timeouts_max: 3, ..impatient(&peer) });
    // In time, which a busy machine may take several attempts for.
    wait_until("it answers", || get(&store, "a").is_ok_and(|value| value == Some(b"here".to_vec())));
    assert!(!store.health().unready);

    awake.store(false, Ordering::SeqCst);
    assert_eq!(get(&store, "a").expect_err("it hangs").kind(), ErrorKind::Timeout);
    wait_until("the server is taken for dead", || {
        let _ = get(&store, "a");
        store.health().unready
    });
    assert_eq!(get(&store, "a").expect_err("it is dead").kind(), ErrorKind::Unreachable);
    let notes = store.health().notes;
    assert!(notes.len() == 1 && notes[0].contains("does not answer"), "{notes:?}");

    awake.store(true, Ordering::SeqCst);
    wait_until("the server is found again without a request", || !store.health().unready);
    wait_until("requests succeed again", || get(&store, "a").is_ok());
}

#[test]
fn what_the_server_says_at_connecting_may_be_anything() {
    let refusals: [&[u8]; 4] =
        [b"ERROR Too many open connections\r\n", b"\x00\x01\x02", b"HTTP/1.1 400 Bad\r\n\r\n", b""];
    for refusal in refusals {
        let peer = Peer::play(None, move |mut visit| {
            visit.say(refusal);
        });
        let store = remote(RemoteConfig { timeouts_max: 2, ..impatient(&peer) });
        assert!(get(&store, "a").is_err());
        wait_until("it is taken for dead", || {
            let _ = get(&store, "a");
            store.health().unready
        });
    }
}

#[test]
fn a_value_over_the_limit_costs_its_own_request_only() {
    let peer = Peer::play(Some(Protocol::Meta), |mut visit| {
        while let Some(asked) = visit.next() {
            let size = if asked.key == "large" { 3 << 20 } else { 10 };
            visit.say(&asked.hit(&vec![b'x'; size]));
        }
    });
    let store = remote(RemoteConfig { request_timeout: Duration::from_secs(20).into(), ..impatient(&peer) });
    for _ in 0..3 {
        let steps: Vec<_> = ["small", "large", "other"].map(|key| begin(&store, key)).into();
        let ends: Vec<_> = steps.into_iter().map(finish).collect();
        assert!(matches!(&ends[0], Ok(Lookup::Found(item)) if item.value.len() == 10), "{:?}", ends[0]);
        assert_eq!(ends[1].as_ref().expect_err("it is too large").kind(), ErrorKind::Unsupported);
        assert!(matches!(&ends[2], Ok(Lookup::Found(item)) if item.value.len() == 10), "{:?}", ends[2]);
    }
    assert_eq!(peer.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn what_was_given_up_takes_its_reply_along() {
    let peer = Peer::play(Some(Protocol::Meta), |mut visit| {
        while let Some(asked) = visit.next() {
            visit.say(&asked.hit(&value_of(&asked.key)));
        }
    });
    let store = remote(RemoteConfig { request_timeout: Duration::from_secs(20).into(), ..impatient(&peer) });
    for round in 0..500 {
        let given_up: Vec<_> =
            (0..3).map(|number| begin(&store, &format!("given up {round} {number}").replace(' ', "-"))).collect();
        drop(given_up);
        let key = format!("kept-{round}");
        assert_eq!(get(&store, &key).expect("the server is well"), Some(value_of(&key)));
    }
    assert_eq!(peer.connections.load(Ordering::SeqCst), 1);
}

/// What a server was given under each key.
type Kept = Arc<Mutex<HashMap<String, Vec<Vec<u8>>>>>;

/// A server that closes its first connection after so many requests, says so, and keeps what it is given.
fn closing_peer(after: usize) -> (Peer, Kept, Arc<AtomicBool>) {
    let (kept, closed) = (Kept::default(), Arc::new(AtomicBool::new(false)));
    let (theirs, their_closed) = (Arc::clone(&kept), Arc::clone(&closed));
    let peer = Peer::play(Some(Protocol::Meta), move |mut visit| {
        let answered = if visit.number == 0 { after } else { usize::MAX };
        for _ in 0..answered {
            let Some(asked) = visit.next() else { return };
            let AskedRequest { command, key, value, .. } = &asked;
            let reply = match command.as_str() {
                "ms" => {
                    theirs.lock().expect("no thread panicked").entry(key.clone()).or_default().push(value.clone());
                    asked.stored()
                }
                _ => asked.hit(&value_of(key)),
            };
            visit.say(&reply);
        }
        drop(visit);
        their_closed.store(true, Ordering::SeqCst);
    });
    (peer, kept, closed)
}

#[test]
fn a_connection_that_the_server_closed_while_idle_costs_no_request() {
    let (peer, kept, closed) = closing_peer(1);
    let store = remote(RemoteConfig { request_timeout: Duration::from_secs(20).into(), ..impatient(&peer) });
    assert_eq!(get(&store, "first").expect("it answers"), Some(value_of("first")));
    // Nothing of what follows can have been sent over the connection that is closed.
    wait_until("it is closed", || closed.load(Ordering::SeqCst));
    assert!(matches!(set(&store, "second", b"2"), Ok(Written::Stored { .. })));
    assert_eq!(get(&store, "third").expect("it answers"), Some(value_of("third")));
    assert_eq!(kept.lock().expect("no thread panicked").get("second"), Some(&vec![b"2".to_vec()]));
    assert_eq!(peer.connections.load(Ordering::SeqCst), 2);
}

/// Requests that reach a connection before it is closed: reads are asked again, writes fail, for they may have been done.
#[test]
fn a_connection_that_is_closed_instead_of_a_reply_fails_writes_and_repeats_reads() {
    for (command, succeeds) in [("mg", true), ("ms", false)] {
        let peer = Peer::play(Some(Protocol::Meta), move |mut visit| {
            while let Some(asked) = visit.next() {
                if visit.number == 0 && asked.key == "closing" {
                    return;
                }
                let reply = if asked.command == "ms" { asked.stored() } else { asked.hit(b"here") };
                visit.say(&reply);
            }
        });
        let store = remote(RemoteConfig { request_timeout: Duration::from_secs(20).into(), ..impatient(&peer) });
        assert_eq!(get(&store, "first").expect("it answers"), Some(b"here".to_vec()));
        let ended = match command {
            "mg" => get(&store, "closing").map(drop),
            _ => set(&store, "closing", b"x").map(drop),
        };
        assert_eq!(ended.as_ref().map_err(StoreError::kind), if succeeds { Ok(&()) } else { Err(ErrorKind::Lost) });
        assert_eq!(get(&store, "first").expect("it answers"), Some(b"here".to_vec()));
    }
}

#[test]
fn over_the_limit_of_requests_in_flight_one_more_fails_at_once() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&may_answer);
    let peer = Peer::play(Some(Protocol::Meta), move |mut visit| {
        // Answers nothing before those that are too many have failed.
        let asked: Vec<AskedRequest> = std::iter::from_fn(|| visit.next()).take(10).collect();
        wait_until("it may answer", || theirs.load(Ordering::SeqCst));
        asked.iter().for_each(|asked| _ = visit.say(&asked.hit(b"here")));
        while let Some(asked) = visit.next() {
            visit.say(&asked.hit(b"here"));
        }
    });
    let config =
        RemoteConfig { in_flight_max: 10, request_timeout: Duration::from_secs(20).into(), ..impatient(&peer) };
    let store = remote(config);
    let mut within: Vec<_> = (0..15).map(|number| begin(&store, &format!("key{number}"))).collect();
    for over in within.split_off(10) {
        assert_eq!(finish(over).expect_err("ten are in flight").kind(), ErrorKind::Busy);
    }
    may_answer.store(true, Ordering::SeqCst);
    assert!(within.into_iter().all(|step| finish(step).is_ok()));
    assert!(get(&store, "later").is_ok());
}
