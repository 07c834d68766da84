//! Binary requests, valid and nearly so.

use super::stream::{Command, Piece, Role};
use super::words;
use crate::binary::{REQUEST_MAGIC, Request};
use fastrand::Rng;

const GETS: [u8; 4] = [0x00, 0x09, 0x0c, 0x0d];
const STORES: [u8; 6] = [0x01, 0x02, 0x03, 0x11, 0x12, 0x13];
const CONCATENATIONS: [u8; 4] = [0x0e, 0x0f, 0x19, 0x1a];
const DELETES: [u8; 2] = [0x04, 0x14];
const ARITHMETIC: [u8; 4] = [0x05, 0x06, 0x15, 0x16];
const TOUCHES: [u8; 5] = [0x1c, 0x1d, 0x1e, 0x23, 0x24];
const FLUSHES: [u8; 2] = [0x08, 0x18];
/// Extras of an arithmetic command that must not create its item.
const DO_NOT_CREATE: u32 = u32::MAX;

/// One valid request.
pub fn valid(rng: &mut Rng, item_limit: usize) -> Command {
    let request = valid_request(rng, item_limit);
    command(rng, &request)
}

/// One request with something wrong about it.
pub fn near_valid(rng: &mut Rng, item_limit: usize) -> Command {
    if rng.u32(..10) < 7 {
        return valid(rng, item_limit);
    }
    let mut request = valid_request(rng, item_limit.min(20_000));
    request.value.truncate(40);
    let body = request.body().len() as u32;
    let is_touch = TOUCHES.contains(&request.opcode);
    match rng.u32(..12) {
        // Rule `body of a touch`.
        5 | 7 | 8 if is_touch => drop(request.extras.pop()),
        // Without a body (rule `body of an unknown opcode`).
        0 => request = Request { opaque: request.opaque, ..Request::new(rng.u8(0x50..0xff), b"", b"", b"") },
        1 => request.extras.push(0),
        2 => drop(request.extras.pop()),
        3 => request.key.clear(),
        4 => request.key = words::long_key(rng),
        5 => request.value.extend_from_slice(b"unwanted"),
        6 => request.claimed_extras_length = Some(rng.u8(..30)),
        7 => request.claimed_key_length = Some(rng.u16(..300)),
        8 => request.claimed_body_length = Some(body + rng.u32(1..200)),
        9 => request.claimed_body_length = Some(body.saturating_sub(rng.u32(1..20))),
        10 => request.magic = rng.u8(..),
        _ => request.data_type = 1,
    }
    if request.opcode == 0x10 {
        // The replies to STAT are the server's own; what is wrong about them is tested elsewhere.
        request.opcode = 0x0a;
    }
    Command { may_swallow: true, ..command(rng, &request) }
}

/// The packet, with the CAS field for one item in a few commands.
fn command(rng: &mut Rng, request: &Request) -> Command {
    let mut pieces = vec![Piece::Bytes(request.head())];
    let takes_cas =
        [&STORES[..], &CONCATENATIONS, &DELETES, &ARITHMETIC].iter().any(|group| group.contains(&request.opcode));
    if takes_cas && request.key.len() < words::KEY_LIMIT && !request.key.is_empty() && rng.u32(..6) == 0 {
        let offset = if rng.u32(..3) == 0 { words::BEYOND } else { 0 };
        pieces.push(Piece::CasOf { key: request.key.clone(), offset, binary: true });
    } else {
        pieces.push(Piece::Bytes(request.cas.to_be_bytes().to_vec()));
    }
    pieces.push(Piece::Bytes(request.body()));
    let role = match request.opcode {
        opcode if ARITHMETIC.contains(&opcode) => Role::Arithmetic,
        opcode if GETS.contains(&opcode) || TOUCHES.contains(&opcode) => Role::Retrieval,
        _ => Role::Other,
    };
    Command { pieces, role, ..Command::new(b"") }
}

fn pick(rng: &mut Rng, opcodes: &[u8]) -> u8 {
    opcodes[rng.usize(..opcodes.len())]
}

fn valid_request(rng: &mut Rng, item_limit: usize) -> Request {
    let mut request = match rng.u32(..1000) {
        0..250 => Request::new(pick(rng, &GETS), b"", &words::key(rng), b""),
        250..500 => store(rng, item_limit),
        500..600 => Request::new(pick(rng, &CONCATENATIONS), b"", &words::key(rng), &words::value(rng, item_limit)),
        600..700 => Request::new(pick(rng, &DELETES), b"", &words::key(rng), b""),
        700..860 => arithmetic(rng),
        860..940 => Request::new(pick(rng, &TOUCHES), &exptime(rng).to_be_bytes(), &words::key(rng), b""),
        940..950 => flush(rng),
        950..952 => Request::new(pick(rng, &[0x07, 0x17]), b"", b"", b""),
        952..970 => Request::new(0x0b, b"", b"", b""),
        _ => Request::new(0x0a, b"", b"", b""),
    };
    request.magic = REQUEST_MAGIC;
    request.opaque = rng.u32(..);
    request
}

fn exptime(rng: &mut Rng) -> u32 {
    let times = [0, 0, 0, 100, 1000, 86_400, 2_592_000, 2_147_483_647, 2_592_001, 1_000_000_000];
    times[rng.usize(..times.len())]
}

fn store(rng: &mut Rng, item_limit: usize) -> Request {
    let flags: u32 = words::flags(rng).parse().expect("flags are 32 bits");
    let extras = [flags.to_be_bytes(), exptime(rng).to_be_bytes()].concat();
    Request::new(pick(rng, &STORES), &extras, &words::key(rng), &words::value(rng, item_limit))
}

fn arithmetic(rng: &mut Rng) -> Request {
    let delta: u64 = words::number(rng).parse().expect("numbers are 64 bits");
    let initial: u64 = words::number(rng).parse().expect("numbers are 64 bits");
    let exptime = if rng.bool() { DO_NOT_CREATE } else { exptime(rng) };
    let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
    Request::new(pick(rng, &ARITHMETIC), &extras, &words::key(rng), b"")
}

/// Without a delay (rule `flush_all with a delay`).
fn flush(rng: &mut Rng) -> Request {
    let extras: &[u8] = if rng.bool() { b"" } else { &[0; 4] };
    Request::new(pick(rng, &FLUSHES), extras, b"", b"")
}
