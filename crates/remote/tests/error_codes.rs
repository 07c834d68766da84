//! What a node's failures mean to a proxy, in fleets of two builds: the wrong meaning has a proxy eject a node that is well, or ask
//! one for what it does not know.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use common::moneta::{Servers, memory_with};
use common::peer::Peer;
use common::{SEED, finish};
use moneta_client::wire::Protocol;
use moneta_net::Address;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::Retrieve;
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, ErrorCode, ErrorKind, ItemRef, Key, Origin};
use moneta_testkit::suite::SuiteConfig;

/// The lines of a build that knows no codes, word for word, those of this one, and what both mean.
const TABLE: [(ErrorCode, &str, &str, ErrorKind); 4] = [
    (
        ErrorCode::ClockAhead,
        "SERVER_ERROR the version is ahead of this node's clock",
        "SERVER_ERROR [ahead] the version is ahead of this node's clock",
        ErrorKind::ClockAhead,
    ),
    (
        ErrorCode::CatchingUp,
        "SERVER_ERROR this node catches up with other copies",
        "SERVER_ERROR [catching-up] this node catches up with other copies",
        ErrorKind::CatchingUp,
    ),
    (
        ErrorCode::NoVersions,
        "SERVER_ERROR this store keeps no versions",
        "SERVER_ERROR [no-versions] this store keeps no versions",
        ErrorKind::NoVersions,
    ),
    (
        ErrorCode::OverLimit,
        "SERVER_ERROR over the limit of operations a second of this app",
        "SERVER_ERROR [over-limit] over the limit of operations a second of this app",
        ErrorKind::Busy,
    ),
];

/// What this build makes of a line that a node answers with: the kind, and what it tells its client.
fn understood(line: &str) -> (ErrorKind, String) {
    let reply = format!("{line}\r\n");
    let peer = Peer::play(
        Some(Protocol::Meta),
        move |mut visit| {
            while visit.next().is_some() && visit.say(reply.as_bytes()) {}
        },
    );
    let config = RemoteConfig::new(Address::Unix(peer.path()), SEED);
    let store = Remote::new(config, Arc::new(Clock::system())).expect("the configuration makes sense");
    let read = store.get(&Key::new(b"key", SEED), &Retrieve::default(), &mut |_: &ItemRef<'_>| ());
    let error = finish(read).expect_err("the server has refused");
    (error.kind(), error.to_string().replace(&Address::Unix(peer.path()).to_string(), "NODE"))
}

#[test]
fn this_build_understands_nodes_with_and_without_codes() {
    for (code, old, new, kind) in TABLE {
        let sentence = old.strip_prefix("SERVER_ERROR ").expect("it is one");
        // People see no code, whichever build the node is of.
        let told = (kind, format!("NODE: {sentence}"));
        assert_eq!(understood(old), told, "{code:?}");
        assert_eq!(understood(new), told, "{code:?}");
    }
    let other = (ErrorKind::Refused, "NODE failed: no copy answers reads".to_owned());
    assert_eq!(understood("SERVER_ERROR no copy answers reads"), other);
    assert_eq!(understood("SERVER_ERROR [of-a-later-build] no copy answers reads"), other);
}

#[test]
fn sentences_are_those_that_builds_without_codes_compare() {
    for (code, old, ..) in TABLE {
        let words = old.strip_prefix("SERVER_ERROR ").expect("it is one");
        match code {
            ErrorCode::OverLimit => assert!(words.starts_with(code.sentence())),
            _ => assert_eq!(words, code.sentence()),
        }
    }
    assert_eq!(TABLE.map(|(code, ..)| code), ErrorCode::ALL);
}

/// A build without codes, and a client, do not ask for them: they get the sentence alone.
#[test]
fn a_connection_gets_codes_if_it_asks_for_them() {
    let limits = SuiteConfig { memory: 64 << 20, value_max: 1 << 20 };
    let servers = Servers::default();
    let clock = Arc::new(Clock::system());
    let versioning = Versioning { origin: Origin::new(3, 9), ..Versioning::default() };
    let path = servers.serve(memory_with(limits, versioning, Arc::clone(&clock)), limits, clock);
    let talk = |before: &str| {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        let far = u64::MAX >> 1;
        stream.write_all(format!("{before}md k V{far}\r\nquit\r\n").as_bytes()).expect("it reads");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("it answers");
        answers
    };
    let (_, old, new, _) = TABLE[0];
    assert_eq!(talk(""), format!("{old}\r\n"));
    assert_eq!(talk("version wide-times\r\n"), format!("VERSION 1.6.45 wide-times\r\n{old}\r\n"));
    assert_eq!(talk("version error-codes\r\n"), format!("VERSION 1.6.45 error-codes\r\n{new}\r\n"));
}
