//! The binary protocol. Any key; CAS values of writes; nothing of expiration times. The opaque field is the request's number.

use moneta_item::request::{Arithmetic, Delete, Write, WriteMode};
use moneta_protocol::binary::{HEADER, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};

use super::answer::{Answer, Decoded, Refusal, Seen};
use super::failure::{Broken, Unsupported};
use super::limits::{LIST_MAX, VALUE_LIMIT};
use super::number::packet_exptime;
use super::request::Kind;
use super::request::{Expect, Request, Verb};
use super::tokens::{readable, server_error, statistic};

const NEEDS_META: Unsupported = Unsupported("the server does not know the meta protocol, which this request needs");
const NO_ZERO_CAS: Unsupported = Unsupported("the CAS value 0 cannot be compared with over the binary protocol");
const FOREIGN: Broken = Broken("a reply to another request");
const MALFORMED: Broken = Broken("a reply that is none of the binary protocol's");
/// The expiration time with which arithmetic creates nothing.
const DO_NOT_CREATE: u32 = u32::MAX;

/// Statuses of replies.
mod status {
    pub(super) const OK: u16 = 0x00;
    pub(super) const NOT_FOUND: u16 = 0x01;
    pub(super) const EXISTS: u16 = 0x02;
    pub(super) const TOO_LARGE: u16 = 0x03;
    pub(super) const INVALID: u16 = 0x04;
    pub(super) const NOT_STORED: u16 = 0x05;
    pub(super) const NON_NUMERIC: u16 = 0x06;
    pub(super) const UNKNOWN: u16 = 0x81;
    pub(super) const OUT_OF_MEMORY: u16 = 0x82;
}

/// What of a request goes into a packet beside key and value.
#[derive(Default)]
struct Packet {
    opcode: u8,
    extras: [u8; 20],
    extras_used: usize,
    cas: u64,
}

impl Packet {
    fn of(opcode: u8) -> Self {
        Self { opcode, ..Self::default() }
    }

    fn extra(mut self, bytes: &[u8]) -> Self {
        self.extras[self.extras_used..self.extras_used + bytes.len()].copy_from_slice(bytes);
        self.extras_used += bytes.len();
        self
    }

    fn compare(self, cas: Option<u64>) -> Result<Self, Unsupported> {
        match cas {
            Some(0) => Err(NO_ZERO_CAS),
            cas => Ok(Self { cas: cas.unwrap_or(0), ..self }),
        }
    }

    fn put(&self, key: &[u8], value: &[u8], number: u32, out: &mut Vec<u8>) {
        let body = (self.extras_used + key.len() + value.len()) as u32;
        let mut header = [0; HEADER];
        header[0] = REQUEST_MAGIC;
        header[1] = self.opcode;
        header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
        header[4] = self.extras_used as u8;
        header[8..12].copy_from_slice(&body.to_be_bytes());
        header[12..16].copy_from_slice(&number.to_be_bytes());
        header[16..24].copy_from_slice(&self.cas.to_be_bytes());
        for part in [&header[..], &self.extras[..self.extras_used], key, value] {
            out.extend_from_slice(part);
        }
    }
}

pub(super) fn encode(request: &Request<'_>, number: u32, out: &mut Vec<u8>) -> Result<Expect, Unsupported> {
    let packet = match &request.verb {
        Verb::Peek { .. } => Packet::of(opcode::GET),
        Verb::Read(read) => {
            let retrieve = &read.retrieve;
            if retrieve.vivify.is_some() || retrieve.recache.is_some() || !retrieve.bump {
                return Err(NEEDS_META);
            }
            match retrieve.touch {
                None => Packet::of(opcode::GET),
                Some(exptime) => Packet::of(opcode::GET_AND_TOUCH).extra(&packet_exptime(exptime).to_be_bytes()),
            }
        }
        Verb::Write(write) => self::write(write)?,
        Verb::Delete(Delete { compare, invalidate: false, drop_value: false, .. }) => {
            Packet::of(opcode::DELETE).compare(*compare)?
        }
        Verb::Delete(_) => return Err(NEEDS_META),
        Verb::Arithmetic(arithmetic) => count(arithmetic)?,
        Verb::Flush(delay) if delay.0 > 0 => Packet::of(opcode::FLUSH).extra(&packet_exptime(*delay).to_be_bytes()),
        Verb::Flush(_) => Packet::of(opcode::FLUSH),
        Verb::PutNewer(_) | Verb::Bury(_) | Verb::Floor { .. } | Verb::Newest => {
            return Err(super::failure::NO_VERSIONS);
        }
        Verb::Statistics => Packet::of(opcode::STAT),
        Verb::Noop => Packet::of(opcode::NOOP),
    };
    packet.put(request.key, request.value, number, out);
    Ok(Expect { kind: request.verb.kind(), number })
}

