//! A segment of the history: a file of lines of JSON.
//!
//! ```text
//!  {"v":1,"at":MS,"cursor":"INCARNATION:REVISION"}     first
//!  {"k":KEY,"v":VALUE}                                 each key there was
//!  {"at":MS,"r":REVISION,"p":[[KEY,VALUE]...],"d":[KEY...]}   each commit
//!  {"at":MS}                                           a mark: all up to here was written
//! ```
//! Times never go back within a segment. A last line that is cut short, as by a crash, counts as not there.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use moneta_ledger::{Change, Cursor, Entry, Revision, Snapshot};
use serde::{Deserialize, Serialize};

use crate::leases::Moment;
use crate::state::State;

const PREFIX: &str = "history-";
const SUFFIX: &str = ".jsonl";
/// The longest line that is read, in bytes: a commit takes less, also escaped.
const LINE_MAX: u64 = 16 << 20;

/// A segment that is there.
#[derive(Debug)]
pub(super) struct Segment {
    /// When it was begun, in milliseconds of Unix time.
    pub(super) begun: u64,
    pub(super) path: PathBuf,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
    at: u64,
    cursor: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    k: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    at: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    r: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    p: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    d: Vec<String>,
}

impl Line {
    const NONE: Self = Self { k: None, v: None, at: 0, r: 0, p: Vec::new(), d: Vec::new() };
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Writes a segment.
#[derive(Debug)]
pub(super) struct Writer {
    file: BufWriter<File>,
    begun: u64,
    last: u64,
    /// Bytes of keys, and of what came after.
    base: u64,
    more: u64,
    bounds: (u64, u64),
}

impl Writer {
    /// Begins one with these entries. `bounds`: the age in milliseconds, and the bytes of commits, from which on it is full.
    pub(super) fn begin<'a>(
        folder: &Path,
        begun: u64,
        cursor: Cursor,
        entries: impl Iterator<Item = &'a Entry>,
        bounds: (u64, u64),
    ) -> io::Result<Self> {
        let path = folder.join(format!("{PREFIX}{begun:013}{SUFFIX}"));
        // Until it has all keys, it is not there.
        let beside = folder.join(format!(".{PREFIX}{begun:013}"));
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        let mut writer =
            Self { file: BufWriter::with_capacity(256 << 10, file), begun, last: begun, base: 0, more: 0, bounds };
        writer.line(&Head { v: 1, at: begun, cursor: cursor.to_string() })?;
        for Entry { key, value, .. } in entries {
            let Ok(value) = std::str::from_utf8(value) else { continue };
            writer.line(&Line { k: Some(key.clone()), v: Some(value.to_owned()), ..Line::NONE })?;
        }
        writer.base = std::mem::take(&mut writer.more);
        writer.mark(begun)?;
        writer.flush()?;
        fs::rename(&beside, &path)?;
        Ok(writer)
    }

    /// Whether the next is to be begun.
    pub(super) fn is_full(&self, now: u64) -> bool {
        let (age, bytes) = self.bounds;
        now.saturating_sub(self.begun) > age || self.more > self.base.max(bytes)
    }

    /// A commit.
    pub(super) fn changes(&mut self, at: u64, revision: Revision, changes: &[Change]) -> io::Result<()> {
        let mut line = Line { at: self.at(at), r: revision.0, ..Line::NONE };
        for change in changes {
            match change {
                Change::Put(entry) => {
                    let Ok(value) = std::str::from_utf8(&entry.value) else { continue };
                    line.p.push((entry.key.clone(), value.to_owned()));
                }
                Change::Deleted { key, .. } => line.d.push(key.clone()),
            }
        }
        self.line(&line)
    }

    /// Everything up to now was written.
    pub(super) fn mark(&mut self, at: u64) -> io::Result<()> {
        let at = self.at(at);
        self.line(&Line { at, ..Line::NONE })
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// The wall clock may be set back.
    fn at(&mut self, now: u64) -> u64 {
        self.last = self.last.max(now);
        self.last
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.more += text.len() as u64;
        self.file.write_all(&text)
    }
}

/// All segments, in the order of their begins.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut all = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let begun = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok());
        if let Some(begun) = begun {
            all.push(Segment { begun, path: file.path(), bytes: file.metadata()?.len() });
        }
    }
    all.sort_by_key(|segment| segment.begun);
    Ok(all)
}

/// Removes segments that end before `until`, the oldest first, and more of them while all together have more bytes than `bytes`.
pub(super) fn remove_old(folder: &Path, until: u64, bytes: u64) -> io::Result<()> {
    let all = list(folder)?;
    let mut total: u64 = all.iter().map(|segment| segment.bytes).sum();
    for pair in all.windows(2) {
        let [old, next] = pair else { break };
        if next.begun > until && total <= bytes {
            break;
        }
        fs::remove_file(&old.path)?;
        total -= old.bytes;
    }
    // What a crash left of one that was being begun.
    for file in fs::read_dir(folder)? {
        let file = file?;
        if file.file_name().to_str().is_some_and(|name| name.starts_with('.') && name[1..].starts_with(PREFIX)) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Reads a segment up to a time into `state`; returns the last time up to then that it has anything of.
pub(super) fn read(path: &Path, until: u64, state: &mut State, now: Moment) -> io::Result<u64> {
    let mut lines = BufReader::with_capacity(256 << 10, File::open(path)?);
    let mut text = Vec::new();
    let mut next = |text: &mut Vec<u8>| -> io::Result<bool> {
        text.clear();
        io::Read::take(&mut lines, LINE_MAX).read_until(b'\n', text)?;
        Ok(text.pop() == Some(b'\n'))
    };
    if !next(&mut text)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let head: Head = serde_json::from_slice(&text)?;
    if head.v != 1 {
        return Err(io::Error::other(format!("a segment of the form {} is not known here", head.v)));
    }
    let cursor: Cursor = head.cursor.parse().map_err(io::Error::other)?;
    let mut base = Snapshot { incarnation: cursor.incarnation, revision: cursor.revision, entries: Vec::new() };
    let (mut known, mut is_based) = (head.at, false);
    while next(&mut text)? {
        let line: Line = serde_json::from_slice(&text)?;
        if let (Some(key), Some(value)) = (line.k, line.v) {
            base.entries.push(entry(key, value, cursor.revision));
            continue;
        }
        if !is_based {
            state.replace(std::slice::from_ref(&base), cursor, now);
            base.entries = Vec::new();
            is_based = true;
        }
        if line.at > until {
            break;
        }
        known = line.at;
        let revision = Revision(line.r);
        let puts = line.p.into_iter().map(|(key, value)| Change::Put(entry(key, value, revision)));
        let changes: Vec<Change> =
            puts.chain(line.d.into_iter().map(|key| Change::Deleted { key, revision })).collect();
        if !changes.is_empty() {
            state.apply(revision, &changes, now);
        }
    }
    Ok(known)
}

fn entry(key: String, value: String, at: Revision) -> Entry {
    Entry { key, value: Bytes::from(value), created: at, modified: at, hold: None }
}
