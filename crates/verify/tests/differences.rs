//! Planted differences are found, each of them and nothing else, whatever servers are compared.

mod support;

use moneta_verify::{Conclusion, Counts, Kind, Report, VerifyConfig};
use support::{Planted, Server, config, found, item, key, verify};

const KEYS: usize = 30_000;
/// Every so many keys is left out, or differs, in one way.
const ONLY_A: usize = 1000;
const ONLY_B: usize = 1500;
const VALUE: usize = 300;
const FLAGS: usize = 500;
const EXPIRY: usize = 700;

fn falls_on(number: usize, every: usize) -> bool {
    number % every == every / 2
}

/// What a side has of key `number`.
fn planted(number: usize, is_b: bool) -> Option<Planted> {
    let missing = falls_on(number, if is_b { ONLY_A } else { ONLY_B });
    let differs = |every| is_b && falls_on(number, every);
    let value = format!("value {number}{}", if differs(VALUE) { "!" } else { "" });
    let flags = number as u32 % 7 + u32::from(differs(FLAGS));
    let ttl = if differs(EXPIRY) { 9000 } else { [0, 3600, 86_400 * 60][number % 3] };
    (!missing).then(|| Planted { ttl, ..item(key(number), value, flags) })
}

/// What must be found.
fn expected() -> Counts {
    let numbers = |holds: fn(usize) -> bool| (0..KEYS).filter(|number| holds(*number)).count() as u64;
    let both = |number| !falls_on(number, ONLY_A) && !falls_on(number, ONLY_B);
    let parts = |number| [VALUE, FLAGS, EXPIRY].iter().any(|every| falls_on(number, *every));
    let count = |holds: &dyn Fn(usize) -> bool| (0..KEYS).filter(|number| holds(*number)).count() as u64;
    let only_in_a = count(&|number| falls_on(number, ONLY_A) && !falls_on(number, ONLY_B));
    let only_in_b = count(&|number| falls_on(number, ONLY_B) && !falls_on(number, ONLY_A));
    let in_both = count(&|number| both(number) && parts(number));
    let compared = numbers(|number| !falls_on(number, ONLY_B));
    Counts {
        compared,
        equal: compared - only_in_a - in_both,
        different: only_in_a + only_in_b + in_both,
        only_in_a,
        only_in_b,
        value: count(&|number| both(number) && falls_on(number, VALUE)),
        flags: count(&|number| both(number) && falls_on(number, FLAGS)),
        expiry: count(&|number| both(number) && falls_on(number, EXPIRY)),
        ..Counts::default()
    }
}

fn plant(a: &Server, b: &Server) {
    a.client().plant((0..KEYS).filter_map(|number| planted(number, false)));
    b.client().plant((0..KEYS).filter_map(|number| planted(number, true)));
}

fn finds_all(a: &Server, b: &Server) {
    plant(a, b);
    let report = verify(config(a, b));
    assert_eq!(found(&report), expected());
    assert_eq!(report.conclusion, Conclusion::Different);
    assert!(report.expiry_compared);
    assert!(report.counts.only_in_a > 20 && report.counts.only_in_b > 10 && report.counts.expiry > 30);
    names_some(&report);
    let swapped = verify(VerifyConfig { examples: 0, ..config(b, a) });
    assert_eq!(swapped.counts.different, report.counts.different);
    assert_eq!(
        (swapped.counts.only_in_a, swapped.counts.only_in_b),
        (report.counts.only_in_b, report.counts.only_in_a)
    );
    assert!(swapped.examples.values().all(Vec::is_empty));
}

/// Examples are of their kind, and no more than asked for.
fn names_some(report: &Report) {
    for (kind, every) in [
        (Kind::OnlyInA, ONLY_A),
        (Kind::OnlyInB, ONLY_B),
        (Kind::Value, VALUE),
        (Kind::Flags, FLAGS),
        (Kind::Expiry, EXPIRY),
    ] {
        let examples = &report.examples[&kind];
        assert_eq!(examples.len(), 10, "{kind:?}");
        for example in examples {
            let number: usize = example.key.strip_prefix("key:").and_then(|number| number.parse().ok()).expect("a key");
            assert!(falls_on(number, every), "{kind:?} {example:?}");
            assert_eq!((example.a.is_some(), example.b.is_some()), (kind != Kind::OnlyInB, kind != Kind::OnlyInA));
        }
    }
    let value = &report.examples[&Kind::Value][0];
    let (a, b) = (value.a.expect("in A"), value.b.expect("in B"));
    assert_eq!((a.size + 1, value.differs_at), (b.size, Some(a.size)), "B's has a byte more at its end");
}

