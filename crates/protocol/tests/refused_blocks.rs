//! A refused storage command takes its data block with it, whatever of its line is malformed.

#[path = "refused_storage/property.rs"]
mod property;
mod refused_storage;

use moneta_protocol::command::{Command, Style, TextStyle};
use moneta_protocol::decoder::{Decoded, Decoder, Protocol};
use moneta_protocol::refusal::Message;
use proptest::prelude::*;
use refused_storage::{BLOCK, TAKEN, Then, cases};

const ITEM_MAX: usize = 1000;

/// Decodes `input`, which arrives in pieces of `piece` bytes; returns the errors and the number of commands `mn`, and whether the
/// decoder closes. Any other command is one that the client did not send.
fn play(input: &[u8], piece: usize) -> (Vec<&'static str>, usize, bool) {
    let mut decoder = Decoder::new(Protocol::Text, ITEM_MAX);
    let (mut errors, mut noops) = (Vec::new(), 0);
    let (mut consumed, mut arrived) = (0, 0);
    loop {
        match decoder.decode(&input[consumed..arrived]) {
            Decoded::Command { command: Command::Noop(Style::Meta(_)), consumed: taken } => {
                noops += 1;
                consumed += taken;
            }
            Decoded::Command { command, .. } => panic!("the data block was taken for {command:?}"),
            Decoded::Refused { refusal, consumed: taken } => {
                if let Some(Message::Text(line)) = refusal.message {
                    errors.push(line);
                }
                consumed += taken;
                if refusal.close {
                    return (errors, noops, true);
                }
            }
            Decoded::Swallowed { consumed: taken } => consumed += taken,
            Decoded::Partial { .. } if arrived < input.len() => arrived = (arrived + piece).min(input.len()),
            Decoded::Partial { .. } => return (errors, noops, false),
            Decoded::Close => return (errors, noops, true),
        }
    }
}

#[test]
fn a_refused_line_takes_its_data_block_with_it_or_closes() {
    for case in cases() {
        for piece in [1, 7, usize::from(u16::MAX)] {
            let input = format!("{}mn\r\n", case.sent);
            let expected: Vec<&str> = [case.answer].into_iter().filter(|answer| !answer.is_empty()).collect();
            let closes = case.then == Then::Closes;
            let noops = usize::from(!closes);
            assert_eq!(play(input.as_bytes(), piece), (expected, noops, closes), "{:?} by {piece}", case.sent);
        }
    }
}

/// Without this a block of 2 GiB after a malformed line would be kept until it is complete.
#[test]
fn the_block_of_a_refused_line_needs_no_room() {
    for line in ["set k -1 0 2000000000\r\n", "cas k 0 0 2000000000 x\r\n", "ms k 2000000000 F-1\r\n"] {
        let mut decoder = Decoder::new(Protocol::Text, ITEM_MAX);
        match decoder.decode(line.as_bytes()) {
            Decoded::Refused { refusal, consumed } => assert_eq!((consumed, refusal.close), (line.len(), false)),
            other => panic!("{line:?}: {other:?}"),
        }
        let piece = vec![b'x'; 1 << 20];
        let mut left = 2_000_000_002_usize;
        while left > 0 {
            let taken = left.min(piece.len());
            assert_eq!(decoder.decode(&piece[..taken]), Decoded::Swallowed { consumed: taken }, "{line:?}");
            left -= taken;
        }
        assert!(matches!(decoder.decode(b"mn\r\n"), Decoded::Command { command: Command::Noop(_), .. }));
    }
}

#[test]
fn tokens_behind_the_last_one_that_counts_are_not_looked_at() {
    for (line, answer) in TAKEN {
        let input = format!("{line}\r\n{BLOCK}\r\n");
        match Decoder::new(Protocol::Text, ITEM_MAX).decode(input.as_bytes()) {
            Decoded::Command { command: Command::Set { key, value, style: Style::Text(style), .. }, consumed } => {
                assert_eq!((key, value, consumed), (&b"k"[..], BLOCK.as_bytes(), input.len()), "{line:?}");
                assert_eq!(style, TextStyle { noreply: answer.is_empty(), ..TextStyle::default() }, "{line:?}");
            }
            other => panic!("{line:?}: {other:?}"),
        }
    }
}

/// A token of a storage command's line: well formed, malformed, or missing. `LENGTH` becomes the length of the data block.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "k", "0", "5", "-1", "1.5", "x", "+1", "noreply", "", "4294967296", "9223372036854775808", "LENGTH", "LENGTH", "LENGTH", "F7", "Tx", "k k", "!",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Without this a value that a client stores is run as commands, by some way of malforming the line that no table has.
    #[test]
    fn no_data_block_is_taken_for_commands(
        word in prop::sample::select(property::WORDS.to_vec()),
        tokens in prop::collection::vec(token(), 0..8),
        block in prop::sample::select(vec!["", "flush_all", "mn", "x\r\nflush_all", "get k\r\nset k 0 0 1\r\nx", "delete k\r\n"]),
        piece in 1..40usize,
    ) {
        let rest = tokens.join(" ").replace("LENGTH", &block.len().to_string());
        property::check(word, rest.as_bytes(), block.as_bytes(), piece);
    }
}
