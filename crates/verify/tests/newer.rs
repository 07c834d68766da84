//! Of two Monetas the newer version of each key is right, whichever side has it; what was deleted stays deleted.

mod support;

use moneta_store::Version;
use moneta_verify::{Conclusion, Direction, Kind, Repair, Unwatched, Verify, VerifyConfig, VerifyError};
use support::{Server, config, verify};

const NEWER: Repair = Repair { direction: Direction::Newer, delete_extra: false };

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock that is set").as_millis() as u64
}

/// Stores an item by version, as another copy would.
fn put(server: &Server, key: &str, value: &str, version: Version) {
    let request = format!("ms {key} {} V{}\r\n{value}\r\nmn\r\n", value.len(), version.0);
    assert_eq!(server.client().ask(&request, "MN\r\n"), "HD\r\nMN\r\n", "{key}");
}

fn shown(server: &Server, key: &str) -> String {
    server.client().ask(&format!("mg {key} v V\r\nmn\r\n"), "MN\r\n")
}

#[test]
fn the_newer_version_wins_both_ways_and_what_was_deleted_stays_so() {
    let (a, b) = (Server::moneta(), Server::moneta());
    // Above what both remember of deletes, and not ahead of their clocks.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let version = |number: u64| Version(Version::at(now() - 10).0 + number);
    let [old, new] = [version(1), Version(version(2).0 + 1000)];
    put(&a, "newer-in-a", "new", new);
    put(&b, "newer-in-a", "old", old);
    put(&a, "newer-in-b", "old", old);
    put(&b, "newer-in-b", "new", new);
    put(&a, "only-in-a", "a", old);
    put(&b, "only-in-b", "b", old);
    put(&a, "tied", "one", old);
    put(&b, "tied", "two", old);
    put(&a, "deleted-on-b", "old", old);
    b.client().ask(&format!("md deleted-on-b V{}\r\n", new.0), "NF\r\n");
    put(&b, "deleted-on-a", "old", old);
    a.client().ask(&format!("md deleted-on-a V{}\r\n", new.0), "NF\r\n");

    let report = verify(VerifyConfig { repair: Some(NEWER), ..config(&a, &b) });
    let counts = report.counts;
    assert_eq!((counts.newer_in_a, counts.newer_in_b, counts.same_version), (1, 1, 1), "{report}");
    assert_eq!((counts.different, counts.repaired, counts.unrepaired), (7, 7, 0), "{report}");
    assert_eq!(report.conclusion, Conclusion::Equal);
    for (key, value, version) in
        [("newer-in-a", "new", new), ("newer-in-b", "new", new), ("only-in-a", "a", old), ("only-in-b", "b", old)]
    {
        let expected = format!("VA {} V{}\r\n{value}\r\nMN\r\n", value.len(), version.0);
        assert_eq!((shown(&a, key), shown(&b, key)), (expected.clone(), expected), "{key}");
    }
    assert_eq!(shown(&a, "tied"), shown(&b, "tied"));
    for key in ["deleted-on-a", "deleted-on-b"] {
        assert_eq!((shown(&a, key), shown(&b, key)), ("EN\r\nMN\r\n".into(), "EN\r\nMN\r\n".into()), "{key}");
    }
    assert_eq!(verify(config(&a, &b)).conclusion, Conclusion::Equal);
}

/// A side that has just started may have forgotten the delete of anything older.
#[test]
fn what_may_have_been_deleted_is_not_copied_into_absence() {
    let (a, b) = (Server::moneta(), Server::moneta());
    put(&a, "old", "a", Version::at(now() - 3_600_000));
    a.client().ask("ms chosen 1 E9\r\nx\r\n", "HD\r\n");
    let report = verify(VerifyConfig { repair: Some(NEWER), ..config(&a, &b) });
    assert_eq!((report.counts.only_in_a, report.counts.unrepaired, report.counts.repaired), (2, 2, 0), "{report}");
    let mut reasons: Vec<&str> =
        report.examples[&Kind::Unrepaired].iter().filter_map(|one| one.reason.as_deref()).collect();
    reasons.sort_unstable();
    assert!(reasons[0].starts_with("it is older than what the other side remembers of deletes"), "{reasons:?}");
    assert!(reasons[1].starts_with("what is there has no version"), "{reasons:?}");
    assert_eq!(shown(&b, "old"), "EN\r\nMN\r\n");
}

#[test]
fn a_server_without_versions_is_refused() {
    let (a, b) = (Server::moneta(), Server::memcached());
    let refused = Verify::new(VerifyConfig { repair: Some(NEWER), ..config(&a, &b) }).run(&Unwatched);
    assert!(matches!(refused, Err(VerifyError::Config(why)) if why.contains("know versions")));
    let deleting = Repair { delete_extra: true, ..NEWER };
    let refused = Verify::new(VerifyConfig { repair: Some(deleting), ..config(&a, &a) }).run(&Unwatched);
    assert!(matches!(refused, Err(VerifyError::Config(why)) if why.contains("versions tell")));
}
