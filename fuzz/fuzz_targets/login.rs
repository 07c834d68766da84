//! Any bytes, cut anywhere, to a session that wants a log-in, in text or by SASL: without the password nothing is shown or
//! changed, a stranger is given little room, and what is answered does not depend on the cuts. Of the first byte one bit says
//! which log-in, one whether few attempts are left; the second byte says how long the pieces are.
#![no_main]

mod common;

use common::{Client, ITEM_MAX, Turn, depends_on_cuts, has, worker};
use libfuzzer_sys::fuzz_target;
use moneta_server::auth::{AuthMode, Authenticator, Users};
use moneta_server::node::NodeSettings;
use moneta_server::session::{After, Worker};
use moneta_store::request::Write;
use moneta_store::{Calls, Key, Store};
use moneta_testkit::model::ModelStore;

/// Most bytes that a session may ask of a client that has not logged in: a line and as much of a password, or a packet of SASL.
const STRANGER_MAX: usize = 8 * 1024;
/// What a key holds from the start.
const TREASURE: &[u8] = b"treasure";

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
struct End {
    answers: Vec<u8>,
    after: After,
    is_barred: bool,
    log_ins: u64,
}

fn log_ins(worker: &Worker) -> u64 {
    worker.counters.auth_cmds.get() - worker.counters.auth_errors.get()
}

fn talk(mode: AuthMode, login_attempts: u32, input: &[u8], piece: usize) -> End {
    let users = Users::parse(b"ann:secret\nbob:pass word\n").expect("they are in order");
    let settings = NodeSettings { login_attempts, ..NodeSettings::default() };
    let worker = worker(settings, Authenticator::new(mode, users), |clock| ModelStore::new(clock, ITEM_MAX));
    let stored = worker.store.set(&Key::new(b"k", worker.store.seed()), TREASURE, &Write::default()).now();
    assert!(stored.is_ok());
    let mut client = Client::new(input, piece);
    client.session.opened(&worker);
    loop {
        let turn = client.turn(&worker);
        if log_ins(&worker) == 0 {
            assert!(!has(&client.answers, TREASURE), "a stranger is shown an item");
            let stats = worker.store.stats();
            assert_eq!((stats.items, stats.total_items), (1, 1), "a stranger changes something");
            assert!(client.needed <= STRANGER_MAX, "a stranger is asked for {} bytes", client.needed);
        }
        match turn {
            Turn::GoesOn => {}
            Turn::Waits => panic!("stalls"),
            Turn::Over => break,
        }
    }
    let failures = worker.counters.auth_errors.get();
    assert!(failures <= u64::from(login_attempts), "{failures} attempts of {login_attempts}");
    End {
        is_barred: client.session.is_barred(),
        answers: client.answers,
        after: client.after,
        log_ins: log_ins(&worker),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([options, piece], input)) = data.split_first_chunk() else { return };
    let mode = if options & 1 == 0 { AuthMode::Text } else { AuthMode::Sasl };
    let attempts = if options & 2 == 0 { 5 } else { 1 };
    let cut = talk(mode, attempts, input, usize::from(*piece).max(1));
    if !depends_on_cuts(input) {
        assert_eq!(cut, talk(mode, attempts, input, usize::MAX / 2), "the cuts show");
    }
});
