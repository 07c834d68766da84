//! Compares what two servers answered.

use super::exchange::{End, Replies, Transcript};
use super::part::Part;
use super::stream::{Protocol, Stream};
use super::tiers::Tiers;
use super::{normalise_binary, normalise_text};
use std::collections::HashMap;

/// How much of a difference is shown: parts before it, and parts in all.
const SHOWN_BEFORE: usize = 3;
const SHOWN_PARTS: usize = 8;

/// The longest expiration time that counts from now, in seconds (30 days); only an absolute one can be further off.
/// memcached subtracts its start from it, a second that it has rounded.
const RELATIVE_MAX: i64 = 2_592_000;

/// Which CAS value of the reference stands for which of the subject. 0 is no CAS value and stands for itself.
#[derive(Debug, Default)]
struct CasPairs {
    to_subject: HashMap<u64, u64>,
    to_reference: HashMap<u64, u64>,
}

impl CasPairs {
    fn agree(&mut self, tiers: Tiers, reference: &Part, subject: &Part) -> bool {
        match (reference, subject) {
            (Part::Cas(0), _) | (_, Part::Cas(0)) => reference == subject,
            (Part::Cas(one), Part::Cas(two)) => {
                *self.to_subject.entry(*one).or_insert(*two) == *two
                    && *self.to_reference.entry(*two).or_insert(*one) == *one
            }
            // -1 says "never expires", which is not near to anything.
            (Part::Seconds(one), Part::Seconds(two)) if *one >= 0 && *two >= 0 => {
                one.abs_diff(*two) <= if *one > RELATIVE_MAX || tiers.ends_are_absolute { 2 } else { 1 }
            }
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
pub fn compare(stream: &Stream, reference: &Transcript, subject: &Transcript, tiers: Tiers) -> Option<Mismatch> {
    let mut pairs_of_cas = CasPairs::default();
    let pairs = reference.batches.iter().zip(&subject.batches);
    for (index, (one, two)) in pairs.enumerate() {
        if let Some((reference, subject)) = first_difference(&mut pairs_of_cas, (stream.protocol, tiers), one, two) {
            return Some(Mismatch { batch: Some(index), reference, subject });
        }
    }
    let closed = reference.batches.last().is_some_and(|replies| replies.end == End::Closed);
    if closed && tiers.effects_come_late {
        return None;
    }
    first_difference(&mut pairs_of_cas, (Protocol::Text, tiers), &reference.afterwards, &subject.afterwards)
        .map(|(reference, subject)| Mismatch { batch: None, reference, subject })
}

/// What the two servers said at the first place where they do not agree.
fn first_difference(
    cas: &mut CasPairs,
    (protocol, tiers): (Protocol, Tiers),
    reference: &Replies,
    subject: &Replies,
) -> Option<(String, String)> {
    let (one, two) = (normalise(protocol, tiers, &reference.bytes), normalise(protocol, tiers, &subject.bytes));
    let mut place = one.iter().zip(&two).position(|(one, two)| !cas.agree(tiers, one, two));
    // Rule `replies pending at a close`: of two closed connections, one may have lost replies the other got, or the end of
    // one of them.
    let both_closed = (reference.end, subject.end) == (End::Closed, End::Closed);
    place = place.filter(|&place| !(both_closed && is_cut_short(&one[place..], &two[place..])));
    let lengths_agree = one.len() == two.len() || both_closed;
    if place.is_none() && lengths_agree && reference.end == subject.end {
        return None;
    }
    let place = place.unwrap_or(one.len().min(two.len()));
    Some((show(&one, place, reference.end), show(&two, place, subject.end)))
}

/// Whether one side ends within a part that the other has more of.
fn is_cut_short(one: &[Part], two: &[Part]) -> bool {
    match (one, two) {
        ([Part::Exact(one)], [Part::Exact(two), ..]) if two.starts_with(one) => true,
        ([Part::Exact(one), ..], [Part::Exact(two)]) => one.starts_with(two),
        _ => false,
    }
}

/// The parts around `place`.
fn show(parts: &[Part], place: usize, end: End) -> String {
    let first = place.saturating_sub(SHOWN_BEFORE);
    let shown: Vec<String> = parts.iter().skip(first).take(SHOWN_PARTS).map(ToString::to_string).collect();
    format!("{} [{end:?}]", shown.join(" "))
}

fn normalise(protocol: Protocol, tiers: Tiers, bytes: &[u8]) -> Vec<Part> {
    match protocol {
        Protocol::Text | Protocol::Meta => {
            let mut parts = normalise_text::parts(bytes);
            tiers.normalise(&mut parts);
            parts
        }
        Protocol::Binary => normalise_binary::parts(bytes),
    }
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
        compare(&stream(Protocol::Text), &one, &two, Tiers::default()).is_some()
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
        assert!(!differ(("OK\r\nSTORED\r\n", End::Closed), ("OK\r\nSTO", End::Closed)));
        assert!(differ(("OK\r\nSTORED\r\nOK\r\n", End::Closed), ("OK\r\nSTO\r\n", End::Closed)));
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

    #[test]
    fn what_is_left_of_an_absolute_time_may_differ_by_two_seconds() {
        assert!(!differ(("HD t352185026\r\n", End::Sentinel), ("HD t352185024\r\n", End::Sentinel)));
        assert!(differ(("HD t352185026\r\n", End::Sentinel), ("HD t352185023\r\n", End::Sentinel)));
    }
}
