//! The wire formats by themselves: what is asked is what a server decodes, and no bytes whatever disturb more than the
//! connection they came on.

use moneta_client::wire::{
    Answer, Decoded, Dialect, Expect, LIST_MAX, Probe, Probed, Protocol, Read, Request, Seen, Verb, decode, dump,
    encode,
};
use moneta_item::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_item::{Expiry, Newer, Version};
use moneta_protocol::command::{Command, Grant, Keys};
use moneta_protocol::decoder::{Decoded as Served, Decoder, Protocol as Serves};
use proptest::prelude::*;

const VALUE_MAX: usize = 1000;
const PROTOCOLS: [Protocol; 3] = [Protocol::Meta, Protocol::Binary, Protocol::Text];

fn dialect(protocol: Protocol) -> Dialect {
    Dialect { protocol, explicit_cas: true, wide_times: true, versions: true }
}

fn verbs() -> Vec<Verb> {
    vec![
        Verb::Read(Read { retrieve: Retrieve::default(), value: true }),
        Verb::Peek { value: false },
        Verb::Write(Write::default()),
        Verb::Write(Write { mode: WriteMode::Replace, ..Write::default() }),
        Verb::Delete(Delete::default()),
        Verb::Arithmetic(Arithmetic::default()),
        Verb::Flush(Exptime(0)),
        Verb::Statistics,
        Verb::Noop,
    ]
}

fn expect(verb: Verb, protocol: Protocol) -> Expect {
    encode(&Request { verb, key: b"key", value: b"" }, dialect(protocol), 7, &mut Vec::new()).expect("it has a form")
}

fn packet(status: u8, extras: &[u8], key: &[u8], value: &[u8], number: u32) -> Vec<u8> {
    let mut packet = vec![0x81, 0, 0, key.len() as u8, extras.len() as u8, 0, 0, status];
    packet.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    packet.extend(number.to_be_bytes());
    packet.extend(9u64.to_be_bytes());
    packet.extend([extras, key, value].concat());
    packet
}

/// Replies as servers give them, each with what it is a reply to and what it says.
fn replies() -> Vec<(Protocol, Verb, Vec<u8>, Answer<'static>)> {
    let [read, peek, set, replace, delete, arithmetic, flush, statistics, noop] =
        verbs().try_into().expect("nine verbs");
    let full = Seen {
        value: b"hello".into(),
        size: 5,
        flags: 3,
        cas: 9,
        ttl: Some(100),
        version: None,
        expiry: None,
        idle: Some(2),
        fetched: true,
        stale: true,
        token_sent: false,
        won: true,
    };
    let bare = Seen { value: b"hello".into(), size: 5, flags: 3, cas: 9, ..Seen::default() };
    let known = vec![("pid".to_owned(), "12".to_owned()), ("version".to_owned(), "1.6 x".to_owned())];
    use Protocol::{Binary, Meta, Text};
    vec![
        (Meta, read, b"VA 5 c9 f3 t100 h1 l2 O7 X W\r\nhello\r\n".to_vec(), Answer::Hit(full.clone())),
        (Meta, peek, b"HD s5 c9 f3 t100 h1 l2 O7 X W\r\n".to_vec(), Answer::Hit(Seen { value: (&[]).into(), ..full })),
        (Meta, read, b"EN O7\r\n".to_vec(), Answer::Miss),
        (Meta, set, b"HD c4 O7\r\n".to_vec(), Answer::Stored { cas: 4 }),
        (Meta, set, b"NS c0 O7\r\n".to_vec(), Answer::NotStored),
        (Meta, set, b"EX c0 O7\r\n".to_vec(), Answer::Exists),
        (Meta, set, b"SERVER_ERROR object too large for cache\r\n".to_vec(), Answer::TooLarge),
        (Meta, set, b"SERVER_ERROR out of memory storing object\r\n".to_vec(), Answer::OutOfMemory),
        (Meta, delete, b"NF O7\r\n".to_vec(), Answer::NotFound),
        (Meta, delete, b"HD O7\r\n".to_vec(), Answer::Deleted),
        (Meta, arithmetic, b"VA 2 c5 t-1 O7\r\n12\r\n".to_vec(), Answer::Number { number: 12, cas: 5, ttl: Some(-1) }),
        (Meta, flush, b"OK\r\n".to_vec(), Answer::Done),
        (Meta, noop, b"MN\r\n".to_vec(), Answer::Done),
        (Meta, statistics, b"STAT pid 12\r\nSTAT version 1.6 x\r\nEND\r\n".to_vec(), Answer::Statistics(known.clone())),
        (Text, read, b"VALUE key 3 5 9\r\nhello\r\nEND\r\n".to_vec(), Answer::Hit(bare.clone())),
        (Text, read, b"END\r\n".to_vec(), Answer::Miss),
        (Text, set, b"STORED\r\n".to_vec(), Answer::Stored { cas: 0 }),
        (Text, arithmetic, b"12  \r\n".to_vec(), Answer::Number { number: 12, cas: 0, ttl: None }),
        (
            Text,
            arithmetic,
            b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_vec(),
            Answer::NonNumeric,
        ),
        (Text, delete, b"DELETED\r\n".to_vec(), Answer::Deleted),
        (Binary, read, packet(0, &3u32.to_be_bytes(), b"", b"hello", 7), Answer::Hit(bare)),
        (Binary, read, packet(1, b"", b"", b"Not found", 7), Answer::Miss),
        (Binary, set, packet(0, b"", b"", b"", 7), Answer::Stored { cas: 9 }),
        (Binary, replace, packet(1, b"", b"", b"Not found", 7), Answer::NotStored),
        (Binary, set, packet(3, b"", b"", b"Too large.", 7), Answer::TooLarge),
        (
            Binary,
            arithmetic,
            packet(0, b"", b"", &12u64.to_be_bytes(), 7),
            Answer::Number { number: 12, cas: 9, ttl: None },
        ),
        (
            Binary,
            statistics,
            [packet(0, b"", b"pid", b"12", 7), packet(0, b"", b"version", b"1.6 x", 7), packet(0, b"", b"", b"", 7)]
                .concat(),
            Answer::Statistics(known),
        ),
    ]
}

