//! Makes a failing sequence short: delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
//! Input", 2002), then plainer operations and smaller values.

use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};

use super::operation::{Operation, Payload};
use super::runner::Difference;

/// Runs spent on one failure. A sequence of some thousand operations is down to a handful in a few hundred.
const ATTEMPTS_MAX: usize = 2000;

struct Shrinker<A> {
    attempt: A,
    attempts: usize,
    operations: Vec<Operation>,
    reason: String,
}

/// Shrinks `operations`, which showed `first`, as long as `attempt` still finds some difference.
pub(super) fn shrink(
    operations: Vec<Operation>,
    first: Difference,
    attempt: impl Fn(&[Operation]) -> Option<Difference>,
) -> (Vec<Operation>, String) {
    let mut shrinker = Shrinker { attempt, attempts: 0, operations, reason: String::new() };
    shrinker.keep(first);
    shrinker.drop_operations();
    shrinker.make_plain();
    shrinker.shorten_values();
    (shrinker.operations, shrinker.reason)
}

impl<A: Fn(&[Operation]) -> Option<Difference>> Shrinker<A> {
    /// Takes a difference for the sequence in hand; what comes after the operation that showed it is of no use.
    fn keep(&mut self, difference: Difference) {
        self.operations.truncate(difference.index + 1);
        self.reason = difference.reason;
    }

    /// Takes `shorter` instead if it fails too.
    fn try_instead(&mut self, shorter: Vec<Operation>) -> bool {
        self.attempts += 1;
        let Some(difference) = (self.attempt)(&shorter) else { return false };
        self.operations = shorter;
        self.keep(difference);
        true
    }

    fn may_go_on(&self) -> bool {
        self.attempts < ATTEMPTS_MAX
    }

    /// Leaves out runs of operations, halving the runs' length whenever no more can go, until single ones stay.
    fn drop_operations(&mut self) {
        let mut length = self.operations.len().div_ceil(2);
        while length > 0 {
            let dropped = self.drop_runs(length);
            if !dropped || length > 1 {
                length /= 2;
            }
        }
    }

    fn drop_runs(&mut self, length: usize) -> bool {
        let mut dropped = false;
        let mut from = 0;
        while from < self.operations.len() && self.may_go_on() {
            let to = (from + length).min(self.operations.len());
            let shorter = [&self.operations[..from], &self.operations[to..]].concat();
            if self.try_instead(shorter) {
                dropped = true;
            } else {
                from = to;
            }
        }
        dropped && self.may_go_on()
    }

    /// Takes away operations' options.
    fn make_plain(&mut self) {
        for index in (0..self.operations.len()).rev() {
            let plain = self.operations.get(index).and_then(plainer);
            if let Some(plain) = plain.filter(|_| self.may_go_on()) {
                let mut plainer = self.operations.clone();
                plainer[index] = plain;
                self.try_instead(plainer);
            }
        }
    }

    /// Halves values for as long as that still fails.
    fn shorten_values(&mut self) {
        let mut index = 0;
        while index < self.operations.len() && self.may_go_on() {
            let mut shorter = self.operations.clone();
            let halved = match &mut shorter[index] {
                Operation::Set { value: Payload::Bytes { length, .. }, .. } if *length > 0 => {
                    *length /= 2;
                    true
                }
                _ => false,
            };
            if !halved || !self.try_instead(shorter) {
                index += 1;
            }
        }
    }
}

/// An operation without its options, if it has any. Time to live and mode stay: most differences are about them.
fn plainer(operation: &Operation) -> Option<Operation> {
    let mut plain = operation.clone();
    match &mut plain {
        Operation::Get { request, .. } => *request = Retrieve { touch: request.touch, ..Retrieve::default() },
        Operation::Set { request, compare, .. } => {
            *request = Write { mode: request.mode, exptime: request.exptime, ..Write::default() };
            *compare = None;
        }
        Operation::Delete { request, compare, .. } => {
            *request = Delete { invalidate: request.invalidate, ..Delete::default() };
            *compare = None;
        }
        Operation::Arithmetic { request, compare, .. } => {
            let Arithmetic { delta, decrement, .. } = *request;
            *request = Arithmetic { delta, decrement, ..Arithmetic::default() };
            *compare = None;
        }
        _ => (),
    }
    (plain != *operation).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let peeks: Vec<_> = (0..1000).map(|key| Operation::Peek { key }).collect();
        let attempt = |operations: &[Operation]| {
            let needed = [17, 450, 451, 900].map(|key| operations.iter().position(|step| step.key() == Some(key)));
            let last = needed.into_iter().try_fold(0, |last, found| Some(last.max(found?)))?;
            Some(Difference { index: last, reason: "all are there".into() })
        };
        let first = attempt(&peeks).unwrap();
        let (shrunk, reason) = shrink(peeks, first, attempt);
        assert_eq!(shrunk, [17, 450, 451, 900].map(|key| Operation::Peek { key }));
        assert_eq!(reason, "all are there");
    }
}
