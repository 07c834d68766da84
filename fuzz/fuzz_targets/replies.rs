//! Any bytes as a remote server's replies: whatever it answers to whatever was asked, nothing panics, what is waited for, skipped
//! and kept is bounded, and what is understood does not depend on the cuts. The first byte says what was asked over which
//! protocol, the second how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_client::wire::{
    Answer, Broken, Decoded, Dialect, LINE_MAX, LIST_MAX, Probe, Probed, Protocol, Read, Request, VALUE_LIMIT, Verb,
    decode, encode,
};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Newer, Version};

/// Largest value that the reader takes.
const VALUE_MAX: usize = 1000;
/// Most bytes of a reply beside a value: a line, or a packet's header, extras and key.
const FRAME_MAX: usize = 24 + 255 + 65_535;
/// The number that requests go out with.
const NUMBER: u32 = 7;
const PROTOCOLS: [Protocol; 3] = [Protocol::Meta, Protocol::Binary, Protocol::Text];

fn verb(which: u8) -> Verb {
    let retrieve = Retrieve::default();
    match which % 14 {
        0 => Verb::Read(Read { retrieve, value: true }),
        1 => Verb::Peek { value: true },
        2 => Verb::Peek { value: false },
        3 => Verb::Write(Write::default()),
        4 => Verb::Write(Write { mode: WriteMode::Add, ..Write::default() }),
        5 => Verb::Write(Write { mode: WriteMode::Replace, ..Write::default() }),
        6 => Verb::Delete(Delete::default()),
        7 => Verb::Arithmetic(Arithmetic { delta: 1, ..Arithmetic::default() }),
        8 => Verb::Flush(Exptime(0)),
        9 => Verb::Statistics,
        10 => Verb::PutNewer(Newer { version: Version(7), ..Newer::default() }),
        11 => Verb::Bury(Version(7)),
        12 => Verb::Floor { version: Version(7), second: 9 },
        _ => Verb::Noop,
    }
}

/// What a step comes to must be within bounds.
fn check(step: &Result<Decoded<'_>, Broken>, verb: Verb, input: &[u8]) {
    let reads = matches!(verb, Verb::Read(_) | Verb::Peek { .. });
    match step {
        Ok(Decoded::Partial { needed }) => {
            let most = if reads { FRAME_MAX.max(LINE_MAX) + VALUE_MAX + 7 } else { FRAME_MAX + LIST_MAX + 1 };
            assert!(*needed > input.len(), "waits for what is there");
            assert!(*needed <= most, "waits for {needed} bytes");
        }
        Ok(Decoded::Oversized { skip }) => {
            assert!(*skip > VALUE_MAX && *skip <= FRAME_MAX + VALUE_LIMIT + 7, "skips {skip} bytes");
        }
        Ok(Decoded::Answer { answer, consumed }) => {
            assert!((1..=input.len()).contains(consumed));
            match answer {
                Answer::Hit(seen) => assert!(seen.value.len() <= VALUE_MAX && seen.size <= VALUE_LIMIT),
                Answer::Statistics(list) => {
                    // A byte that is no text becomes three.
                    let held: usize = list.iter().map(|(name, value)| name.len() + value.len()).sum();
                    assert!(held <= 3 * consumed && list.len() <= consumed / 6);
                }
                Answer::Refused(_, words) => assert!(words.len() <= 3 * 200),
                _ => {}
            }
        }
        Err(_) => {}
    }
}

/// What the front of the input comes to when it arrives in pieces.
fn piecewise<'a>(
    input: &'a [u8],
    piece: usize,
    step: impl Fn(&'a [u8]) -> Result<Decoded<'a>, Broken>,
) -> Result<Decoded<'a>, Broken> {
    let (mut arrived, mut needed) = (0, 1);
    loop {
        let decoded = step(&input[..arrived]);
        match &decoded {
            Ok(Decoded::Partial { needed: more }) => needed = *more,
            _ => {
                // Who waits until it is worth it must not wait for more than there will be.
                assert!(arrived >= needed || decoded.is_err(), "{decoded:?} with {arrived} bytes, not {needed}");
                return decoded;
            }
        }
        if arrived == input.len() {
            return decoded;
        }
        arrived = (arrived + piece).min(input.len());
    }
}

fn replies(protocol: Protocol, verb: Verb, mut input: &[u8], piece: usize) {
    let dialect = Dialect { explicit_cas: true, versions: true, ..Dialect::least(protocol) };
    let request = Request { verb, key: b"key", value: b"" };
    let mut out = Vec::new();
    let Ok(expect) = encode(&request, dialect, NUMBER, &mut out) else { return };
    loop {
        let whole = decode(input, protocol, &expect, VALUE_MAX);
        check(&whole, verb, input);
        assert_eq!(
            whole,
            piecewise(input, piece, |input| decode(input, protocol, &expect, VALUE_MAX)),
            "the cuts show"
        );
        input = match whole {
            Ok(Decoded::Answer { consumed, .. }) => &input[consumed..],
            Ok(Decoded::Oversized { skip }) if skip <= input.len() => &input[skip..],
            _ => return,
        };
    }
}

/// The dialogue in which a connection finds out what the server speaks.
fn probe(options: u8, input: &[u8], piece: usize) {
    let protocol = PROTOCOLS.get(usize::from(options % 4)).copied();
    let mut whole = Probe::begin(protocol, options & 4 != 0, &mut Vec::new());
    let whole = whole.look(input);
    let mut cut = Probe::begin(protocol, options & 4 != 0, &mut Vec::new());
    let mut arrived = 0;
    let cut = loop {
        match cut.look(&input[..arrived]) {
            Ok(Probed::Partial) if arrived < input.len() => arrived = (arrived + piece).min(input.len()),
            ended => break ended,
        }
    };
    match &whole {
        Ok(Probed::Dialect(_, consumed)) => assert!(*consumed <= input.len()),
        Ok(Probed::Refused(why) | Probed::LogInRefused(why)) => assert!(why.len() <= 3 * 200),
        Ok(Probed::Partial) => assert!(input.len() <= 4 * LINE_MAX + FRAME_MAX + LIST_MAX, "it listens for ever"),
        Err(_) => {}
    }
    assert_eq!(whole, cut, "the cuts show");
}

fuzz_target!(|data: &[u8]| {
    let Some(([asked, piece], input)) = data.split_first_chunk() else { return };
    let piece = usize::from(*piece).max(1);
    match PROTOCOLS.get(usize::from(asked & 3)) {
        Some(protocol) => replies(*protocol, verb(asked >> 2), input, piece),
        None => probe(asked >> 2, input, piece),
    }
});
