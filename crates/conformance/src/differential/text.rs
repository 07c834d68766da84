//! Classic text commands, valid and nearly so.

use super::stream::{Command, Piece, Role};
use super::words;
use fastrand::Rng;

/// One valid command.
pub fn valid(rng: &mut Rng, item_limit: usize) -> Command {
    match rng.u32(..1000) {
        0..250 => retrieval(rng, &["get", "gets"]),
        250..550 => storage(rng, item_limit),
        550..620 => cas(rng, item_limit),
        620..700 => line(&["delete".into(), key(rng)], rng),
        700..850 => arithmetic(rng),
        850..900 => line(&["touch".into(), key(rng), words::exptime(rng).into()], rng),
        900..950 => get_and_touch(rng),
        950..960 => flush(rng),
        _ => rare(rng),
    }
}

/// One command with something wrong about it, or merely odd.
pub fn near_valid(rng: &mut Rng, item_limit: usize) -> Command {
    match rng.u32(..1000) {
        0..400 => wrong_line(rng),
        400..700 => wrong_storage(rng),
        700..750 => wrong_block(rng),
        750..850 => unknown(rng),
        850..900 => odd_line_end(rng),
        900..903 => Command::new("quit\r\n"),
        903..905 => Command { starts_batch: true, awaits_close: true, ..Command::new(vec![b'x'; 3000]) },
        905..940 => Command {
            role: Role::Retrieval,
            ..Command::new(format!("get {} k1\r\n", "k2 ".repeat(rng.usize(1..1200))))
        },
        _ => valid(rng, item_limit),
    }
}

fn key(rng: &mut Rng) -> String {
    String::from_utf8(words::key(rng)).expect("text keys are UTF-8")
}

/// Joins tokens to a line, sometimes with noreply.
fn line(tokens: &[String], rng: &mut Rng) -> Command {
    let noreply = if rng.u32(..5) == 0 { " noreply" } else { "" };
    Command::new(format!("{}{noreply}\r\n", tokens.join(" ")))
}

fn retrieval(rng: &mut Rng, names: &[&str]) -> Command {
    let name = names[rng.usize(..names.len())];
    let count = if rng.u32(..3) == 0 { rng.usize(2..40) } else { 1 };
    let keys: Vec<String> = (0..count).map(|_| key(rng)).collect();
    Command { role: Role::Retrieval, ..Command::new(format!("{name} {}\r\n", keys.join(" "))) }
}

fn get_and_touch(rng: &mut Rng) -> Command {
    let name = ["gat", "gats"][rng.usize(..2)];
    let keys: Vec<String> = (0..rng.usize(1..4)).map(|_| key(rng)).collect();
    Command { role: Role::Retrieval, ..Command::new(format!("{name} {} {}\r\n", words::exptime(rng), keys.join(" "))) }
}

fn storage_name(rng: &mut Rng) -> &'static str {
    ["set", "set", "set", "add", "replace", "append", "prepend"][rng.usize(..7)]
}

fn storage(rng: &mut Rng, item_limit: usize) -> Command {
    let value = words::value(rng, item_limit);
    let head = [
        storage_name(rng).into(),
        key(rng),
        words::flags(rng).into(),
        words::stored_exptime(rng).into(),
        value.len().to_string(),
    ];
    with_block(line(&head, rng), &value)
}

fn cas(rng: &mut Rng, item_limit: usize) -> Command {
    let value = words::value(rng, item_limit);
    let key = words::key(rng);
    let head = [
        &b"cas "[..],
        &key,
        format!(" {} {} {} ", words::flags(rng), words::stored_exptime(rng), value.len()).as_bytes(),
    ]
    .concat();
    let offset = if rng.u32(..3) == 0 { words::BEYOND } else { 0 };
    let tail: &[u8] = if rng.u32(..6) == 0 { b" noreply\r\n" } else { b"\r\n" };
    let mut command = Command::new(head);
    command.pieces.push(Piece::CasOf { key, offset, binary: false });
    command.pieces.push(Piece::Bytes([tail, &value, b"\r\n"].concat()));
    command
}

fn with_block(mut command: Command, value: &[u8]) -> Command {
    command.pieces.push(Piece::Bytes([value, b"\r\n"].concat()));
    command
}

fn arithmetic(rng: &mut Rng) -> Command {
    let name = ["incr", "decr"][rng.usize(..2)];
    let tokens = [name.into(), key(rng), words::number(rng)];
    Command { role: Role::Arithmetic, ..line(&tokens, rng) }
}

/// Without a delay (rule `flush_all with a delay`).
fn flush(rng: &mut Rng) -> Command {
    let words = ["flush_all", "flush_all 0"];
    line(&[words[rng.usize(..words.len())].into()], rng)
}

