//! The binary protocol, from the client's side.
//!
//! ```text
//! 0      1      2      4      5      6      8            12       16       24
//! +------+------+------+------+------+------+------------+--------+--------+--------+-----+-------+
//! | magic|opcode| key  |extras| type |status|   body     | opaque |  CAS   | extras | key | value |
//! +------+------+------+------+------+------+------------+--------+--------+--------+-----+-------+
//! ```

use super::{Answer, Command, Expected, Parsed, Reply};
use crate::operation::Operation;

const HEADER: usize = 24;
const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const GETKQ: u8 = 0x0d;
const NOOP: u8 = 0x0a;
/// The expiration time that tells incr and decr not to create the key.
const DO_NOT_CREATE: u32 = u32::MAX;

const fn opcode(operation: Operation) -> u8 {
    match operation {
        Operation::Get | Operation::Gets => 0x00,
        Operation::Set => 0x01,
        Operation::Add => 0x02,
        Operation::Replace => 0x03,
        Operation::Delete => 0x04,
        Operation::Incr => 0x05,
        Operation::Decr => 0x06,
        Operation::Append => 0x0e,
        Operation::Prepend => 0x0f,
        Operation::Touch => 0x1c,
        Operation::Gat => 0x1d,
    }
}

const fn extras_length(operation: Operation) -> usize {
    match operation {
        Operation::Set | Operation::Add | Operation::Replace => 8,
        Operation::Incr | Operation::Decr => 20,
        Operation::Touch | Operation::Gat => 4,
        _ => 0,
    }
}

fn header(out: &mut Vec<u8>, opcode: u8, key: usize, extras: usize, value: usize) {
    let mut header = [0u8; HEADER];
    header[0] = REQUEST;
    header[1] = opcode;
    header[2..4].copy_from_slice(&(key as u16).to_be_bytes());
    header[4] = extras as u8;
    header[8..12].copy_from_slice(&((key + extras + value) as u32).to_be_bytes());
    out.extend_from_slice(&header);
}

pub(super) fn begin(out: &mut Vec<u8>, command: Command<'_>) {
    let operation = command.operation;
    let value = if operation.stores() { command.value_length } else { 0 };
    header(out, opcode(operation), command.key.len(), extras_length(operation), value);
    match operation {
        Operation::Set | Operation::Add | Operation::Replace => {
            out.extend_from_slice(&0u32.to_be_bytes());
            out.extend_from_slice(&command.ttl.to_be_bytes());
        }
        Operation::Incr | Operation::Decr => {
            out.extend_from_slice(&1u64.to_be_bytes());
            out.extend_from_slice(&0u64.to_be_bytes());
            out.extend_from_slice(&DO_NOT_CREATE.to_be_bytes());
        }
        Operation::Touch | Operation::Gat => out.extend_from_slice(&command.ttl.to_be_bytes()),
        _ => {}
    }
    out.extend_from_slice(command.key);
}

pub(super) fn multiget_key(out: &mut Vec<u8>, key: &[u8]) {
    header(out, GETKQ, key.len(), 0, 0);
    out.extend_from_slice(key);
}

pub(super) fn noop(out: &mut Vec<u8>) {
    header(out, NOOP, 0, 0, 0);
}

pub(super) fn parse(buffer: &[u8], expected: Expected) -> Parsed<'_> {
    if buffer.first().is_some_and(|magic| *magic != RESPONSE) {
        return Err(format!("expected magic 0x81, got {:#04x}", buffer[0]));
    }
    let Some(header) = buffer.get(..HEADER) else { return Ok(None) };
    let key_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras = usize::from(header[4]);
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if key_length + extras > body {
        return Err(format!("key {key_length} and extras {extras} are longer than the body {body}"));
    }
    let Some(payload) = buffer.get(HEADER..HEADER + body) else { return Ok(None) };
    let (key, data) = payload[extras..].split_at(key_length);
    let status = u16::from_be_bytes([header[6], header[7]]);
    let (answer, last) = match (status, expected) {
        (0, Expected::Status) => (Answer::Done, true),
        (0, Expected::Value) => (Answer::Hit { key, data }, true),
        (0, Expected::Values) if header[1] == NOOP => (Answer::End, true),
        (0, Expected::Values) => (Answer::Hit { key, data }, false),
        (1, Expected::Value) => (Answer::End, true),
        (1, Expected::Status) => (Answer::Missing, true),
        (2 | 5, Expected::Status) => (Answer::NotStored, true),
        // A key of a multi-get that failed is answered before the NOOP; the NOOP still ends it.
        _ => (Answer::Failed(data), expected != Expected::Values),
    };
    Ok(Some(Reply { answer, length: HEADER + body, last }))
}