#[test]
fn replies_are_read_however_they_are_cut() {
    for (protocol, verb, bytes, answer) in replies() {
        let due = expect(verb, protocol);
        for end in 0..bytes.len() {
            match decode(&bytes[..end], protocol, &due, VALUE_MAX) {
                Ok(Decoded::Partial { needed }) => assert!(end < needed && needed <= bytes.len().max(end + 1)),
                other => panic!("{:?} cut at {end}: {other:?}", bytes.escape_ascii().to_string()),
            }
        }
        let behind = [&bytes[..], b"HD O8\r\n"].concat();
        let whole = Decoded::Answer { answer, consumed: bytes.len() };
        assert_eq!(decode(&behind, protocol, &due, VALUE_MAX), Ok(whole));
    }
}

#[test]
fn replies_to_others_are_not_taken() {
    let [read, set] = [verbs()[0], verbs()[2]];
    let foreign: [(Protocol, Verb, Vec<u8>); 9] = [
        (Protocol::Meta, read, b"VA 1 c1 O8\r\nx\r\n".to_vec()),
        (Protocol::Meta, read, b"VA 1 c1\r\nx\r\n".to_vec()),
        (Protocol::Meta, read, b"EN\r\n".to_vec()),
        (Protocol::Meta, read, b"NF O7\r\n".to_vec()),
        (Protocol::Meta, set, b"VA 1 O7\r\nx\r\n".to_vec()),
        (Protocol::Text, read, b"VALUE other 0 1 1\r\nx\r\nEND\r\n".to_vec()),
        (Protocol::Text, read, b"STORED\r\n".to_vec()),
        (Protocol::Text, set, b"END\r\n".to_vec()),
        (Protocol::Binary, read, packet(0, &[0; 4], b"", b"x", 8)),
    ];
    for (protocol, verb, bytes) in foreign {
        let decoded = decode(&bytes, protocol, &expect(verb, protocol), VALUE_MAX);
        assert!(decoded.is_err(), "{}: {decoded:?}", bytes.escape_ascii());
    }
}