fn rare(rng: &mut Rng) -> Command {
    let lines = [
        "version\r\n",
        "verbosity 0\r\n",
        "verbosity 0 noreply\r\n",
        "verbosity\r\n",
        "cache_memlimit 64\r\n",
        "cache_memlimit 64 noreply\r\n",
        "cache_memlimit 1\r\n",
        "stats detail off\r\n",
        "stats detail\r\n",
        "stats reset\r\n",
        "stats detail on\r\nstats reset\r\nstats detail dump\r\nstats detail off\r\n",
        "verbosity x\r\n",
        "lru tune 10 20 0.1 2\r\n",
        "lru tune 50 40 0.1 2\r\n",
        "lru_crawler sleep 100\r\n",
        "lru_crawler tocrawl 0\r\n",
        "shutdown\r\n",
        "mn\r\n",
    ];
    Command::new(lines[rng.usize(..lines.len())])
}

fn unknown(rng: &mut Rng) -> Command {
    let lines = [
        "\r\n",
        "foo\r\n",
        "GET k1\r\n",
        "Set k1 0 0 1\r\n",
        "get\r\n",
        "gets\r\n",
        "gat\r\n",
        "gats\r\n",
        "incr k1\r\n",
        "incr\r\n",
        "decr k1\r\n",
        "delete\r\n",
        "touch\r\n",
        "touch k1\r\n",
        "cache_memlimit\r\n",
        "cache_memlimit x\r\n",
        "flush_all x\r\n",
        "lru_crawler\r\n",
        "lru_crawler foo\r\n",
        "watch foo\r\n",
        "   \r\n",
        "lru_crawler sleep x\r\n",
        "slabs automove x\r\n",
        "getx k1\r\n",
        "ge k1\r\n",
        "noreply\r\n",
        "\x00\r\n",
        "\u{fffd}\r\n",
    ];
    let line = lines[rng.usize(..lines.len())];
    // The reference refuses watch in another way if it finds commands before it in its buffer.
    Command { starts_batch: line.starts_with("watch"), ..Command::new(line) }
}

/// Lines without a data block, mutated token by token. One with a too long key goes alone (rule `replies before a refused get`).
fn wrong_line(rng: &mut Rng) -> Command {
    let mut tokens: Vec<String> = match rng.u32(..6) {
        0 => vec!["get".into(), key(rng), key(rng)],
        1 => vec!["delete".into(), key(rng)],
        2 => vec!["incr".into(), key(rng), words::number(rng)],
        3 => vec!["decr".into(), key(rng), words::number(rng)],
        4 => vec!["touch".into(), key(rng), words::exptime(rng).into()],
        _ => vec!["gat".into(), words::exptime(rng).into(), key(rng)],
    };
    let place = rng.usize(1..tokens.len());
    let mut starts_batch = false;
    match rng.u32(..8) {
        0 => tokens[place] = words::bad_number(rng).into(),
        1 => tokens[place] = words::bad_exptime(rng).into(),
        2 => {
            tokens[place] = String::from_utf8(words::long_key(rng)).expect("ASCII");
            starts_batch = true;
        }
        3 => tokens.push("0".into()),
        4 => tokens.push("0 noreply".into()),
        5 => tokens.insert(place, "noreply".into()),
        // A `gat` that lacks a token is something else to each of them.
        6 if tokens[0] != "gat" => drop(tokens.remove(place)),
        _ => tokens[place] = format!(" {} ", tokens[place]),
    }
    // It may still be a valid command of either kind.
    Command { role: Role::Arithmetic, starts_batch, ..Command::new(format!("{}\r\n", tokens.join(" "))) }
}

/// Storage commands with one wrong token, but for the length (rule `length that cannot be read`). One more token is no error.
fn wrong_storage(rng: &mut Rng) -> Command {
    let value = words::short_text(rng);
    let mut tokens = vec![
        storage_name(rng).to_owned(),
        key(rng),
        words::flags(rng).to_owned(),
        words::stored_exptime(rng).to_owned(),
        value.len().to_string(),
    ];
    match rng.u32(..6) {
        0 => tokens[1] = String::from_utf8(words::long_key(rng)).expect("ASCII"),
        1 => tokens[2] = words::bad_flags(rng).into(),
        2 => tokens[3] = words::bad_exptime(rng).into(),
        3 => {
            tokens[0] = "cas".into();
            tokens.push(words::bad_number(rng).into());
        }
        4 => tokens[0] = "cas".into(),
        _ => {
            tokens.push("yesreply".into());
            return with_block(Command::new(format!("{}\r\n", tokens.join(" "))), &value);
        }
    }
    let mut command = line(&tokens, rng);
    command.pieces.push(Piece::Skipped([&value, &b"\r\n"[..]].concat()));
    command
}

/// Storage commands whose data block is not as long as the line says.
fn wrong_block(rng: &mut Rng) -> Command {
    let value = words::short_text(rng);
    let length = words::wrong_length(rng, value.len());
    let tokens = [storage_name(rng).to_owned(), key(rng), "0".into(), "0".into(), length.to_string()];
    Command { may_swallow: true, ..with_block(line(&tokens, rng), &value) }
}

fn odd_line_end(rng: &mut Rng) -> Command {
    let line = ["get k1\n", "set k1 0 0 1\na\r\n", "delete k1\n", "get k1 \r\n", "incr k1 1\n", "mn\n"][rng.usize(..6)];
    Command { role: Role::Arithmetic, ..Command::new(line) }
}
