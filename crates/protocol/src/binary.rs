//! Decoding of the binary protocol: a 24-byte header, then extras, key and value.

use moneta_item::request::{Arithmetic, Create, Delete, Exptime, KEY_MAX, Retrieve, Write, WriteMode};

use crate::command::{BinaryStyle, Command, Keys, ReadVerb, SaslStep, Style};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::stream::{Decoded, Decoder};

/// First byte of every request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// First byte of every reply.
pub const RESPONSE_MAGIC: u8 = 0x81;
/// Bytes of a header.
pub const HEADER: usize = 24;
/// The expiration time with which `incr` and `decr` create nothing.
const DO_NOT_CREATE: u32 = 0xffff_ffff;
/// Longest name of a SASL mechanism, in bytes.
const MECHANISM_MAX: usize = 32;
/// Most data of one SASL step, in bytes: a user and a password, with room.
pub(crate) const SASL_DATA_MAX: usize = 4096;

/// Opcodes of requests.
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the protocol's own")]
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GET_QUIET: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GET_KEY: u8 = 0x0c;
    pub const GET_KEY_QUIET: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SET_QUIET: u8 = 0x11;
    pub const ADD_QUIET: u8 = 0x12;
    pub const REPLACE_QUIET: u8 = 0x13;
    pub const DELETE_QUIET: u8 = 0x14;
    pub const INCREMENT_QUIET: u8 = 0x15;
    pub const DECREMENT_QUIET: u8 = 0x16;
    pub const QUIT_QUIET: u8 = 0x17;
    pub const FLUSH_QUIET: u8 = 0x18;
    pub const APPEND_QUIET: u8 = 0x19;
    pub const PREPEND_QUIET: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GET_AND_TOUCH: u8 = 0x1d;
    pub const GET_AND_TOUCH_QUIET: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GET_AND_TOUCH_KEY: u8 = 0x23;
    pub const GET_AND_TOUCH_KEY_QUIET: u8 = 0x24;
}

/// A request's header and where its parts lie.
#[derive(Clone, Copy)]
struct Request {
    opcode: u8,
    extras: usize,
    key: usize,
    value: usize,
    cas: u64,
}

#[inline]
fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

/// Decodes the front of `input`, which is not empty.
pub(crate) fn decode<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Decoded<'a> {
    if input[0] != REQUEST_MAGIC {
        return Decoded::Close;
    }
    let Some(header) = input.first_chunk::<HEADER>() else {
        return Decoded::Partial { needed: HEADER };
    };
    let opcode = header[1];
    let key = usize::from(u16::from_be_bytes(bytes(header, 2)));
    let extras = usize::from(header[4]);
    let body = u32::from_be_bytes(bytes(header, 8)) as usize;
    let style = style_of(opcode, u32::from_be_bytes(bytes(header, 12)));
    let Some(value) = body.checked_sub(key + extras) else {
        return closing(style, Status::UnknownCommand);
    };
    if decoder.login_required() && !needs_no_login(opcode) {
        return closing(style, Status::AuthError);
    }
    if key > KEY_MAX {
        return closing(style, Status::Invalid);
    }
    let request = Request { opcode, extras, key, value, cas: u64::from_be_bytes(bytes(header, 16)) };
    if !well_formed(&request) {
        return closing(style, Status::Invalid);
    }
    let front = HEADER + extras + key;
    if input.len() < front {
        return Decoded::Partial { needed: front };
    }
    if let Some(refusal) = refuse(decoder, &request, style, &input[HEADER + extras..front]) {
        decoder.swallow(value as u64);
        return Decoded::Refused { refusal, consumed: front };
    }
    let end = front + value;
    if input.len() < end {
        return Decoded::Partial { needed: end };
    }
    let parts = Parts {
        extras: &input[HEADER..HEADER + extras],
        key: &input[HEADER + extras..front],
        value: &input[front..end],
    };
    Decoded::Command { command: command(&request, style, parts), consumed: end }
}

fn closing<'a>(style: BinaryStyle, status: Status) -> Decoded<'a> {
    Decoded::Refused { refusal: Refusal::binary(style, status).then_close(), consumed: HEADER }
}

fn needs_no_login(opcode: u8) -> bool {
    matches!(opcode, opcode::SASL_LIST | opcode::SASL_AUTH | opcode::SASL_STEP | opcode::VERSION)
}