#[test]
fn impossible_lengths_are_not_waited_for() {
    let read = verbs()[0];
    for bytes in
        [&b"VA 99999999999999999999 O7\r\n"[..], b"VA 1073741825 O7\r\n", b"VA -1 O7\r\n", &b"VA 1".repeat(5000)]
    {
        assert!(decode(bytes, Protocol::Meta, &expect(read, Protocol::Meta), VALUE_MAX).is_err());
    }
    let peek = |reply: &[u8]| {
        let verb = Verb::Peek { value: false };
        decode(reply, Protocol::Meta, &expect(verb, Protocol::Meta), VALUE_MAX).map(drop)
    };
    assert!(peek(b"HD s1073741824 O7\r\n").is_ok());
    for size in ["1073741825", "18446744073709551615"] {
        let reply = format!("HD s{size} O7\r\n");
        assert!(peek(reply.as_bytes()).is_err(), "{reply}");
    }
    let endless = b"VALUE key 0 18446744073709551615\r\n";
    assert!(decode(endless, Protocol::Text, &expect(read, Protocol::Text), VALUE_MAX).is_err());
    let oversized = b"VA 1001 O7\r\n";
    let skipped = Ok(Decoded::Oversized { skip: oversized.len() + 1003 });
    assert_eq!(decode(oversized, Protocol::Meta, &expect(read, Protocol::Meta), VALUE_MAX), skipped);
}

/// Bytes of a list of many short statistics, without its end.
fn long_list(protocol: Protocol, bytes: usize) -> Vec<u8> {
    let one = if protocol == Protocol::Binary { packet(0, b"", b"a", b"", 7) } else { b"STAT a\n".to_vec() };
    one.repeat(bytes / one.len())
}

#[test]
fn a_list_that_does_not_end_is_given_up() {
    for protocol in [Protocol::Meta, Protocol::Binary, Protocol::Text] {
        let (list, due) = (long_list(protocol, LIST_MAX + 100), expect(Verb::Statistics, protocol));
        for bytes in [LIST_MAX, list.len()] {
            assert!(decode(&list[..bytes], protocol, &due, VALUE_MAX).is_err(), "{protocol:?}, {bytes} bytes");
        }
        let short = &list[..LIST_MAX / 2];
        assert!(matches!(decode(short, protocol, &due, VALUE_MAX), Ok(Decoded::Partial { .. })), "{protocol:?}");
    }
}

/// The list is looked at again with each byte. If it were taken apart each time, that would be for minutes.
#[test]
fn a_list_that_comes_byte_by_byte_blocks_no_other() {
    let (mut list, due) = (long_list(Protocol::Meta, LIST_MAX / 2), expect(Verb::Statistics, Protocol::Meta));
    list.extend(b"END\r\n");
    let begun = std::time::Instant::now();
    for end in 0..list.len() {
        assert!(matches!(decode(&list[..end], Protocol::Meta, &due, VALUE_MAX), Ok(Decoded::Partial { .. })), "{end}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{end} of {} bytes", list.len());
    }
    let Ok(Decoded::Answer { answer: Answer::Statistics(known), consumed }) =
        decode(&list, Protocol::Meta, &due, VALUE_MAX)
    else {
        panic!("it is all there")
    };
    assert_eq!((consumed, known.len()), (list.len(), LIST_MAX / 2 / 7));
}

fn by_version() -> [Verb; 3] {
    let newer = Newer { version: Version(7), ..Newer::default() };
    [Verb::PutNewer(newer), Verb::Bury(Version(7)), Verb::Floor { version: Version(7), second: 9 }]
}

/// A server that does not know versions may take a part of such a line for something else.
#[test]
fn versions_are_sent_to_servers_alone_that_know_them() {
    for protocol in PROTOCOLS {
        let mut knows = Dialect { versions: false, ..dialect(protocol) };
        for verb in by_version() {
            let mut out = b"before".to_vec();
            let request = Request { verb, key: b"key", value: b"value" };
            assert!(encode(&request, knows, 7, &mut out).is_err(), "{verb:?} over {protocol:?}");
            assert_eq!(out, b"before");
            knows.versions = protocol != Protocol::Meta;
        }
        let mut out = Vec::new();
        let request = Request { verb: Verb::Peek { value: true }, key: b"key", value: b"" };
        encode(&request, Dialect { versions: false, ..knows }, 7, &mut out).expect("it has a form");
        assert!(!out.windows(4).any(|flags| flags == b" V D"));
    }
}

