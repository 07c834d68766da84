//! Repairs make both sides equal; what cannot be repaired is reported.

mod support;

use moneta_client::wire::Protocol;
use moneta_verify::{
    Conclusion, Counts, Direction, Keys, Kind, Observer, Phase, Repair, Unwatched, Verify, VerifyConfig, VerifyError,
};
use support::{Planted, Server, config, found, item, key, verify};

const A_TO_B: Repair = Repair { direction: Direction::AToB, delete_extra: true };
const KEYS: usize = 5_000;
/// 60 days: longer than what a server takes as relative.
const LONG: i64 = 86_400 * 60;

/// Fills both sides with differences of all kinds; a fifth of the keys is equal.
fn plant(a: &Server, b: &Server) {
    let items = |salt: usize| {
        (0..KEYS).filter_map(move |number| {
            let ttl = [0, 3000, LONG][number % 3];
            let same = Planted { ttl, ..item(key(number), format!("value {number}"), number as u32) };
            match number % 5 {
                0 => Some(same),
                1 => (number / 5 % 2 == salt).then_some(same),
                2 => Some(Planted { value: format!("value of {salt}").into(), ..same }),
                3 => Some(Planted { flags: salt as u32, ..same }),
                _ => Some(Planted { ttl: 10_000 + 1000 * salt as i64, ..same }),
            }
        })
    };
    a.client().plant(items(0));
    b.client().plant(items(1));
}

fn repairs_all(a: &Server, b: &Server, direction: Direction) {
    plant(a, b);
    let repairing = VerifyConfig { repair: Some(Repair { direction, ..A_TO_B }), tolerance: 30, ..config(a, b) };
    let report = verify(repairing.clone());
    let counts = report.counts;
    assert_eq!(counts.different, KEYS as u64 / 5 * 4);
    assert_eq!(
        (counts.repaired, counts.unrepaired),
        (counts.different, 0),
        "{:?}",
        report.examples.get(&Kind::Unrepaired)
    );
    assert_eq!(report.conclusion, Conclusion::Equal);

    let again = verify(VerifyConfig { repair: None, ..repairing });
    let left = KEYS as u64 / 10 * 9;
    assert_eq!(found(&again), Counts { compared: left, equal: left, ..Counts::default() });
    // The target has become like the source, not the other way round.
    let (source, target) = if direction == Direction::AToB { (0, b) } else { (1, a) };
    let line =
        target.client().ask("mg key:000002 v\r\n", "\r\nvalue of 0\r\n".replace('0', &source.to_string()).as_str());
    assert!(line.starts_with("VA 10"), "{line}");
}

#[test]
fn from_memcached_to_moneta_and_back() {
    let (a, b) = (Server::memcached(), Server::moneta());
    repairs_all(&a, &b, Direction::AToB);
}

#[test]
fn from_moneta_to_memcached() {
    let (a, b) = (Server::memcached(), Server::moneta());
    repairs_all(&a, &b, Direction::BToA);
}

#[test]
fn what_only_the_target_has_stays_unless_asked() {
    let (a, b) = (Server::memcached(), Server::moneta());
    a.client().set("a", "1");
    b.client().set("b", "1");
    let keep = Repair { delete_extra: false, ..A_TO_B };
    let report = verify(VerifyConfig { repair: Some(keep), ..config(&a, &b) });
    let expected = Counts {
        compared: 1,
        different: 2,
        only_in_a: 1,
        only_in_b: 1,
        repaired: 1,
        unrepaired: 1,
        ..Counts::default()
    };
    assert_eq!((found(&report), report.conclusion), (expected, Conclusion::Different));
    assert_eq!(report.examples[&Kind::Unrepaired][0].key, "b");
    b.client().ask("mg b v\r\n", "VA 1\r\n1\r\n");
}

#[test]
fn odd_keys_and_large_values_are_copied() {
    let (a, b) = (Server::moneta(), Server::memcached());
    let large: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    let mut items: Vec<Planted> = (0..30).map(|number| item(key(number), &large, 9)).collect();
    items.extend([item(b"\x00 \xff", b"\r\n", 1), item("empty", "", 2), item("k".repeat(250), "v", 3)]);
    a.client().plant(items);
    let report = verify(VerifyConfig { repair: Some(A_TO_B), ..config(&a, &b) });
    assert_eq!((report.counts.repaired, report.conclusion), (33, Conclusion::Equal));
    let again = verify(config(&a, &b));
    assert_eq!(found(&again), Counts { compared: 33, equal: 33, ..Counts::default() });
}