/// How a request is answered, from its opcode.
#[inline]
fn style_of(opcode: u8, opaque: u32) -> BinaryStyle {
    let quiet = matches!(
        opcode,
        opcode::GET_QUIET | opcode::GET_KEY_QUIET | opcode::SET_QUIET
            ..=opcode::PREPEND_QUIET | opcode::GET_AND_TOUCH_QUIET | opcode::GET_AND_TOUCH_KEY_QUIET
    );
    let with_key = matches!(
        opcode,
        opcode::GET_KEY | opcode::GET_KEY_QUIET | opcode::GET_AND_TOUCH_KEY | opcode::GET_AND_TOUCH_KEY_QUIET
    );
    BinaryStyle { opcode, opaque, quiet, with_key, without_value: opcode == opcode::TOUCH }
}

/// Whether the lengths of extras, key and value are those the opcode has. Unknown opcodes have none of their own.
#[inline]
fn well_formed(request: &Request) -> bool {
    let Request { extras, key, value, .. } = *request;
    match request.opcode {
        opcode::GET | opcode::GET_QUIET | opcode::GET_KEY | opcode::GET_KEY_QUIET => {
            extras == 0 && key > 0 && value == 0
        }
        opcode::SET | opcode::ADD | opcode::REPLACE | opcode::SET_QUIET | opcode::ADD_QUIET | opcode::REPLACE_QUIET => {
            extras == 8 && key > 0
        }
        opcode::DELETE | opcode::DELETE_QUIET => extras == 0 && key > 0 && value == 0,
        opcode::INCREMENT | opcode::DECREMENT | opcode::INCREMENT_QUIET | opcode::DECREMENT_QUIET => {
            extras == 20 && key > 0 && value == 0
        }
        opcode::APPEND | opcode::PREPEND | opcode::APPEND_QUIET | opcode::PREPEND_QUIET => extras == 0 && key > 0,
        opcode::TOUCH..=opcode::GET_AND_TOUCH_QUIET | opcode::GET_AND_TOUCH_KEY | opcode::GET_AND_TOUCH_KEY_QUIET => {
            extras == 4 && key > 0
        }
        opcode::FLUSH | opcode::FLUSH_QUIET => (extras == 0 || extras == 4) && key == 0 && value == 0,
        opcode::NOOP | opcode::VERSION | opcode::QUIT | opcode::QUIT_QUIET | opcode::SASL_LIST => {
            extras == 0 && key == 0 && value == 0
        }
        opcode::STAT => extras == 0 && value == 0,
        opcode::SASL_AUTH | opcode::SASL_STEP => extras == 0 && key > 0,
        _ => true,
    }
}

/// Refuses what is known to be refused from the front of the request, so that its value needs no room.
#[inline]
fn refuse<'a>(decoder: &Decoder, request: &Request, style: BinaryStyle, key: &'a [u8]) -> Option<Refusal<'a>> {
    match request.opcode {
        opcode::SET..=opcode::REPLACE
        | opcode::SET_QUIET..=opcode::REPLACE_QUIET
        | opcode::APPEND
        | opcode::PREPEND
        | opcode::APPEND_QUIET
        | opcode::PREPEND_QUIET => {
            if request.value <= decoder.item_max() {
                return None;
            }
            let refusal = Refusal::binary(style, Status::TooLarge).over_the_limit();
            let is_set = matches!(request.opcode, opcode::SET | opcode::SET_QUIET);
            Some(if is_set { refusal.forgetting(key, false) } else { refusal })
        }
        // A touch has no value, and one that claims some is executed all the same; but it gets no more room than a value.
        opcode::TOUCH..=opcode::GET_AND_TOUCH_QUIET | opcode::GET_AND_TOUCH_KEY | opcode::GET_AND_TOUCH_KEY_QUIET => {
            let fits = request.value <= decoder.item_max();
            (!fits).then(|| Refusal::binary(style, Status::TooLarge).over_the_limit())
        }
        opcode::SASL_AUTH | opcode::SASL_STEP => {
            let sane = request.key <= MECHANISM_MAX && request.value <= SASL_DATA_MAX;
            (!sane).then(|| Refusal::binary(style, Status::Invalid))
        }
        0x1b | 0x1f | 0x25.. => Some(Refusal::binary(style, Status::UnknownCommand)),
        _ => None,
    }
}

/// The parts of a request's body.
struct Parts<'a> {
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