/// A brief read needs no more of a server than what it shows, and takes no recache that it could not give back.
#[test]
fn a_brief_read_asks_for_little() {
    let verb = Verb::Read(Read { retrieve: Retrieve::BRIEF, value: true });
    for (versions, line) in [(true, "mg key v f V Y O7\r\n"), (false, "mg key v c f O7\r\n")] {
        let mut out = Vec::new();
        let request = Request { verb, key: b"key", value: b"" };
        encode(&request, Dialect { versions, ..dialect(Protocol::Meta) }, 7, &mut out).expect("it has a form");
        assert_eq!(String::from_utf8_lossy(&out), line);
    }
}

#[test]
fn replies_by_version_say_what_became_of_it() {
    let [put, bury, floor] = by_version();
    for (verb, reply, expected) in [
        (put, "HD c7 O7", Answer::Stored { cas: 7 }),
        (put, "NS O7", Answer::NotStored),
        (put, "HD V7 O7", Answer::Unchanged { cas: 7 }),
        (put, "EX O7", Answer::Superseded { by: Version::ZERO }),
        (put, "EX O7 V9", Answer::Superseded { by: Version(9) }),
        (bury, "HD O7", Answer::Deleted),
        (bury, "NF O7", Answer::NotFound),
        (bury, "EX O7", Answer::Superseded { by: Version::ZERO }),
        (bury, "EX V9 O7", Answer::Superseded { by: Version(9) }),
        (floor, "HD O7", Answer::Done),
    ] {
        let due = expect(verb, Protocol::Meta);
        let line = format!("{reply}\r\n");
        let decoded = Decoded::Answer { answer: expected, consumed: line.len() };
        assert_eq!(decode(line.as_bytes(), Protocol::Meta, &due, VALUE_MAX), Ok(decoded), "{verb:?}: {reply}");
    }
    let due = expect(Verb::Peek { value: false }, Protocol::Meta);
    for (flags, unversioned) in [("c9 V9 D1500", false), ("V9 D1500", false), ("c9 V0 D1500", true), ("c9 t500", true)]
    {
        let reply = format!("HD {flags} O7\r\n");
        let Ok(Decoded::Answer { answer: Answer::Hit(seen), .. }) =
            decode(reply.as_bytes(), Protocol::Meta, &due, VALUE_MAX)
        else {
            panic!("{flags}")
        };
        let meta = seen.meta(1000);
        assert_eq!((meta.cas, meta.unversioned, meta.expiry), (9, unversioned, Expiry(1500)), "{flags}");
    }
}

