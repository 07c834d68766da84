//! Meta commands, valid and nearly so. Flags that only newer memcached knows are left out (rule `newer meta flags`).

use super::stream::{Command, Piece, Role};
use super::{text, words};
use fastrand::Rng;

/// One valid meta command, or now and then a classic one.
pub fn valid(rng: &mut Rng, item_limit: usize) -> Command {
    match rng.u32(..100) {
        0..35 => get(rng),
        35..65 => set(rng, item_limit),
        65..75 => delete(rng),
        75..90 => arithmetic(rng),
        90..93 => Command::new("mn\r\n"),
        93..95 => debug(rng),
        _ => text::valid(rng, item_limit),
    }
}

/// One command with something wrong about it.
pub fn near_valid(rng: &mut Rng, item_limit: usize) -> Command {
    match rng.u32(..100) {
        0..20 => repeated_flag(rng),
        20..40 => wrong_token(rng),
        40..60 => wrong_set(rng),
        60..75 => unknown(rng),
        75..80 => long_lists(rng),
        _ => valid(rng, item_limit),
    }
}

/// A key as written, and the flag that says how.
fn key(rng: &mut Rng) -> (String, &'static str) {
    if rng.u32(..8) == 0 {
        let keys = words::base64_keys();
        return (String::from_utf8(keys[rng.usize(..keys.len())].clone()).expect("base64 is ASCII"), " b");
    }
    (String::from_utf8(words::key(rng)).expect("text keys are UTF-8"), "")
}

fn opaque(rng: &mut Rng) -> String {
    format!("O{}", rng.u32(..100_000))
}

/// Some of `choices`, in random order, each at most once.
fn some(rng: &mut Rng, choices: &mut [String]) -> String {
    rng.shuffle(choices);
    let count = rng.usize(..=choices.len().min(6));
    choices[..count].iter().map(|choice| format!(" {choice}")).collect()
}

/// A TTL for items that a command may create: the reference shows one in the past as a number near 2^32.
fn lasting(rng: &mut Rng) -> &'static str {
    ["0", "100", "1000", "2592000", "2147483647"][rng.usize(..5)]
}

fn get(rng: &mut Rng) -> Command {
    let (key, base64) = key(rng);
    let mut choices: Vec<String> = ["c", "f", "h", "l", "q", "s", "t", "v", "v", "v"].map(String::from).to_vec();
    choices.dedup();
    // The reference echoes the key as the item was stored (rule `how a key is echoed`).
    if base64.is_empty() {
        choices.push("k".to_owned());
    }
    choices.push(opaque(rng));
    if rng.u32(..3) == 0 {
        // The reference forgets that the key of an item it creates was base64 (rule `N with a base64 key`).
        if base64.is_empty() {
            choices.push(format!("N{}", ["0", "100", "1000"][rng.usize(..3)]));
        }
        choices.push(format!("R{}", ["0", "30", "500", "100000"][rng.usize(..4)]));
        choices.push(format!("T{}", lasting(rng)));
    }
    let mut flags = some(rng, &mut choices);
    // Rule `R behind T`.
    if let (Some(touch), Some(recache)) = (flags.find(" T"), flags.find(" R"))
        && touch < recache
    {
        let end = flags[recache + 1..].find(' ').map_or(flags.len(), |length| recache + 1 + length);
        flags.replace_range(recache..end, "");
    }
    Command { role: Role::Retrieval, ..Command::new(format!("mg {key}{base64}{flags}\r\n")) }
}

fn set(rng: &mut Rng, item_limit: usize) -> Command {
    let (key, base64) = key(rng);
    let value = words::value(rng, item_limit);
    let modes = ["ME", "MA", "MP", "MR", "MS", "Ma", "Mset"];
    let mut choices = vec![
        format!("F{}", words::flags(rng)),
        format!("T{}", words::exptime(rng)),
        modes[rng.usize(..modes.len())].to_owned(),
        "k".to_owned(),
        "q".to_owned(),
        "I".to_owned(),
        opaque(rng),
    ];
    let flags = some(rng, &mut choices);
    let mut command = Command::new(format!("ms {key} {}{base64}{flags}", value.len()));
    if rng.u32(..4) == 0 {
        push_cas(rng, &mut command, key, base64);
    }
    command.pieces.push(Piece::Bytes([b"\r\n", value.as_slice(), b"\r\n"].concat()));
    command
}

/// The reference looks items up by text keys only, so a base64 key gets a made-up CAS value.
fn push_cas(rng: &mut Rng, command: &mut Command, key: String, base64: &str) {
    if !base64.is_empty() {
        command.pieces.push(Piece::Bytes(b" C1".to_vec()));
        return;
    }
    command.pieces.push(Piece::Bytes(b" C".to_vec()));
    let offset = if rng.u32(..3) == 0 { words::BEYOND } else { 0 };
    command.pieces.push(Piece::CasOf { key: key.into_bytes(), offset, binary: false });
}

fn delete(rng: &mut Rng) -> Command {
    let (key, base64) = key(rng);
    let mut choices = vec!["k".to_owned(), "q".to_owned(), "I".to_owned(), "T30".to_owned(), opaque(rng)];
    let flags = some(rng, &mut choices);
    let mut command = Command::new(format!("md {key}{base64}{flags}"));
    if rng.u32(..4) == 0 {
        push_cas(rng, &mut command, key, base64);
    }
    command.pieces.push(Piece::Bytes(b"\r\n".to_vec()));
    command
}