#[test]
fn between_two_memcached() {
    finds_all(&Server::memcached(), &Server::memcached());
}

#[test]
fn between_memcached_and_moneta() {
    finds_all(&Server::memcached(), &Server::moneta());
}

#[test]
fn between_two_moneta() {
    finds_all(&Server::moneta(), &Server::moneta());
}

#[test]
fn empty_servers_are_equal() {
    let report = verify(config(&Server::memcached(), &Server::moneta()));
    assert_eq!((found(&report), report.conclusion), (Counts::default(), Conclusion::Equal));
}

#[test]
fn odd_keys_and_values_of_all_sizes_are_compared() {
    let (a, b) = (Server::memcached(), Server::moneta());
    let keys: Vec<Vec<u8>> = vec![
        b"k".to_vec(),
        vec![b'k'; 250],
        b"two words".to_vec(),
        b"\x00\x01\r\n\xff".to_vec(),
        (0..186).collect(),
        "schl\u{fc}ssel%20".into(),
        b"key=x exp=-1".to_vec(),
    ];
    let binary: Vec<u8> = (0..100_000).map(|index| (index * 7 % 256) as u8).collect();
    let values =
        [Vec::new(), b"\r\nEND\r\n".to_vec(), binary, vec![b'x'; 1 << 20], b"v".to_vec(), Vec::new(), Vec::new()];
    let items: Vec<Planted> = keys.iter().zip(&values).map(|(key, value)| item(key, value, 3)).collect();
    a.client().plant(items.clone());
    b.client().plant(items.clone());
    let report = verify(config(&a, &b));
    assert_eq!(found(&report), Counts { compared: 7, equal: 7, ..Counts::default() });

    // Each differs in its last byte.
    b.client().plant(items.into_iter().map(|item| {
        let mut value = item.value;
        if value.pop().is_none() {
            value.push(0);
        } else {
            value.push(b'!');
        }
        Planted { value, ..item }
    }));
    let report = verify(config(&a, &b));
    assert_eq!(found(&report), Counts { compared: 7, different: 7, value: 7, ..Counts::default() });
    let examples = &report.examples[&Kind::Value];
    assert!(examples.iter().any(|example| example.key == "two%20words"), "{examples:?}");
    assert!(examples.iter().any(|example| example.differs_at == Some((1 << 20) - 1)), "{examples:?}");
}

#[test]
fn expiry_is_compared_with_a_tolerance() {
    let (a, b) = (Server::moneta(), Server::memcached());
    let with = |key: &str, ttl| Planted { ttl, ..item(key, "v", 0) };
    a.client().plant([with("never", 0), with("near", 1000), with("far", 1000), with("one", 1000), with("brief", 2)]);
    b.client().plant([with("never", 0), with("near", 1030), with("far", 1200), with("one", 0)]);
    // So wide that a loaded machine's pauses stay within it.
    let lax = VerifyConfig { tolerance: 60, ..config(&a, &b) };
    let report = verify(lax.clone());
    assert_eq!((report.counts.different, report.counts.expiry), (2, 2));
    let keys: Vec<&str> = report.examples[&Kind::Expiry].iter().map(|example| example.key.as_str()).collect();
    assert!(keys.contains(&"far") && keys.contains(&"one"), "{keys:?}");
    assert!(report.counts.gone <= 1, "what is to expire within the tolerance is on no side or gone");

    let report = verify(VerifyConfig { compare_expiry: false, ..lax });
    assert_eq!((report.counts.different, report.conclusion), (0, Conclusion::Equal));
    assert!(!report.expiry_compared);
}