#[test]
fn servers_are_recognised_by_their_answers() {
    let cases: [(&[u8], Probed); 9] = [
        (
            b"VERSION 1.6.18\r\nMN\r\nCLIENT_ERROR invalid flag\r\nERROR\r\nVERSION 1.6.18\r\n",
            Probed::Dialect(Dialect::least(Protocol::Meta), 70),
        ),
        (
            b"VERSION 1.6.45 wide-times\r\nMN\r\nEN\r\nMV 2 region=0 writer=0 cluster=0 now=5\r\nVERSION 1.6.45 error-codes\r\n",
            Probed::Dialect(dialect(Protocol::Meta), 103),
        ),
        (
            b"VERSION 1.6.45 wide-times\r\nMN\r\nEN\r\nMV 3 region=0\r\nVERSION 1.6.45 error-codes\r\n",
            Probed::Dialect(Dialect { versions: false, ..dialect(Protocol::Meta) }, 78),
        ),
        (
            b"VERSION 1.6.45\r\nMN\r\nEN\r\nERROR\r\nVERSION 1.6.45\r\n",
            Probed::Dialect(Dialect { explicit_cas: true, ..Dialect::least(Protocol::Meta) }, 47),
        ),
        (b"ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n", Probed::Dialect(Dialect::least(Protocol::Text), 35)),
        (b"VERSION 1.4.4\r\nERROR\r\nERROR\r\nERROR\r\nVERSION 1.4.4\r\n", Probed::Dialect(Dialect::least(Protocol::Text), 51)),
        (b"VERSION 1.6.18\r\nMN\r\n", Probed::Partial),
        (b"ERROR Too many open connections\r\n", Probed::Refused("ERROR Too many open connections".into())),
        (b"", Probed::Partial),
    ];
    for (bytes, expected) in cases {
        let mut probe = Probe::begin(None, false, &mut Vec::new());
        assert_eq!(probe.look(bytes), Ok(expected));
    }
    assert!(Probe::begin(None, false, &mut Vec::new()).look(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    assert!(Probe::begin(None, true, &mut Vec::new()).look(b"VERSION").is_err());
}

fn exptime() -> impl Strategy<Value = Exptime> {
    prop_oneof![Just(0i64), Just(-1), 1..100i64, 1_000_000_000..i64::from(u32::MAX)].prop_map(Exptime)
}

fn some<T: Clone + std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(of)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![proptest::collection::vec(any::<u8>(), 1..187), "[!-~]{1,250}".prop_map(String::into_bytes)]
}

fn mode() -> impl Strategy<Value = WriteMode> {
    use WriteMode::{Add, Append, Prepend, Replace, Set};
    prop_oneof![Just(Set), Just(Add), Just(Replace), Just(Append), Just(Prepend)]
}

fn retrieve() -> impl Strategy<Value = Retrieve> {
    (some(exptime()), some(exptime()), some(exptime()), some(any::<u64>()), any::<bool>()).prop_map(
        |(touch, vivify, recache, new_cas, bump)| {
            let new_cas = new_cas.filter(|_| vivify.is_some());
            Retrieve { touch, vivify, recache, new_cas, bump, claim: true, brief: false }
        },
    )
}

fn write() -> impl Strategy<Value = Write> {
    let options =
        (mode(), any::<u32>(), exptime(), some(1..u64::MAX), some(any::<u64>()), any::<bool>(), some(exptime()));
    options.prop_map(|(mode, flags, exptime, compare, new_cas, invalidate, vivify)| {
        let joins = matches!(mode, WriteMode::Append | WriteMode::Prepend);
        let compare = compare.filter(|_| mode != WriteMode::Add);
        let invalidate = invalidate && matches!(mode, WriteMode::Set | WriteMode::Replace);
        Write { mode, flags, exptime, compare, new_cas, invalidate, vivify: vivify.filter(|_| joins) }
    })
}

fn delete() -> impl Strategy<Value = Delete> {
    (some(any::<u64>()), some(any::<u64>()), any::<bool>(), some(exptime()), any::<bool>()).prop_map(
        |(compare, new_cas, invalidate, touch, drop_value)| {
            let stays = invalidate || drop_value;
            Delete {
                compare,
                new_cas: new_cas.filter(|_| stays),
                invalidate,
                touch: touch.filter(|_| stays),
                drop_value,
            }
        },
    )
}

fn arithmetic() -> impl Strategy<Value = Arithmetic> {
    let create = (any::<u64>(), exptime()).prop_map(|(initial, exptime)| Create { initial, exptime });
    (any::<u64>(), any::<bool>(), some(create), some(exptime()), some(1..u64::MAX), some(any::<u64>())).prop_map(
        |(delta, decrement, create, touch, compare, new_cas)| Arithmetic {
            delta,
            decrement,
            create,
            touch,
            compare,
            new_cas,
        },
    )
}

fn newer() -> impl Strategy<Value = Newer> {
    let dates = (some(any::<u64>()), some(any::<u64>().prop_map(Version)));
    let options = (1..=u64::MAX, dates, any::<u32>(), any::<u32>(), any::<bool>(), any::<bool>());
    options.prop_map(|(version, (as_of, base), flags, expiry, stale, token_sent)| {
        let (version, expiry) = (Version(version), Expiry(expiry));
        Newer { version, as_of, base, flags, expiry, stale, token_sent }
    })
}

/// What a Moneta makes of a request.
fn served(request: &Request<'_>, check: impl FnOnce(&[u8], Command<'_>)) {
    let mut bytes = Vec::new();
    encode(request, dialect(Protocol::Meta), 7, &mut bytes).expect("meta has a form for everything");
    let mut decoder = Decoder::new(Serves::Any, VALUE_MAX);
    assert!(matches!(
        decoder.decode(b"version wide-times\r\n"),
        Served::Command { command: Command::Grant(Grant::WideTimes), .. }
    ));
    match decoder.decode(&bytes) {
        Served::Command { command, consumed } => {
            assert_eq!(consumed, bytes.len());
            check(request.key, command);
        }
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

fn same_key(sent: &[u8], key: &[u8], style: &moneta_protocol::command::Style<'_>) {
    let moneta_protocol::command::Style::Meta(style) = style else { panic!("not meta: {style:?}") };
    let mut buffer = [0; 250];
    let decoded = if style.base64_key { moneta_protocol::base64::decode_key(key, &mut buffer) } else { Some(key) };
    assert_eq!(decoded, Some(sent));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_server_reads_what_was_meant(
        key in key(),
        value in proptest::collection::vec(any::<u8>(), 0..50),
        retrieve in retrieve(),
        write in write(),
        delete in delete(),
        arithmetic in arithmetic(),
        newer in newer(),
        second in any::<u32>(),
    ) {
        // Past times are all alike.
        let read = Verb::Read(Read { retrieve, value: true });
        served(&Request { verb: read, key: &key, value: &[] }, |sent, command| {
            let Command::Get { keys: Keys::One(key), request, style, .. } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!(request, retrieve);
        });
        served(&Request { verb: Verb::Write(write), key: &key, value: &value }, |sent, command| {
            let Command::Set { key, value: stored, request, style } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!((stored, request), (&value[..], write));
        });
        served(&Request { verb: Verb::Delete(delete), key: &key, value: &[] }, |sent, command| {
            let Command::Delete { key, request, style } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!(request, delete);
        });
        served(&Request { verb: Verb::Arithmetic(arithmetic), key: &key, value: &[] }, |sent, command| {
            let Command::Arithmetic { key, request, style } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!(request, arithmetic);
        });
        served(&Request { verb: Verb::PutNewer(newer), key: &key, value: &value }, |sent, command| {
            let Command::PutNewer { key, value: stored, item, style } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!((stored, item), (&value[..], newer));
        });
        let version = newer.version;
        served(&Request { verb: Verb::Bury(version), key: &key, value: &[] }, |sent, command| {
            let Command::Bury { key, version: read, style } = command else { panic!("{command:?}") };
            same_key(sent, key, &style);
            assert_eq!(read, version);
        });
        served(&Request { verb: Verb::Floor { version, second }, key: &[], value: &[] }, |_, command| {
            let Command::Floor { version: read, second: then, .. } = command else { panic!("{command:?}") };
            assert_eq!((read, then), (version, second));
        });
    }

    #[test]
    fn any_bytes_end_in_an_answer_a_wait_or_a_broken_connection(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        look_at(&bytes);
    }

    /// Replies with a byte or two changed come nearer to being understood.
    #[test]
    fn so_do_replies_gone_bad(which in 0..27usize, at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = replies().swap_remove(which).2;
        let at = at.index(bytes.len());
        bytes[at] = to;
        if cut {
            bytes.remove(at);
        }
        look_at(&bytes);
    }
}

fn look_at(bytes: &[u8]) {
    for protocol in PROTOCOLS {
        for verb in verbs() {
            match decode(bytes, protocol, &expect(verb, protocol), VALUE_MAX) {
                Ok(Decoded::Answer { consumed, .. }) => assert!((1..=bytes.len()).contains(&consumed)),
                Ok(Decoded::Partial { needed }) => assert!(needed > bytes.len()),
                Ok(Decoded::Oversized { skip }) => assert!(skip > VALUE_MAX),
                Err(_) => {}
            }
        }
    }
    for in_binary in [false, true] {
        let _ = Probe::begin(None, in_binary, &mut Vec::new()).look(bytes);
    }
    let _ = dump::line(bytes);
}

#[test]
fn a_long_statistic_is_told_whole() {
    // A node's histogram of what gets took.
    let long = (0..200).map(|bound| format!("{bound}:1234567")).collect::<Vec<_>>().join(",");
    for protocol in PROTOCOLS {
        let reply = match protocol {
            Protocol::Binary => [packet(0, b"", b"a", long.as_bytes(), 7), packet(0, b"", b"", b"", 7)].concat(),
            _ => format!("STAT a {long}\r\nEND\r\n").into_bytes(),
        };
        let decoded = decode(&reply, protocol, &expect(Verb::Statistics, protocol), VALUE_MAX);
        let Ok(Decoded::Answer { answer: Answer::Statistics(list), .. }) = decoded else {
            panic!("{protocol:?}: {decoded:?}")
        };
        assert_eq!(list, [("a".to_owned(), long.clone())], "{protocol:?}");
    }
}
