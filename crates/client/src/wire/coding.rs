//! Encodes requests and decodes replies in the protocol of a server.

use super::answer::Decoded;
use super::dialect::{Dialect, Protocol};
use super::failure::{Broken, Unsupported};
use super::request::{Expect, Request};
use super::{binary, meta, meta_reply, text};

/// Appends `request` to `out`. `number` goes out with it and comes back with the reply, where the protocol has room for that.
///
/// # Errors
/// When the server's protocol has no form for the request; `out` is as before.
pub fn encode(request: &Request<'_>, dialect: Dialect, number: u32, out: &mut Vec<u8>) -> Result<Expect, Unsupported> {
    let start = out.len();
    let encoded = match dialect.protocol {
        Protocol::Meta => meta::encode(request, dialect, number, out),
        Protocol::Binary => binary::encode(request, number, out),
        Protocol::Text => text::encode(request, dialect, out),
    };
    if encoded.is_err() {
        out.truncate(start);
    }
    encoded
}

/// Decodes the reply to the request that `expect` came from at the front of `input`. Values over `value_max` bytes are not
/// handed out ([`Decoded::Oversized`]).
///
/// # Errors
/// When `input` is no reply to that request. Nothing more can be read from that connection then.
pub fn decode<'a>(
    input: &'a [u8],
    protocol: Protocol,
    expect: &Expect,
    value_max: usize,
) -> Result<Decoded<'a>, Broken> {
    match protocol {
        Protocol::Meta => meta_reply::decode(input, expect, value_max),
        Protocol::Binary => binary::decode(input, expect, value_max),
        Protocol::Text => text::decode(input, expect, value_max),
    }
}
