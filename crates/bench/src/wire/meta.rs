//! The meta text protocol, from the client's side.

use super::{Answer, Command, Expected, Parsed, Reply, data_block, decimal, excerpt, is_error, line, number};
use crate::operation::Operation;

pub(super) fn begin(out: &mut Vec<u8>, command: Command<'_>) {
    let (name, flags): (&[u8], &[u8]) = match command.operation {
        Operation::Get => (b"mg ", b" v"),
        Operation::Gets => (b"mg ", b" c v"),
        Operation::Gat => (b"mg ", b" v T"),
        Operation::Touch => (b"mg ", b" T"),
        Operation::Set => (b"ms ", b" T"),
        Operation::Add => (b"ms ", b" ME T"),
        Operation::Replace => (b"ms ", b" MR T"),
        Operation::Append => (b"ms ", b" MA T"),
        Operation::Prepend => (b"ms ", b" MP T"),
        Operation::Delete => (b"md ", b""),
        Operation::Incr => (b"ma ", b" D1"),
        Operation::Decr => (b"ma ", b" MD D1"),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(command.key);
    if command.operation.stores() {
        out.push(b' ');
        decimal(out, command.value_length as u64);
    }
    out.extend_from_slice(flags);
    if flags.last() == Some(&b'T') {
        decimal(out, u64::from(command.ttl));
    }
    out.extend_from_slice(b"\r\n");
}

pub(super) fn multiget_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" k v q\r\n");
}

pub(super) fn parse(buffer: &[u8], expected: Expected) -> Parsed<'_> {
    let Some((line, head)) = line(buffer)? else { return Ok(None) };
    if line.starts_with(b"VA ") && expected != Expected::Status {
        return value(buffer, line, head, expected);
    }
    let answer = match line {
        _ if is_error(line) => Answer::Failed(line),
        b"MN" if expected == Expected::Values => Answer::End,
        _ => status(line.get(..2).unwrap_or_default(), expected)
            .ok_or_else(|| format!("expected the answer to a meta command, got {}", excerpt(line)))?,
    };
    Ok(Some(Reply { answer, length: head, last: true }))
}

fn value<'a>(buffer: &'a [u8], line: &'a [u8], head: usize, expected: Expected) -> Parsed<'a> {
    let mut words = line[3..].split(|byte| *byte == b' ');
    let length = words.next().and_then(number).ok_or_else(|| format!("no length in {}", excerpt(line)))?;
    let key = words.find_map(|flag| flag.strip_prefix(b"k")).unwrap_or_default();
    let Some((data, length)) = data_block(buffer, head, length as usize)? else { return Ok(None) };
    Ok(Some(Reply { answer: Answer::Hit { key, data }, length, last: expected == Expected::Value }))
}

fn status(code: &[u8], expected: Expected) -> Option<Answer<'static>> {
    match (code, expected) {
        (b"EN", Expected::Value) => Some(Answer::End),
        (b"EN" | b"NF", Expected::Status) => Some(Answer::Missing),
        (b"HD", Expected::Status) => Some(Answer::Done),
        (b"NS" | b"EX", Expected::Status) => Some(Answer::NotStored),
        _ => None,
    }
}