/// The command of a known, well-formed request.
#[inline]
fn command<'a>(request: &Request, binary: BinaryStyle, parts: Parts<'a>) -> Command<'a> {
    let style = Style::Binary(binary);
    let Parts { extras, key, value } = parts;
    let compare = (request.cas != 0).then_some(request.cas);
    match request.opcode {
        opcode::GET | opcode::GET_QUIET | opcode::GET_KEY | opcode::GET_KEY_QUIET => {
            Command::Get { keys: Keys::One(key), request: Retrieve::default(), verb: ReadVerb::Get, style }
        }
        opcode::SET..=opcode::REPLACE | opcode::SET_QUIET..=opcode::REPLACE_QUIET => {
            Command::Set { key, value, request: write(request.opcode, extras, compare), style }
        }
        opcode::APPEND | opcode::APPEND_QUIET => {
            let request = Write { mode: WriteMode::Append, compare, ..Write::default() };
            Command::Set { key, value, request, style }
        }
        opcode::PREPEND | opcode::PREPEND_QUIET => {
            let request = Write { mode: WriteMode::Prepend, compare, ..Write::default() };
            Command::Set { key, value, request, style }
        }
        opcode::DELETE | opcode::DELETE_QUIET => {
            Command::Delete { key, request: Delete { compare, ..Delete::default() }, style }
        }
        opcode::INCREMENT | opcode::DECREMENT | opcode::INCREMENT_QUIET | opcode::DECREMENT_QUIET => {
            Command::Arithmetic { key, request: arithmetic(request.opcode, extras, compare), style }
        }
        opcode::TOUCH => touch(key, extras, ReadVerb::Touch, style),
        opcode::GET_AND_TOUCH
        | opcode::GET_AND_TOUCH_QUIET
        | opcode::GET_AND_TOUCH_KEY
        | opcode::GET_AND_TOUCH_KEY_QUIET => touch(key, extras, ReadVerb::GetAndTouch, style),
        opcode::FLUSH | opcode::FLUSH_QUIET => {
            let delay = if extras.len() == 4 { exptime(extras, 0) } else { Exptime(0) };
            Command::FlushAll { delay, style }
        }
        opcode::VERSION => Command::Version(style),
        opcode::QUIT | opcode::QUIT_QUIET => Command::Quit(style),
        opcode::STAT => Command::Stats { arguments: key, style },
        opcode::SASL_LIST => Command::Sasl { step: SaslStep::List, mechanism: key, data: value, style: binary },
        opcode::SASL_AUTH => Command::Sasl { step: SaslStep::Auth, mechanism: key, data: value, style: binary },
        opcode::SASL_STEP => Command::Sasl { step: SaslStep::Step, mechanism: key, data: value, style: binary },
        // Everything else was refused before.
        _ => Command::Noop(style),
    }
}

fn exptime(extras: &[u8], at: usize) -> Exptime {
    Exptime(i64::from(u32::from_be_bytes(bytes(extras, at))))
}

/// SET, ADD and REPLACE carry flags and expiration time; a CAS value makes any of them a compare-and-swap.
#[inline]
fn write(opcode: u8, extras: &[u8], compare: Option<u64>) -> Write {
    let mode = match opcode {
        _ if compare.is_some() => WriteMode::Set,
        opcode::ADD | opcode::ADD_QUIET => WriteMode::Add,
        opcode::REPLACE | opcode::REPLACE_QUIET => WriteMode::Replace,
        _ => WriteMode::Set,
    };
    let flags = u32::from_be_bytes(bytes(extras, 0));
    Write { mode, flags, exptime: exptime(extras, 4), compare, ..Write::default() }
}

fn arithmetic(opcode: u8, extras: &[u8], compare: Option<u64>) -> Arithmetic {
    let expiration = u32::from_be_bytes(bytes(extras, 16));
    Arithmetic {
        delta: u64::from_be_bytes(bytes(extras, 0)),
        decrement: matches!(opcode, opcode::DECREMENT | opcode::DECREMENT_QUIET),
        create: (expiration != DO_NOT_CREATE)
            .then(|| Create { initial: u64::from_be_bytes(bytes(extras, 8)), exptime: exptime(extras, 16) }),
        compare,
        ..Arithmetic::default()
    }
}

fn touch<'a>(key: &'a [u8], extras: &[u8], verb: ReadVerb, style: Style<'a>) -> Command<'a> {
    let request = Retrieve { touch: Some(exptime(extras, 0)), ..Retrieve::default() };
    Command::Get { keys: Keys::One(key), request, verb, style }
}
