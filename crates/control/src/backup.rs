//! Backups: all that a ledger has, as lines of JSON, taken while it serves.
//!
//! ```text
//!  {"moneta":"ledger","v":1,"revision":42}
//!  {"key":"env/default/topologies/feed","value":"{…}"}      one a key; what is held by a process that runs is left out
//!  {"end":17}                                               how many there are: a file that was cut off has none
//! ```
//! A ledger that is filled from one is of another incarnation, at a later revision, so readers of feeds begin anew.

use std::io::BufRead;

use axum::body::Bytes;
use futures_util::Stream;
use moneta_ledger::Revision;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::error::Refusal;

/// The most bytes of a line: a value as JSON may need several for one.
const LINE_MAX: u64 = 8 << 20;
/// Lines of one piece of an answer, by bytes.
const PIECE: usize = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    moneta: String,
    v: u32,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Entry { key: String, value: String },
    End { end: u64 },
}

/// A backup that was read.
#[derive(Debug)]
pub struct Backup {
    /// The revision of the ledger that it is of.
    pub revision: Revision,
    /// Keys and values.
    pub entries: Vec<(String, Bytes)>,
}

/// Why a file is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// It is something else, or of a form that is not known here.
    #[error("line {0} is not understood")]
    Line(u64),
    /// It was cut off, or changed.
    #[error("it is not whole: it has {have} keys, and its end says {said:?}")]
    Cut {
        /// Keys that were read.
        have: u64,
        /// How many there should be; `None`: the end is missing.
        said: Option<u64>,
    },
}

impl Backup {
    /// Reads a backup.
    ///
    /// # Errors
    /// If it cannot be read, is none, or is not whole.
    pub fn read(mut from: impl BufRead) -> Result<Self, BackupError> {
        let mut number = 0;
        let mut next = || -> Result<Option<(u64, String)>, BackupError> {
            use std::io::Read as _;
            let mut line = String::new();
            number += 1;
            let read = from.by_ref().take(LINE_MAX).read_line(&mut line)?;
            match read {
                0 => Ok(None),
                _ if line.ends_with('\n') => Ok(Some((number, line))),
                _ => Err(BackupError::Line(number)),
            }
        };
        let (_, head) = next()?.ok_or(BackupError::Line(1))?;
        let head: Head = serde_json::from_str(&head).map_err(|_| BackupError::Line(1))?;
        if head.moneta != "ledger" || head.v != 1 {
            return Err(BackupError::Line(1));
        }
        let mut entries = Vec::new();
        let mut said = None;
        while let Some((number, line)) = next()? {
            match serde_json::from_str(&line) {
                Ok(Line::Entry { key, value }) if said.is_none() => entries.push((key, value.into())),
                Ok(Line::End { end }) if said.is_none() => said = Some(end),
                _ => return Err(BackupError::Line(number)),
            }
        }
        let have = entries.len() as u64;
        if said != Some(have) {
            return Err(BackupError::Cut { have, said });
        }
        Ok(Self { revision: Revision(head.revision), entries })
    }
}

impl Control {
    /// A backup of all there is, in pieces.
    ///
    /// # Errors
    /// 503 if the ledger cannot be had, or another is taken.
    pub async fn backup(&self) -> Result<impl Stream<Item = Bytes> + Send + 'static + use<>, Refusal> {
        let turn = std::sync::Arc::clone(&self.backing_up).try_acquire_owned();
        let turn = turn.map_err(|_| Refusal::unavailable("another backup is taken"))?;
        let found = self.ledger.snapshot("").await?;
        let head = Head { moneta: "ledger".into(), v: 1, revision: found.revision.0 };
        let mut entries = found.entries.into_iter().filter(|entry| entry.hold.is_none());
        let mut count = 0;
        let mut piece = written(&head);
        let mut is_over = false;
        Ok(futures_util::stream::iter(std::iter::from_fn(move || {
            let _turn = &turn;
            if is_over {
                return None;
            }
            let mut text = std::mem::take(&mut piece);
            while text.len() < PIECE {
                let Some(entry) = entries.next() else {
                    is_over = true;
                    text.push_str(&written(&Line::End { end: count }));
                    break;
                };
                // All values are JSON, and so text; anything else is damage.
                let Ok(value) = String::from_utf8(entry.value.to_vec()) else {
                    tracing::error!(key = entry.key, "the value is no text: the backup ends without its end");
                    is_over = true;
                    break;
                };
                count += 1;
                text.push_str(&written(&Line::Entry { key: entry.key, value }));
            }
            Some(text.into())
        })))
    }
}

fn written(line: &impl Serialize) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "{\"moneta\":\"ledger\",\"v\":1,\"revision\":42}\n{\"key\":\"a\",\"value\":\"1\"}\n\
                         {\"key\":\"b\",\"value\":\"{\\\"x\\\":2}\"}\n{\"end\":2}\n";

    #[test]
    fn a_backup_is_read_whole_or_not_at_all() {
        let read = Backup::read(WHOLE.as_bytes()).unwrap();
        assert_eq!((read.revision, read.entries.len()), (Revision(42), 2));
        assert_eq!(read.entries[1], ("b".into(), "{\"x\":2}".into()));
        for end in 0..WHOLE.len() {
            assert!(Backup::read(&WHOLE.as_bytes()[..end]).is_err(), "cut off at {end}");
        }
        for (from, to) in [("ledger", "feed"), ("\"v\":1", "\"v\":2"), ("\"end\":2", "\"end\":3")] {
            assert!(Backup::read(WHOLE.replace(from, to).as_bytes()).is_err());
        }
        assert!(Backup::read(format!("{WHOLE}{WHOLE}").as_bytes()).is_err());
    }
}
