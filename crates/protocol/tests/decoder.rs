//! The decoder by itself: what it makes of bytes, and what it promises of any bytes at all.

use moneta_item::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_protocol::command::{Command, Keys, ReadVerb, Style, TextStyle};
use moneta_protocol::decoder::{Decoded, Decoder, Protocol, Shortcut};
use moneta_protocol::refusal::Message;
use moneta_protocol::status::Status;
use proptest::prelude::*;

const ITEM_MAX: usize = 1000;

fn decoder() -> Decoder {
    Decoder::new(Protocol::Any, ITEM_MAX)
}

fn text(noreply: bool, with_cas: bool) -> Style<'static> {
    Style::Text(TextStyle { noreply, with_cas, more: false })
}

#[test]
fn text_commands_become_what_they_say() {
    let get = |keys, with_cas: bool, touch: Option<i64>| Command::Get {
        keys: Keys::Line(keys),
        request: Retrieve { touch: touch.map(Exptime), brief: !with_cas, ..Retrieve::default() },
        verb: if touch.is_some() { ReadVerb::GetAndTouch } else { ReadVerb::Get },
        style: text(false, with_cas),
    };
    let set = |mode, compare, noreply| Command::Set {
        key: b"a",
        value: b"xy",
        request: Write { mode, flags: 5, exptime: Exptime(-9), compare, ..Write::default() },
        style: text(noreply, false),
    };
    let cases: [(&str, Command<'_>); 11] = [
        ("get a b\r\n", get(b" a b", false, None)),
        ("gets a\n", get(b" a", true, None)),
        ("gat 10 a\r\n", get(b" a", false, Some(10))),
        ("set a 5 -9 2\r\nxy\r\n", set(WriteMode::Set, None, false)),
        ("add a 5 -9 2 noreply\r\nxy\r\n", set(WriteMode::Add, None, true)),
        ("append a 5 -9 2 no\r\nxy\r\n", set(WriteMode::Append, None, false)),
        ("cas a 5 -9 2 77\r\nxy\r\n", set(WriteMode::Set, Some(77), false)),
        ("cas a 5 -9 2 77 noreply\r\nxy\r\n", set(WriteMode::Set, Some(77), true)),
        ("delete a noreply\r\n", Command::Delete { key: b"a", request: Delete::default(), style: text(true, false) }),
        ("stats  items 1 \r\n", Command::Stats { arguments: b"items 1", style: text(false, false) }),
        ("flush_all 10\r\n", Command::FlushAll { delay: Exptime(10), style: text(false, false) }),
    ];
    for (line, expected) in cases {
        let decoded = Decoded::Command { command: expected, consumed: line.len() };
        assert_eq!(decoder().decode(line.as_bytes()), decoded, "{line:?}");
    }
}

#[test]
fn what_is_missing_is_asked_for_once() {
    let mut decoder = decoder();
    assert_eq!(decoder.decode(b""), Decoded::Partial { needed: 1 });
    assert_eq!(decoder.decode(b"set a 0"), Decoded::Partial { needed: 8 });
    assert_eq!(decoder.decode(b"set a 0 0 5\r\n"), Decoded::Partial { needed: 13 + 7 });
    assert!(matches!(decoder.decode(b"set a 0 0 5\r\nhello\r\n"), Decoded::Command { consumed: 20, .. }));
    let mut binary = Decoder::new(Protocol::Any, ITEM_MAX);
    assert_eq!(binary.decode(&[0x80]), Decoded::Partial { needed: 24 });
    let header = [&[0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0, 12][..], &[0; 12]].concat();
    assert_eq!(binary.decode(&header), Decoded::Partial { needed: 33 });
    assert_eq!(binary.decode(&[&header[..], &[0; 9]].concat()), Decoded::Partial { needed: 36 });
}

#[test]
fn a_refused_value_is_swallowed_as_it_comes() {
    let mut decoder = decoder();
    match decoder.decode(b"set a 0 0 1001\r\nxxxx") {
        Decoded::Refused { refusal, consumed } => {
            assert_eq!((consumed, refusal.close, refusal.too_large), (16, false, true));
            assert_eq!(refusal.message, Some(Message::Text("SERVER_ERROR object too large for cache")));
            assert_eq!(refusal.forget.map(|forget| forget.key), Some(&b"a"[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(decoder.decode(b"xxxx"), Decoded::Swallowed { consumed: 4 });
    assert_eq!(decoder.decode(&[b'x'; 2000]), Decoded::Swallowed { consumed: 999 });
    assert!(matches!(decoder.decode(b"mn\r\n"), Decoded::Command { .. }));
}

/// Without this a header of 28 bytes that claims a body of 4 GiB makes a server keep all of them for one client.
#[test]
fn a_touch_with_a_body_over_the_limit_is_refused_and_swallowed() {
    for opcode in [0x1c, 0x1d, 0x1e, 0x23, 0x24] {
        let mut decoder = decoder();
        let header = [&[0x80, opcode, 0, 1, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[0; 12], b"\0\0\0\0k"].concat();
        match decoder.decode(&header) {
            Decoded::Refused { refusal, consumed } => {
                assert_eq!((consumed, refusal.close, refusal.too_large), (header.len(), false, true));
                assert!(matches!(refusal.message, Some(Message::Binary(_, Status::TooLarge))), "{refusal:?}");
                assert_eq!(refusal.forget, None, "a touch that is refused takes no item away");
            }
            other => panic!("{opcode:#x}: {other:?}"),
        }
        let mut left = u64::from(u32::MAX) - 5;
        let zeros = vec![0; 1 << 24];
        while left > 0 {
            let piece = usize::try_from(left).unwrap().min(zeros.len());
            assert_eq!(decoder.decode(&zeros[..piece]), Decoded::Swallowed { consumed: piece });
            left -= piece as u64;
        }
        let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
        assert!(matches!(decoder.decode(&noop), Decoded::Command { command: Command::Noop(_), .. }));
    }
}

/// Executes `input` as a session would and notes what came out; `cuts` are the lengths of the pieces it arrives in.
fn run(input: &[u8], pieces: &[usize], use_shortcut: bool) -> Vec<String> {
    let mut decoder = decoder();
    let mut seen = Vec::new();
    let (mut consumed, mut arrived) = (0, 0);
    let mut pieces = pieces.iter();
    loop {
        let available = &input[consumed..arrived];
        if use_shortcut && let Some(shortcut) = decoder.shortcut(available) {
            let (command, taken) = expand(shortcut);
            seen.push(format!("{command:?}"));
            consumed += taken;
            continue;
        }
        match decoder.decode(available) {
            Decoded::Command { command, consumed: taken } => {
                assert!(taken > 0 && taken <= available.len());
                seen.push(format!("{:?}", plainest(command)));
                consumed += taken;
            }
            Decoded::Refused { refusal, consumed: taken } => {
                assert!(taken > 0 && taken <= available.len());
                seen.push(format!("{refusal:?}"));
                consumed += taken;
                if refusal.close {
                    return seen;
                }
            }
            Decoded::Swallowed { consumed: taken } => {
                assert!(taken > 0 && taken <= available.len());
                consumed += taken;
            }
            Decoded::Close => {
                seen.push("close".to_owned());
                return seen;
            }
            Decoded::Partial { needed } => {
                assert!(needed > available.len(), "asks for what is there");
                assert!(needed <= Decoder::needed_max(ITEM_MAX), "asks for {needed} bytes");
                if arrived == input.len() {
                    return seen;
                }
                let piece = pieces.next().map_or(usize::MAX, |&piece| piece.max(1));
                arrived = arrived.saturating_add(piece).min(input.len());
            }
        }
    }
}

fn expand(shortcut: Shortcut<'_>) -> (Command<'_>, usize) {
    match shortcut {
        Shortcut::Get { key, consumed } => {
            let (keys, request) = (Keys::One(key), Retrieve::BRIEF);
            (Command::Get { keys, request, verb: ReadVerb::Get, style: text(false, false) }, consumed)
        }
        Shortcut::Set { key, value, flags, exptime, noreply, consumed } => {
            let request = Write { flags, exptime, ..Write::default() };
            (Command::Set { key, value, request, style: text(noreply, false) }, consumed)
        }
    }
}

/// A `get` of one key the way a shortcut says it.
fn plainest(command: Command<'_>) -> Command<'_> {
    match command {
        Command::Get { keys: Keys::Line(line), request, verb: ReadVerb::Get, style } if style == text(false, false) => {
            let mut rest = Keys::Line(line);
            let first = rest.split_first().unwrap_or_default();
            let keys = if rest.split_first().is_none() { Keys::One(first) } else { Keys::Line(line) };
            Command::Get { keys, request, verb: ReadVerb::Get, style }
        }
        other => other,
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "get ", "set ", "a", "key", " ", "0", "12", "1234567890", " 0 0 2", "\r\n", "\n", "xy", " noreply", "-1", "\t", "mg ", "ms ", "b", "é",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{0,4}",
        1 => prop::sample::select(vec!["get abc\r\n", "set a 1 2 2\r\nxy\r\n", "set a 1 2 2 noreply\r\nxy\r\n", "get é\r\n"]).prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Without this a client would be answered differently depending on how its packets happen to be cut.
    #[test]
    fn the_short_way_says_what_the_long_way_says(pieces in prop::collection::vec(piece(), 0..12), cuts in prop::collection::vec(1..30usize, 0..10)) {
        let input = pieces.concat();
        let long = run(input.as_bytes(), &[], false);
        prop_assert_eq!(run(input.as_bytes(), &[], true), long.clone());
        prop_assert_eq!(run(input.as_bytes(), &cuts, true), long);
    }

    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(1..50usize, 0..6)) {
        run(&input, &cuts, true);
    }

    #[test]
    fn any_packet_is_survived(fields in prop::collection::vec(any::<u8>(), 23), body in prop::collection::vec(any::<u8>(), 0..60), small in any::<bool>()) {
        let mut input = vec![0x80];
        input.extend_from_slice(&fields);
        if small {
            // Lengths that meet the body now and then.
            input[2] = 0;
            input[3] %= 8;
            input[4] %= 24;
            input[8..11].fill(0);
            input[11] %= 48;
        } else {
            // Lengths of key and extras that requests have, with a body as long as it likes to say.
            (input[2], input[3], input[4]) = (0, input[3] % 8, [0, 4, 8, 20][usize::from(input[4] % 4)]);
        }
        input.extend_from_slice(&body);
        run(&input, &[], false);
    }
}
