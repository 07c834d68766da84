//! What meta commands say of versions. A token that is taken for something else writes or deletes what it should not.

use moneta_item::request::Retrieve;
use moneta_item::{Expiry, ItemMeta, ItemRef, Newer, Value, Version};
use moneta_protocol::command::{Command, Keys, MetaStyle, ReadVerb, Style};
use moneta_protocol::decoder::{Decoded, Decoder, Protocol};
use moneta_protocol::encode;
use moneta_protocol::refusal::{Message, Refusal};

const ITEM_MAX: usize = 1000;

fn decoder() -> Decoder {
    Decoder::new(Protocol::Any, ITEM_MAX)
}

fn refusal<'a>(decoder: &mut Decoder, line: &'a str) -> Refusal<'a> {
    match decoder.decode(line.as_bytes()) {
        Decoded::Refused { refusal, .. } => refusal,
        other => panic!("{line:?} became {other:?}"),
    }
}

fn told(line: &str) -> &'static str {
    match refusal(&mut decoder(), line).message {
        Some(Message::Text(text)) => text,
        other => panic!("{line:?} was answered by {other:?}"),
    }
}

#[test]
fn commands_by_version_become_what_they_say() {
    let style = |flags, stores| Style::Meta(MetaStyle { flags, stores, ..MetaStyle::default() });
    let put = |item, flags| Command::PutNewer { key: b"k", value: b"xy", item, style: style(flags, true) };
    let bare = Newer { version: Version(7), ..Newer::default() };
    let full = Newer {
        version: Version(u64::MAX),
        as_of: Some(1_790_000_000_123),
        base: Some(Version(41)),
        flags: 9,
        expiry: Expiry(1_800_000_000),
        stale: true,
        token_sent: true,
    };
    let cases: [(&str, Command<'_>); 6] = [
        ("ms k 2 V7\r\nxy\r\n", put(bare, b" V7")),
        (
            "ms k 2 Y3 A1790000000123 C41 D1800000000 F9 V18446744073709551615 c O1\r\nxy\r\n",
            put(full, b" Y3 A1790000000123 C41 D1800000000 F9 V18446744073709551615 c O1"),
        ),
        ("md k V7\r\n", Command::Bury { key: b"k", version: Version(7), style: style(b" V7", false) }),
        (
            "mf 7 1790000000\r\n",
            Command::Floor { version: Version(7), second: 1_790_000_000, style: style(b"", false) },
        ),
        (
            "mf 7 1790000000 O5\r\n",
            Command::Floor { version: Version(7), second: 1_790_000_000, style: style(b" O5", false) },
        ),
        ("mv\r\n", Command::Versions(style(b"", false))),
    ];
    for (line, expected) in cases {
        let decoded = Decoded::Command { command: expected, consumed: line.len() };
        assert_eq!(decoder().decode(line.as_bytes()), decoded, "{line:?}");
    }
    // A read that shows the marks wins no token.
    for (line, flags, claim) in [("mg k v V D\r\n", &b" v V D"[..], true), ("mg k v V D Y\r\n", b" v V D Y", false)] {
        let style = Style::Meta(MetaStyle { flags, value: true, ..MetaStyle::default() });
        let request = Retrieve { claim, ..Retrieve::default() };
        let command = Command::Get { keys: Keys::One(b"k"), request, verb: ReadVerb::Meta, style };
        assert_eq!(decoder().decode(line.as_bytes()), Decoded::Command { command, consumed: line.len() });
    }
}

#[test]
fn what_contradicts_a_version_is_refused() {
    const CONTRADICTS: &str = "CLIENT_ERROR flag does not go with a version";
    for flag in ["E1", "MS", "ME", "MN", "I", "T0", "T10", "N0", "R1", "J1", "x", "t", "v", "h", "l"] {
        assert_eq!(told(&format!("ms k 2 V7 {flag}\r\nxy\r\n")), CONTRADICTS, "{flag}");
        assert_eq!(told(&format!("ms k 2 {flag} V7\r\nxy\r\n")), CONTRADICTS, "{flag}");
        assert_eq!(told(&format!("md k V7 {flag}\r\n")), CONTRADICTS, "{flag}");
    }
    assert_eq!(told("md k V7 D1\r\n"), CONTRADICTS);
    assert_eq!(told("md k V7 C1\r\n"), CONTRADICTS);
    assert_eq!(told("md k V7 F1\r\n"), CONTRADICTS);
}

#[test]
fn bad_versions_and_marks_are_refused() {
    const TOKEN: &str = "CLIENT_ERROR bad token in command line format";
    const ZERO: &str = "CLIENT_ERROR a version is not 0";
    const FORMAT: &str = "CLIENT_ERROR bad command line format";
    const FLAG: &str = "CLIENT_ERROR invalid flag";
    for (flags, line) in [
        ("V0", ZERO),
        ("V", TOKEN),
        ("V-1", TOKEN),
        ("Vx", TOKEN),
        ("V18446744073709551616", TOKEN),
        ("V7 A", TOKEN),
        ("V7 Ax", TOKEN),
        ("V7 Y4", TOKEN),
        ("V7 Y", TOKEN),
        ("V7 D4294967296", TOKEN),
        ("V7 V8", "CLIENT_ERROR duplicate flag"),
        ("A5", FLAG),
        ("Y1", FLAG),
        ("A5 D5 Y1", FLAG),
    ] {
        assert_eq!(told(&format!("ms k 2 {flags}\r\nxy\r\n")), line, "{flags}");
    }
    for (line, error) in [
        ("md k V0\r\n", ZERO),
        ("md k V\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("md k A5\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k V5\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("mg k V5\r\n", FLAG),
        ("mg k Y5\r\n", FLAG),
        ("mg k A\r\n", FLAG),
        ("mf\r\n", FORMAT),
        ("mf 7\r\n", FORMAT),
        ("mf 7 x\r\n", FORMAT),
        ("mf 7 4294967296\r\n", FORMAT),
        ("mf 0 5\r\n", ZERO),
        ("mf 7 5 v\r\n", FLAG),
        ("mf 7 5 V7\r\n", FLAG),
        ("mv 1\r\n", "ERROR"),
    ] {
        assert_eq!(told(line), error, "{line:?}");
    }
}

#[test]
fn a_refused_write_takes_its_data_block_with_it() {
    for flags in ["V0", "V7 MN", "A5"] {
        let mut decoder = decoder();
        refusal(&mut decoder, &format!("ms k 2 {flags}\r\nxy\r\n"));
        assert_eq!(decoder.decode(b"xy\r\nmn\r\n"), Decoded::Swallowed { consumed: 4 });
    }
}

/// Otherwise a value that one copy cannot take is deleted from all of them.
#[test]
fn a_value_over_the_limit_drops_what_is_older_and_is_not_deleted() {
    let drops = |line: &str| {
        let forget = refusal(&mut decoder(), line).forget.expect("what the key had is stale");
        assert_eq!(forget.key, b"k");
        forget.older_than
    };
    assert_eq!(drops("ms k 1001 V7\r\n"), Some(Version(7)));
    assert_eq!(drops("ms k 1001\r\n"), None);
}

#[test]
fn a_server_can_refuse_cas_values_that_clients_choose() {
    let mut decoder = decoder();
    decoder.refuse_chosen_cas(true);
    for line in ["ms k 2 E5\r\n", "mg k N0 E5\r\n", "md k I E5\r\n", "ma k E5\r\n"] {
        let told = refusal(&mut decoder, line).message;
        assert_eq!(told, Some(Message::Text("CLIENT_ERROR CAS values cannot be chosen on this server")), "{line:?}");
        if line.starts_with("ms") {
            assert_eq!(decoder.decode(b"xy\r\n"), Decoded::Swallowed { consumed: 4 });
        }
    }
    assert!(matches!(decoder.decode(b"ms k 2 C5\r\nxy\r\n"), Decoded::Command { .. }));
}

#[test]
fn a_read_returns_version_expiry_and_marks() {
    let answer = |meta: ItemMeta, flags: &'static [u8]| {
        let mut out = Vec::new();
        let style = Style::Meta(MetaStyle { flags, ..MetaStyle::default() });
        encode::item(&style, b"k", &ItemRef { meta, value: Value::whole(b"xy") }, 1000, &mut out);
        String::from_utf8(out).unwrap()
    };
    let meta = ItemMeta { cas: 77, expiry: Expiry(1500), expiry_before: Expiry(1500), ..ItemMeta::default() };
    assert_eq!(answer(meta, b" V D Y c"), "HD V77 D1500 Y0 c77\r\n");
    assert_eq!(answer(ItemMeta { unversioned: true, ..meta }, b" V c"), "HD V0 c77\r\n");
    assert_eq!(answer(ItemMeta { stale: true, token_sent: true, ..meta }, b" Y"), "HD Y3 Z X\r\n");
    let never = ItemMeta { token_sent: true, ..ItemMeta::default() };
    assert_eq!(answer(never, b" Y D"), "HD Y2 D0 Z\r\n");
    assert_eq!(answer(meta, b" D T10 t"), "HD D1500 t10\r\n", "before and after a touch");
    assert_eq!(answer(meta, b" D5 c"), "HD c77\r\n", "a delta, which memcached takes and does not look at");
}