fn write(write: &Write) -> Result<Packet, Unsupported> {
    if write.new_cas.is_some() || write.invalidate || write.vivify.is_some() {
        return Err(NEEDS_META);
    }
    let with_extras = |opcode| {
        let packet = Packet::of(opcode).extra(&write.flags.to_be_bytes());
        packet.extra(&packet_exptime(write.exptime).to_be_bytes())
    };
    match write.mode {
        WriteMode::Set => with_extras(opcode::SET).compare(write.compare),
        // It never meets an item to compare with.
        WriteMode::Add => Ok(with_extras(opcode::ADD)),
        WriteMode::Replace => with_extras(opcode::REPLACE).compare(write.compare),
        WriteMode::Append => Packet::of(opcode::APPEND).compare(write.compare),
        WriteMode::Prepend => Packet::of(opcode::PREPEND).compare(write.compare),
    }
}

fn count(arithmetic: &Arithmetic) -> Result<Packet, Unsupported> {
    let Arithmetic { delta, decrement, create, touch: None, compare, new_cas: None } = *arithmetic else {
        return Err(NEEDS_META);
    };
    let (initial, exptime) = create.map_or((0, DO_NOT_CREATE), |create| {
        // The one moment that means something else here is a second beyond the last that is right.
        (create.initial, packet_exptime(create.exptime).min(DO_NOT_CREATE - 1))
    });
    let packet = Packet::of(if decrement { opcode::DECREMENT } else { opcode::INCREMENT });
    let packet = packet.extra(&delta.to_be_bytes()).extra(&initial.to_be_bytes()).extra(&exptime.to_be_bytes());
    packet.compare(compare)
}

/// A reply's header and parts.
struct Reply<'a> {
    status: u16,
    cas: u64,
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
    consumed: usize,
}

/// What stands at the front.
enum Front<'a> {
    Whole(Reply<'a>),
    Partial(usize),
    Oversized(usize),
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

fn front<'a>(input: &'a [u8], expect: &Expect, value_max: usize) -> Result<Front<'a>, Broken> {
    let Some(header) = input.first_chunk::<HEADER>() else {
        return match input.first() {
            Some(magic) if *magic != RESPONSE_MAGIC => Err(MALFORMED),
            _ => Ok(Front::Partial(HEADER)),
        };
    };
    if header[0] != RESPONSE_MAGIC {
        return Err(MALFORMED);
    }
    if u32::from_be_bytes(bytes(header, 12)) != expect.number {
        return Err(FOREIGN);
    }
    let extras = usize::from(header[4]);
    let key = usize::from(u16::from_be_bytes(bytes(header, 2)));
    let body = u32::from_be_bytes(bytes(header, 8)) as usize;
    let size = body.checked_sub(extras + key).ok_or(MALFORMED)?;
    if size > VALUE_LIMIT {
        return Err(Broken("a value of impossible length"));
    }
    let consumed = HEADER + body;
    if size > value_max && matches!(expect.kind, Kind::Read { .. }) {
        return Ok(Front::Oversized(consumed));
    }
    if size > LIST_MAX && !matches!(expect.kind, Kind::Read { .. }) {
        return Err(MALFORMED);
    }
    let Some(body) = input.get(HEADER..consumed) else { return Ok(Front::Partial(consumed)) };
    let (extras, rest) = body.split_at(extras);
    let (key, value) = rest.split_at(key);
    let status = u16::from_be_bytes(bytes(header, 6));
    Ok(Front::Whole(Reply { status, cas: u64::from_be_bytes(bytes(header, 16)), extras, key, value, consumed }))
}