#[test]
fn what_cannot_be_stored_is_reported() {
    let (a, b) = (Server::moneta(), Server::memcached());
    a.client().set("large", vec![b'x'; (2 << 20) - 10]);
    a.client().set("small", "x");
    let report = verify(VerifyConfig { repair: Some(A_TO_B), ..config(&a, &b) });
    assert_eq!((report.counts.repaired, report.counts.unrepaired), (1, 1), "{report}");
    let example = &report.examples[&Kind::Unrepaired][0];
    assert_eq!((example.key.as_str(), report.conclusion), ("large", Conclusion::Different));
    assert_eq!(example.reason.as_deref(), Some("the value is larger than the server takes"));
}

#[test]
fn nothing_is_copied_from_a_server_that_tells_no_expiry() {
    let (a, b) = (Server::memcached(), Server::memcached());
    a.client().set("a", "1");
    let text = Some(Protocol::Text);
    let report = verify(VerifyConfig { repair: Some(A_TO_B), protocol: text, ..config(&a, &b) });
    assert_eq!((report.counts.repaired, report.counts.unrepaired), (0, 1));
    let reason = report.examples[&Kind::Unrepaired][0].reason.as_deref();
    assert_eq!(reason, Some("the source does not tell when the item expires"));
}

/// What a server that was restarted lists is nothing: a copy of it would empty the other one.
#[test]
fn an_empty_source_deletes_nothing_unless_told() {
    for direction in [Direction::AToB, Direction::BToA] {
        let (full, empty) = (Server::moneta(), Server::memcached());
        full.client().set("key", "value");
        let (a, b) = if direction == Direction::AToB { (&empty, &full) } else { (&full, &empty) };
        let keys = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(keys.path(), "key\n").expect("it can be written");
        for keys in [Keys::Walked, Keys::File(keys.path().to_owned())] {
            let config = VerifyConfig { repair: Some(Repair { direction, ..A_TO_B }), keys, ..config(a, b) };
            let refused = Verify::new(config.clone()).run(&Unwatched);
            let is_refused =
                matches!(&refused, Err(VerifyError::EmptySource { side, .. }) if Some(*side) == direction.source());
            assert!(is_refused, "{direction:?} {:?}: {refused:?}", config.keys);
            full.client().ask("mg key v\r\n", "VA 5\r\nvalue\r\n");

            let report = verify(VerifyConfig { allow_empty_source: true, ..config });
            assert_eq!((report.counts.repaired, report.conclusion), (1, Conclusion::Equal), "{report}");
            full.client().ask("mg key v\r\n", "EN\r\n");
            full.client().set("key", "value");
        }
    }
}

/// Deletes a key from a server when both sides were compared and repaired.
struct Loses<'a>(&'a Server, &'static str);

impl Observer for Loses<'_> {
    fn phase(&self, phase: Phase) {
        if let Phase::LookingForExtra(_) = phase {
            self.0.client().delete([self.1]);
        }
    }
}

/// A target may lose an item after the look that follows its repair: to eviction, to a crash, or to another key that its
/// index takes for the same.
#[test]
fn what_is_lost_after_its_repair_is_reported() {
    let (a, b) = (Server::memcached(), Server::moneta());
    a.client().plant([item("lost", "1", 0), item("kept", "2", 0)]);
    let config = VerifyConfig { repair: Some(A_TO_B), ..config(&a, &b) };
    let report = Verify::new(config.clone()).run(&Loses(&b, "lost")).expect("both are there");
    assert_eq!((report.conclusion, &report.incomplete), (Conclusion::Different, &None), "{report}");
    assert_eq!((report.counts.repaired, report.counts.unrepaired), (1, 1), "{report}");
    assert_eq!(report.examples[&Kind::Unrepaired][0].key, "lost");
    let again = verify(config);
    assert_eq!((again.counts.repaired, again.conclusion), (1, Conclusion::Equal), "{again}");
}
