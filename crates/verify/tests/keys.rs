//! Which keys are compared: a sample, the first ones, those of a file; and with which protocol.

mod support;

use std::io::Write;

use moneta_client::wire::Protocol;
use moneta_net::Address;
use moneta_verify::{Conclusion, Counts, Keys, Kind, Unwatched, Verify, VerifyConfig, VerifyError};
use support::{Server, config, found, item, key, verify};

const KEYS: usize = 10_000;

/// A memcached and a Moneta with the same items; Moneta has as many others.
fn half_equal() -> (Server, Server) {
    let (a, b) = (Server::memcached(), Server::moneta());
    let both = || (0..KEYS).map(|number| item(key(number), "value", 0));
    a.client().plant(both());
    b.client().plant(both());
    b.client().plant((0..KEYS).map(|number| item(format!("extra:{number}"), "value", 0)));
    (a, b)
}

#[test]
fn both_walks_choose_the_same_sample() {
    let (a, b) = half_equal();
    let counts = verify(VerifyConfig { share: 0.2, ..config(&a, &b) }).counts;
    assert_eq!((counts.walked_a, counts.walked_b), (KEYS as u64, 2 * KEYS as u64));
    assert!((1500..2500).contains(&counts.compared), "{counts:?}");
    assert_eq!((counts.equal, counts.only_in_a), (counts.compared, 0));
    assert_eq!(counts.only_in_b + counts.compared, counts.looked_for, "{counts:?}");
    assert!((1500..2500).contains(&counts.only_in_b), "{counts:?}");
}

#[test]
fn only_the_first_keys_are_compared() {
    let (a, b) = half_equal();
    let counts = verify(VerifyConfig { first: Some(100), ..config(&a, &b) }).counts;
    assert_eq!((counts.compared, counts.equal, counts.looked_for), (100, 100, 100));
}

#[test]
fn keys_come_from_a_file() {
    let (a, b) = half_equal();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let keys = [key(1), key(2), "extra:1".into(), "nowhere".into(), "k".repeat(251)];
    file.write_all(keys.join("\n").as_bytes()).expect("written");
    let listed = VerifyConfig { keys: Keys::File(file.path().into()), ..config(&a, &b) };
    let report = verify(listed.clone());
    let expected =
        Counts { compared: 4, equal: 2, different: 1, only_in_b: 1, gone: 1, errors: 1, ..Counts::default() };
    assert_eq!((report.counts, report.conclusion), (expected, Conclusion::Incomplete));
    assert_eq!(report.examples[&Kind::Errors][0].reason.as_deref(), Some("no key has 251 bytes"));

    let report = verify(VerifyConfig { first: Some(2), ..listed });
    assert_eq!((report.counts.compared, report.conclusion), (2, Conclusion::Equal));
}

#[test]
fn keys_come_from_a_dump() {
    let (a, b) = half_equal();
    let dump = b.client().ask("lru_crawler metadump all\r\n", "END\r\n");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(dump.as_bytes()).expect("written");
    let report = verify(VerifyConfig { keys: Keys::File(file.path().into()), ..config(&a, &b) });
    let keys = KEYS as u64;
    let expected = Counts { compared: 2 * keys, equal: keys, different: keys, only_in_b: keys, ..Counts::default() };
    assert_eq!(report.counts, expected);
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let (a, b) = (Server::memcached(), Server::memcached());
    let missing = VerifyConfig { keys: Keys::File("/nonexistent/keys".into()), ..config(&a, &b) };
    let result = Verify::new(missing).run(&Unwatched);
    assert!(matches!(result, Err(VerifyError::Keys { .. })), "{result:?}");
}

#[test]
fn text_tells_all_but_expiry() {
    let (a, b) = (Server::memcached(), Server::memcached());
    a.client().plant([item("equal", "v", 1), item("value", "v", 1), item("flags", "v", 1), item("odd key", "v", 1)]);
    b.client().plant([item("equal", "v", 1), item("value", "w", 1), item("flags", "v", 2), item("odd key", "v", 1)]);
    b.client().ask("touch equal 1000\r\n", "TOUCHED\r\n");
    let report = verify(VerifyConfig { protocol: Some(Protocol::Text), ..config(&a, &b) });
    let expected = Counts { compared: 4, equal: 1, different: 2, value: 1, flags: 1, errors: 1, ..Counts::default() };
    assert_eq!(found(&report), expected);
    assert!(!report.expiry_compared && report.to_string().contains("Expiration times were not compared."));
    assert_eq!(report.a.protocol, "text");
}

#[test]
fn reads_leave_no_trace() {
    for server in [Server::memcached(), Server::moneta()] {
        let other = Server::memcached();
        for server in [&server, &other] {
            server.client().set("untouched", "value");
        }
        let report = verify(config(&server, &other));
        assert_eq!(report.conclusion, Conclusion::Equal);
        for server in [&server, &other] {
            let line = server.client().ask("me untouched\r\n", "\r\n");
            assert!(line.contains(" fetch=no "), "{line}");
        }
    }
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_forever() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("silent");
    let _silent = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let b = Server::memcached();
    let address = Address::Unix(path);
    let timeout = std::time::Duration::from_millis(100);
    let result = Verify::new(VerifyConfig { a: address.into(), timeout, ..config(&b, &b) }).run(&Unwatched);
    let Err(error @ VerifyError::Server { .. }) = result else { panic!("{result:?}") };
    assert!(error.to_string().ends_with("it said nothing for 100ms"), "{error}");
}
