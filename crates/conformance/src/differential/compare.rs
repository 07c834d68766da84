//! Compares what two servers answered.

use super::exchange::{End, Replies, Transcript};
use super::stream::{Protocol, Stream, printable};
use super::{normalise_binary, normalise_text};
use std::collections::HashMap;

/// A reply, or a part of one, in the form that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Must be equal byte for byte.
    Exact(Vec<u8>),
    /// A CAS value; each server counts its own.
    Cas(u64),
    /// Seconds; may differ by one.
    Seconds(i64),
    /// The server's own business; only that it is there is compared.
    Own,
}

/// Which CAS value of the reference stands for which of the subject. 0 is no CAS value and stands for itself.
#[derive(Debug, Default)]
struct CasPairs {
    to_subject: HashMap<u64, u64>,
    to_reference: HashMap<u64, u64>,
}

impl CasPairs {
    fn agree(&mut self, reference: &Part, subject: &Part) -> bool {
        match (reference, subject) {
            (Part::Cas(0), _) | (_, Part::Cas(0)) => reference == subject,
            (Part::Cas(one), Part::Cas(two)) => {
                *self.to_subject.entry(*one).or_insert(*two) == *two && *self.to_reference.entry(*two).or_insert(*one) == *one
            }
            // -1 says "never expires", which is not near to anything.
            (Part::Seconds(one), Part::Seconds(two)) if *one >= 0 && *two >= 0 => one.abs_diff(*two) <= 1,
            _ => reference == subject,
        }
    }
}

/// Where two transcripts differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the batch; `None` for the read-back after the stream.
    pub batch: Option<usize>,
    /// What the reference answered, readable.
    pub reference: String,
    /// What the subject answered, readable.
    pub subject: String,
}

/// The first difference that no rule allows, or `None`.
pub fn compare(stream: &Stream, reference: &Transcript, subject: &Transcript) -> Option<Mismatch> {
    let mut pairs_of_cas = CasPairs::default();
    let pairs = reference.batches.iter().zip(&subject.batches);
    for (index, (one, two)) in pairs.enumerate() {
        let one_parts = normalise(stream.protocol, &one.bytes);
        let two_parts = normalise(stream.protocol, &two.bytes);
        if !agree(&mut pairs_of_cas, (one.end, &one_parts), (two.end, &two_parts)) {
            return Some(mismatch(Some(index), one, two));
        }
    }
    let one_parts = normalise(Protocol::Text, &reference.afterwards.bytes);
    let two_parts = normalise(Protocol::Text, &subject.afterwards.bytes);
    let ends = (reference.afterwards.end, subject.afterwards.end);
    (!agree(&mut pairs_of_cas, (ends.0, &one_parts), (ends.1, &two_parts))).then(|| mismatch(None, &reference.afterwards, &subject.afterwards))
}

fn normalise(protocol: Protocol, bytes: &[u8]) -> Vec<Part> {
    match protocol {
        Protocol::Text | Protocol::Meta => normalise_text::parts(bytes),
        Protocol::Binary => normalise_binary::parts(bytes),
    }
}

/// Rule `replies pending at a close`: of two closed connections, one may have lost replies the other got.
fn agree(cas: &mut CasPairs, reference: (End, &[Part]), subject: (End, &[Part])) -> bool {
    let (one, two) = (reference.1, subject.1);
    if reference.0 != subject.0 || (reference.0 != End::Closed && one.len() != two.len()) {
        return false;
    }
    one.iter().zip(two).all(|(one, two)| cas.agree(one, two))
}

fn mismatch(batch: Option<usize>, reference: &Replies, subject: &Replies) -> Mismatch {
    // Equal replies before the difference only hide it; the cut is made at a line end.
    let common = reference.bytes.iter().zip(&subject.bytes).take_while(|(one, two)| one == two).count();
    let line_start = reference.bytes[..common].iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
    let start = if reference.bytes.is_ascii() { line_start } else { 0 };
    let show = |replies: &Replies| format!("{} [{:?}]", printable(&replies.bytes[start..]), replies.end);
    Mismatch { batch, reference: show(reference), subject: show(subject) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::stream::{Command, Splits};

    fn stream(protocol: Protocol) -> Stream {
        Stream { protocol, commands: vec![Command::new("x")], splits: Splits { seed: 0, mean_bytes: 0 } }
    }

    fn transcript(bytes: &[u8], end: End) -> Transcript {
        let afterwards = Replies { bytes: Vec::new(), end: End::Sentinel };
        Transcript { batches: vec![Replies { bytes: bytes.to_vec(), end }], afterwards }
    }

    fn differ(one: (&str, End), two: (&str, End)) -> bool {
        let (one, two) = (transcript(one.0.as_bytes(), one.1), transcript(two.0.as_bytes(), two.1));
        compare(&stream(Protocol::Text), &one, &two).is_some()
    }

    #[test]
    fn one_changed_byte_is_a_difference() {
        assert!(!differ(("STORED\r\n", End::Sentinel), ("STORED\r\n", End::Sentinel)));
        assert!(differ(("STORED\r\n", End::Sentinel), ("STOREd\r\n", End::Sentinel)));
        assert!(differ(("VALUE k 0 1\r\nx\r\nEND\r\n", End::Sentinel), ("VALUE k 0 1\r\ny\r\nEND\r\n", End::Sentinel)));
    }

    #[test]
    fn a_missing_reply_is_a_difference_unless_both_closed() {
        assert!(differ(("OK\r\nOK\r\n", End::Sentinel), ("OK\r\n", End::Sentinel)));
        assert!(!differ(("OK\r\nOK\r\n", End::Closed), ("OK\r\n", End::Closed)));
        assert!(differ(("OK\r\n", End::Closed), ("OK\r\n", End::Sentinel)));
        assert!(differ(("OK\r\nOK\r\n", End::Closed), ("ERROR\r\n", End::Closed)));
    }

    #[test]
    fn cas_values_must_repeat_where_the_other_server_repeats() {
        let values = |one: u64, two: u64| format!("VALUE a 0 1 {one}\r\nx\r\nVALUE b 0 1 {two}\r\nx\r\nEND\r\n");
        assert!(!differ((&values(5, 9), End::Sentinel), (&values(71, 70), End::Sentinel)));
        assert!(differ((&values(5, 9), End::Sentinel), (&values(7, 7), End::Sentinel)));
    }

    #[test]
    fn a_remaining_ttl_may_differ_by_one_second_and_never_by_more() {
        assert!(!differ(("HD t100\r\n", End::Sentinel), ("HD t99\r\n", End::Sentinel)));
        assert!(differ(("HD t100\r\n", End::Sentinel), ("HD t98\r\n", End::Sentinel)));
        assert!(differ(("HD t-1\r\n", End::Sentinel), ("HD t0\r\n", End::Sentinel)));
    }
}