fn arithmetic(rng: &mut Rng) -> Command {
    let (key, base64) = key(rng);
    let modes = ["MI", "M+", "Mincr", "MD", "M-", "Mdecr"];
    let mut choices = vec![
        // See `get`.
        if base64.is_empty() { "N100".to_owned() } else { opaque(rng) },
        if base64.is_empty() { "k".to_owned() } else { "c".to_owned() },
        format!("J{}", words::number(rng)),
        format!("D{}", words::number(rng)),
        format!("T{}", lasting(rng)),
        modes[rng.usize(..modes.len())].to_owned(),
        "t".to_owned(),
        "v".to_owned(),
    ];
    if base64.is_empty() {
        choices.extend(["c".to_owned(), opaque(rng)]);
    }
    let mut flags = some(rng, &mut choices);
    // The reference forgets the q of a counter it creates (rule `q on a counter that is created`).
    if !flags.contains(" N") && rng.bool() {
        flags.push_str(" q");
    }
    // Rule `T on a number that grows`: the item is new, or holds more digits than any number here has.
    // The many digits go again: with one more appended they would be too many for Moneta (rule `numbers`).
    let (before, after) = match flags.contains(" T") {
        true if flags.contains(" N") && rng.bool() => (format!("md {key}{base64} q\r\n"), String::new()),
        true => (
            format!("ms {key} 20{base64} q\r\n00000000000000000001\r\n"),
            format!("mg {key}{base64} t\r\nms {key} 1{base64} q\r\n0\r\n"),
        ),
        false => Default::default(),
    };
    Command { role: Role::Arithmetic, ..Command::new(format!("{before}ma {key}{base64}{flags}\r\n{after}")) }
}

fn debug(rng: &mut Rng) -> Command {
    Command::new(format!("me {}\r\n", String::from_utf8(words::key(rng)).expect("text keys are UTF-8")))
}

/// Of mg only: 1.6.18 words the refusal of the others in another way (rule `newer meta flags`).
fn repeated_flag(rng: &mut Rng) -> Command {
    let flag = ["k", "v", "t", "c", "q", "O1", "T30"][rng.usize(..7)];
    let (key, _) = key(rng);
    Command { role: Role::Retrieval, ..Command::new(format!("mg {key} {flag} {flag}\r\n")) }
}

fn wrong_token(rng: &mut Rng) -> Command {
    let (key, _) = key(rng);
    let long = String::from_utf8(words::long_key(rng)).expect("ASCII");
    let line = match rng.u32(..12) {
        0 => format!("mg {long} v"),
        1 => format!("md {long}"),
        2 => format!("ma {long}"),
        3 => format!("mg {key} T{}", words::bad_exptime(rng)),
        4 => format!("mg {key} N{}", words::bad_exptime(rng)),
        5 => format!("mg {key} R{}", words::bad_exptime(rng)),
        6 => format!("ma {key} D{}", words::bad_number(rng)),
        7 => format!("ma {key} N0 J{}", words::bad_number(rng)),
        8 => format!("ma {key} M{}", ["X", "", "S", "E"][rng.usize(..4)]),
        // Rule `opaque that is too long`: no item has this key.
        9 => format!("mg absent O{}", "o".repeat(rng.usize(28..40))),
        10 => "mg not*base64 b v".to_owned(),
        _ => format!("md {key} C{}", words::bad_number(rng)),
    };
    Command { role: Role::Arithmetic, ..Command::new(format!("{line}\r\n")) }
}

fn wrong_set(rng: &mut Rng) -> Command {
    let (key, _) = key(rng);
    let value = words::short_text(rng);
    let block = String::from_utf8(value).expect("ASCII");
    let length = block.len();
    let (line, may_swallow) = match rng.u32(..5) {
        0 => (format!("ms {key} {} q", words::wrong_length(rng, length)), true),
        1 => (format!("ms {key} {}", words::wrong_length(rng, length)), true),
        2 => (format!("ms {key} {length} F{}", words::bad_flags(rng)), true),
        3 => (format!("ms {key} {length} T{}", words::bad_exptime(rng)), true),
        _ => (format!("ms {key} {length} M{}", ["X", "", "I"][rng.usize(..3)]), true),
    };
    Command { may_swallow, ..Command::new(format!("{line}\r\n{block}\r\n")) }
}

fn unknown(rng: &mut Rng) -> Command {
    let lines = [
        "mg\r\n",
        "md\r\n",
        "ma\r\n",
        "me\r\n",
        "mx k1\r\n",
        "MG k1 v\r\n",
        "m\r\n",
        "mgx k1\r\n",
        "mn k1\r\n",
        "mg \r\n",
        "mnx\r\n",
        "me k1 k2\r\n",
    ];
    Command::new(lines[rng.usize(..lines.len())])
}

/// About as many tokens as a meta line may have, and more (but for the rule `20 tokens on a meta line`).
fn long_lists(rng: &mut Rng) -> Command {
    let (key, _) = key(rng);
    let count = [15, 16, 17, 19, 20, 21, 26][rng.usize(..7)];
    let flags: String = ('a'..='z').take(count).map(|letter| format!(" {letter}")).collect();
    Command::new(format!("mg {key}{flags}\r\n"))
}
