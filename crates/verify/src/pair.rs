//! Looking at the same keys on both sides at about the same time.
//!
//! Questions go out to both servers before the first answer is read; answers are read in turn, so that at most one value of
//! each side is in memory, however large a batch of values is.

use std::ops::Range;

use moneta_client::wire::blocking::DialogueError;

use crate::comparison::Sight;
use crate::config::VerifyConfig;
use crate::error::{Side, VerifyError};
use crate::line::Line;

/// Bytes of keys that are asked for before answers are read. Less than any socket has room for: a server that waits until
/// its answers are read must not keep us from sending the rest of the questions.
const QUESTIONS_MAX: usize = 16 << 10;
/// What a question takes beside its key, about.
const QUESTION: usize = 40;

/// A connection to either server.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) a: Line,
    pub(crate) b: Line,
}

/// A failure and whose it is.
type Failed = (Side, DialogueError);

impl Pair {
    pub(crate) fn new(config: &VerifyConfig) -> Self {
        Self { a: Line::new(Side::A, config), b: Line::new(Side::B, config) }
    }

    pub(crate) fn line(&mut self, side: Side) -> &mut Line {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Shows `visit` what both sides have under each of `keys`, by its index. Connections that break are made anew once.
    ///
    /// # Errors
    /// When a server fails twice in a row.
    pub(crate) fn look(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        mut visit: impl FnMut(usize, Sight, Sight),
    ) -> Result<(), VerifyError> {
        self.persist(keys, |pair, part, next| {
            let asked_a = pair.a.peek(&keys[part.clone()], true).map_err(|error| (Side::A, error))?;
            let asked_b = pair.b.peek(&keys[part], true).map_err(|error| (Side::B, error))?;
            for (a, b) in asked_a.iter().zip(&asked_b) {
                let a = pair.a.sight(a).map_err(|error| (Side::A, error))?;
                let b = pair.b.sight(b).map_err(|error| (Side::B, error))?;
                visit(*next, a, b);
                *next += 1;
            }
            Ok(())
        })
    }

    /// Shows `visit` what `side` says of each of `keys`, without values.
    ///
    /// # Errors
    /// When the server fails twice in a row.
    pub(crate) fn look_at_one(
        &mut self,
        side: Side,
        keys: &[impl AsRef<[u8]>],
        mut visit: impl FnMut(usize, Sight),
    ) -> Result<(), VerifyError> {
        self.persist(keys, |pair, part, next| {
            let line = pair.line(side);
            let asked = line.peek(&keys[part], false).map_err(|error| (side, error))?;
            for asked in &asked {
                visit(*next, line.sight(asked).map_err(|error| (side, error))?);
                *next += 1;
            }
            Ok(())
        })
    }

    /// Has `step` work through all keys, part by part. When it fails, it goes on where it was, on new connections, once.
    fn persist(
        &mut self,
        keys: &[impl AsRef<[u8]>],
        mut step: impl FnMut(&mut Self, Range<usize>, &mut usize) -> Result<(), Failed>,
    ) -> Result<(), VerifyError> {
        let mut next = 0;
        let mut failed_at = None;
        while next < keys.len() {
            let part = part(keys, next);
            if let Err((side, error)) = step(self, part, &mut next) {
                // The other side has answers in flight that will not be read.
                self.a.close();
                self.b.close();
                if failed_at.replace(next) == Some(next) {
                    return Err(self.line(side).failure(error));
                }
            }
        }
        Ok(())
    }
}

/// The keys from `begin` on that may be asked for at once.
fn part(keys: &[impl AsRef<[u8]>], begin: usize) -> Range<usize> {
    let mut bytes = 0;
    let count = keys[begin..]
        .iter()
        .take_while(|key| {
            bytes += key.as_ref().len() + QUESTION;
            bytes <= QUESTIONS_MAX
        })
        .count();
    begin..begin + count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_a_socket_and_leave_nothing_out() {
        let keys: Vec<Vec<u8>> = (0..1000).map(|index| vec![b'k'; 1 + index % 250]).collect();
        let mut next = 0;
        while next < keys.len() {
            let part = part(&keys, next);
            assert!(part.start == next && part.end > next);
            assert!(keys[part.clone()].iter().map(|key| key.len() + QUESTION).sum::<usize>() <= QUESTIONS_MAX);
            next = part.end;
        }
        assert_eq!(next, keys.len());
    }
}
