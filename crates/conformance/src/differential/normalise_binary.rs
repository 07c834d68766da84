//! Cuts binary replies into the parts that are compared, applying the rules on the way.

use super::part::Part;
use crate::binary::{HEADER_BYTES, REPLY_MAGIC, Reply, opcode};

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
    // A reply that a close has cut short still has a CAS value of its server's own.
    if let (Some(&REPLY_MAGIC), Some(header)) = (rest.first(), rest.first_chunk::<HEADER_BYTES>()) {
        let cas = header[CAS_AT..].iter().fold(0, |cas, &byte| cas << 8 | u64::from(byte));
        parts.extend([Part::Exact(header[..CAS_AT].to_vec()), Part::Cas(cas)]);
        parts.push(Part::Exact(rest[HEADER_BYTES..].to_vec()));
    } else if !rest.is_empty() {
        parts.push(Part::Exact(rest.to_vec()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::Request;

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
    fn half_a_reply_is_compared_as_it_is_but_for_its_cas_value() {
        let whole = reply(0, 7, b"value");
        assert_eq!(parts(&whole[..20]), [Part::Exact(whole[..20].to_vec())]);
        let cut = [Part::Exact(whole[..16].to_vec()), Part::Cas(7), Part::Exact(b"va".to_vec())];
        assert_eq!(parts(&whole[..26]), cut);
    }
}
