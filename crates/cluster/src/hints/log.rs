//! The file in which the hints of one node outlive the process.
//!
//! Records are appended: `length u32 | CRC-32 of the rest u32 | kind u8 | version u64 | moment u64 | key`, little-endian. A
//! record that is cut off or damaged ends the file. It is written anew, beside itself and then renamed, when little of it still
//! holds.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use moneta_store::Version;
use moneta_store::versions::Floor;

use super::missed::Missed;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Missed(Box<[u8]>, Missed),
    Settled(Box<[u8]>),
    Floor(Floor),
    NoFloor,
}

const SET: u8 = 1;
const DELETE: u8 = 2;
const SETTLED: u8 = 3;
const FLOOR: u8 = 4;
const NO_FLOOR: u8 = 5;
/// Bytes before the kind.
const PREFIX: usize = 8;
/// Bytes of kind, version and moment.
const FIXED: usize = 17;

impl Entry {
    /// Appends the record to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let none: &[u8] = &[];
        let (kind, version, moment, key) = match self {
            Self::Missed(key, missed) => {
                (if missed.deleted { DELETE } else { SET }, missed.version.0, missed.at, &**key)
            }
            Self::Settled(key) => (SETTLED, 0, 0, &**key),
            Self::Floor(floor) => (FLOOR, floor.version.0, u64::from(floor.second), none),
            Self::NoFloor => (NO_FLOOR, 0, 0, none),
        };
        let start = out.len();
        out.extend_from_slice(&((FIXED + key.len()) as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&moment.to_le_bytes());
        out.extend_from_slice(key);
        let check = crc32fast::hash(&out[start + PREFIX..]);
        out[start + 4..start + PREFIX].copy_from_slice(&check.to_le_bytes());
    }

    /// The record at the begin of `bytes`, and its length.
    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let length = number(0)? as usize;
        let body = bytes.get(PREFIX..)?.get(..length)?;
        if length < FIXED || crc32fast::hash(body) != number(4)? {
            return None;
        }
        let wide = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let (version, moment, key) = (Version(wide(1)), wide(9), Box::from(&body[FIXED..]));
        let entry = match body[0] {
            SET => Self::Missed(key, Missed::set(version, moment)),
            DELETE => Self::Missed(key, Missed::delete(version, moment)),
            SETTLED => Self::Settled(key),
            FLOOR => Self::Floor(Floor { version, second: u32::try_from(moment).ok()? }),
            NO_FLOOR => Self::NoFloor,
            _ => return None,
        };
        Some((entry, PREFIX + length))
    }
}

/// The open file.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens or creates the file; tells what it says.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Entry>)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (mut entries, mut at) = (Vec::new(), 0);
        while let Some((entry, length)) = Entry::decode(&bytes[at..]) {
            entries.push(entry);
            at += length;
        }
        Ok((Self { path: path.to_owned(), file }, entries))
    }

    /// Brings records to the device, after those that are there.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all(records)?;
        self.file.sync_data()
    }

    /// Whether the file of that name is still this one.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |file: &fs::Metadata| (file.dev(), file.ino());
        let (named, open) = (fs::metadata(&self.path), self.file.metadata());
        matches!((named, open), (Ok(named), Ok(open)) if identity(&named) == identity(&open))
    }

    /// Begins a file in place of this one.
    pub(super) fn begin_anew(&self) -> io::Result<Anew> {
        let path = self.path.with_extension("new");
        Ok(Anew { file: File::create(&path)?, path })
    }

    /// Brings it to the device, in place of this one.
    pub(super) fn end_anew(&mut self, Anew { path, file }: Anew) -> io::Result<()> {
        file.sync_data()?;
        fs::rename(&path, &self.path)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        Ok(())
    }

    /// Has the file at `path` from now on.
    pub(super) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        let from = std::mem::replace(&mut self.path, path.to_owned());
        fs::rename(from, path)
    }
}

/// A file that is to take the place of another one.
pub(super) struct Anew {
    path: PathBuf,
    file: File,
}

impl Anew {
    pub(super) fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all(records)
    }
}

impl fmt::Display for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)
    }
}

/// A record with this body and a checksum that fits; for fuzzing.
#[cfg(feature = "testing")]
pub fn hint_record(body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend_from_slice(&(body.len() as u32).to_le_bytes());
    record.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    record.extend_from_slice(body);
    record
}

/// The records at the begin of a file of hints, as text and as they are written; for fuzzing.
#[cfg(feature = "testing")]
pub fn read_hints(bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let (mut entries, mut written, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some((entry, length)) = Entry::decode(&bytes[at..]) {
        entry.encode(&mut written);
        entries.push(format!("{entry:?}"));
        at += length;
    }
    (entries, written)
}
