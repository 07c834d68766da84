//! The client's side of the three protocols: requests to bytes, bytes to answers. No I/O and no clock, so it serves
//! non-blocking connections (the store `moneta_remote`) and blocking ones ([`blocking`]) alike.
//!
//! A request is encoded behind others; what [`encode`] returns is kept and given to [`decode`] when its turn in the stream of
//! replies has come. Every reply of meta and binary carries the number that its request was given (`O`, opaque), and a text
//! reply with an item its key: a reply that does not match its request breaks the connection ([`Broken`]) and is discarded.

mod answer;
mod binary;
pub mod blocking;
pub mod board;
pub mod changes;
mod dialect;
pub mod dump;
mod failure;
mod line;
mod meta;
mod meta_reply;
mod number;
mod probe;
mod request;
mod text;
mod tokens;

pub use answer::{Answer, Decoded, Refusal, Seen, expiry};
pub use dialect::{Dialect, Protocol};
pub use failure::{Broken, NO_VERSIONS, Unsupported};
pub use probe::{PROBE_KEY, Probe, Probed};
pub use request::{Expect, Read, Request, Verb};

/// Longest line of a reply, in bytes: a key, a handful of numbers, an error in words.
pub const LINE_MAX: usize = 8192;
/// Most bytes of a reply that is no item, such as a list of statistics: many times what any server has to tell, and few enough
/// to be looked at again with each piece that comes.
pub const LIST_MAX: usize = 256 << 10;
/// The largest value any memcached takes: a reply that claims more is garbage.
pub const VALUE_LIMIT: usize = 1 << 30;

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