pub(super) fn decode<'a>(input: &'a [u8], expect: &Expect, value_max: usize) -> Result<Decoded<'a>, Broken> {
    if expect.kind == Kind::Statistics {
        return statistics(input, expect);
    }
    Ok(match front(input, expect, value_max)? {
        Front::Partial(needed) => Decoded::Partial { needed },
        Front::Oversized(skip) => Decoded::Oversized { skip },
        Front::Whole(reply) => Decoded::Answer { consumed: reply.consumed, answer: answer(&reply, expect.kind)? },
    })
}

fn answer<'a>(reply: &Reply<'a>, kind: Kind) -> Result<Answer<'a>, Broken> {
    let replaces = matches!(kind, Kind::Write { mode: WriteMode::Replace, compared: false });
    let adds = matches!(kind, Kind::Write { mode: WriteMode::Add, .. });
    Ok(match reply.status {
        status::OK => success(reply, kind)?,
        status::NOT_FOUND if matches!(kind, Kind::Read { .. }) => Answer::Miss,
        status::NOT_FOUND if replaces => Answer::NotStored,
        status::NOT_FOUND => Answer::NotFound,
        status::EXISTS if adds => Answer::NotStored,
        status::EXISTS => Answer::Exists,
        status::NOT_STORED => Answer::NotStored,
        status::TOO_LARGE => Answer::TooLarge,
        status::NON_NUMERIC => Answer::NonNumeric,
        status::OUT_OF_MEMORY => Answer::OutOfMemory,
        status::UNKNOWN => Answer::Refused(Refusal::Unknown, readable(reply.value)),
        status::INVALID => Answer::Refused(Refusal::Client, readable(reply.value)),
        _ => server_error(reply.value),
    })
}

fn success<'a>(reply: &Reply<'a>, kind: Kind) -> Result<Answer<'a>, Broken> {
    Ok(match kind {
        Kind::Read { .. } => {
            let flags = reply.extras.first_chunk().map(|flags| u32::from_be_bytes(*flags)).ok_or(MALFORMED)?;
            let (value, size) = (reply.value.into(), reply.value.len());
            Answer::Hit(Seen { value, size, flags, cas: reply.cas, ..Seen::default() })
        }
        Kind::Write { .. } => Answer::Stored { cas: reply.cas },
        Kind::Delete => Answer::Deleted,
        Kind::Arithmetic => {
            let number = reply.value.try_into().map(u64::from_be_bytes).map_err(|_| MALFORMED)?;
            Answer::Number { number, cas: reply.cas, ttl: None }
        }
        Kind::Flush | Kind::Noop => Answer::Done,
        // The last three have no form in binary.
        Kind::Statistics | Kind::PutNewer | Kind::Bury | Kind::Floor | Kind::Newest => return Err(MALFORMED),
    })
}

/// A packet a statistic, and one without a name at the end. They are taken apart when the end is there, so that a server that
/// sends them byte by byte costs a look at their headers a byte and no more.
fn statistics<'a>(input: &'a [u8], expect: &Expect) -> Result<Decoded<'a>, Broken> {
    let mut consumed = 0;
    loop {
        match front(&input[consumed..], expect, LIST_MAX)? {
            Front::Partial(needed) if consumed + needed <= LIST_MAX => {
                return Ok(Decoded::Partial { needed: consumed + needed });
            }
            Front::Whole(reply) if consumed + reply.consumed <= LIST_MAX => {
                consumed += reply.consumed;
                if reply.status != status::OK {
                    return Ok(Decoded::Answer { answer: answer(&reply, Kind::Statistics)?, consumed });
                }
                if reply.key.is_empty() {
                    break;
                }
            }
            _ => return Err(Broken("a list without an end")),
        }
    }
    let (mut list, mut at) = (Vec::new(), 0);
    while let Front::Whole(reply) = front(&input[at..consumed], expect, LIST_MAX)?
        && !reply.key.is_empty()
    {
        at += reply.consumed;
        list.push((readable(reply.key), statistic(reply.value)));
    }
    Ok(Decoded::Answer { answer: Answer::Statistics(list), consumed })
}
