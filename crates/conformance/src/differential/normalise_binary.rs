//! Cuts binary replies into the parts that are compared, applying the rules on the way.

use super::compare::Part;
use crate::binary::{HEADER_BYTES, Reply, opcode};

const CAS_AT: usize = 16;

/// The parts of `bytes`. What is no reply, or no whole one, is compared byte for byte.
pub fn parts(bytes: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some((reply, length)) = Reply::parse(rest) {
        if reply.opcode == opcode::VERSION && reply.status == 0 {
            parts.extend([Part::Exact(rest[..2].to_vec()), Part::Own]);
        } else {
            parts.push(Part::Exact(rest[..CAS_AT].to_vec()));
            parts.push(Part::Cas(reply.cas));
            parts.push(Part::Exact(rest[HEADER_BYTES..length].to_vec()));
        }
        rest = &rest[length..];
    }
    if !rest.is_empty() {
        parts.push(Part::Exact(rest.to_vec()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{REPLY_MAGIC, Request};

    fn reply(opcode: u8, cas: u64, value: &[u8]) -> Vec<u8> {
        let mut reply = Request::new(opcode, b"", b"", value);
        reply.magic = REPLY_MAGIC;
        reply.cas = cas;
        reply.bytes()
    }

    #[test]
    fn the_cas_field_is_a_part_of_its_own() {
        let of = |bytes: &[u8]| parts(bytes);
        assert_eq!(of(&reply(0, 7, b"v"))[1], Part::Cas(7));
        assert_ne!(of(&reply(0, 7, b"v")), of(&reply(0, 7, b"w")));
        assert_ne!(of(&reply(0, 7, b"v")), of(&reply(1, 7, b"v")));
    }

    #[test]
    fn half_a_reply_is_compared_as_it_is() {
        let whole = reply(0, 7, b"v");
        let half = &whole[..30.min(whole.len() - 1)];
        assert_eq!(parts(half), [Part::Exact(half.to_vec())]);
    }
}
