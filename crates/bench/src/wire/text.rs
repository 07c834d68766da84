//! The classic text protocol, from the client's side.

use super::{Answer, Command, Expected, Parsed, Reply, data_block, decimal, excerpt, is_error, line, number};
use crate::operation::Operation;

pub(super) fn begin(out: &mut Vec<u8>, command: Command<'_>) {
    out.extend_from_slice(command.operation.name().as_bytes());
    out.push(b' ');
    if command.operation == Operation::Gat {
        decimal(out, u64::from(command.ttl));
        out.push(b' ');
    }
    out.extend_from_slice(command.key);
    match command.operation {
        operation if operation.stores() => {
            out.extend_from_slice(b" 0 ");
            decimal(out, u64::from(command.ttl));
            out.push(b' ');
            decimal(out, command.value_length as u64);
        }
        Operation::Incr | Operation::Decr => out.extend_from_slice(b" 1"),
        Operation::Touch => {
            out.push(b' ');
            decimal(out, u64::from(command.ttl));
        }
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
}

pub(super) fn parse(buffer: &[u8], expected: Expected) -> Parsed<'_> {
    let Some((line, head)) = line(buffer)? else { return Ok(None) };
    if is_error(line) {
        return Ok(Some(Reply { answer: Answer::Failed(line), length: head, last: true }));
    }
    match expected {
        Expected::Status => status(line).map(|answer| Some(Reply { answer, length: head, last: true })),
        Expected::Value | Expected::Values => value(buffer, line, head),
    }
}

fn value<'a>(buffer: &'a [u8], line: &'a [u8], head: usize) -> Parsed<'a> {
    if line == b"END" {
        return Ok(Some(Reply { answer: Answer::End, length: head, last: true }));
    }
    let unexpected = || format!("expected VALUE or END, got {}", excerpt(line));
    let rest = line.strip_prefix(b"VALUE ").ok_or_else(unexpected)?;
    let mut words = rest.split(|byte| *byte == b' ');
    let key = words.next().unwrap_or_default();
    let length = words.nth(1).and_then(number).ok_or_else(unexpected)?;
    let Some((data, length)) = data_block(buffer, head, length as usize)? else { return Ok(None) };
    Ok(Some(Reply { answer: Answer::Hit { key, data }, length, last: false }))
}

fn status(line: &[u8]) -> Result<Answer<'_>, String> {
    match line {
        b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" => Ok(Answer::Done),
        b"NOT_FOUND" => Ok(Answer::Missing),
        b"NOT_STORED" | b"EXISTS" => Ok(Answer::NotStored),
        // A decremented number is padded with spaces when it gets shorter.
        _ if number(line.trim_ascii_end()).is_some() => Ok(Answer::Done),
        _ => Err(format!("expected a status, got {}", excerpt(line))),
    }
}
