//! What nodes held at a restore point: of each key the newest change, less what a flush took, what was deleted and what has
//! expired.
//!
//! An archive may hold many times what fits into memory. Changes are dealt by their key's hash to nameless files, each of which
//! has so few that they do.
//!
//! ```text
//!  segments ─▶ floors ─▶ changes of the wanted keys ─▶ by hash ─▶ 1 … n files ─▶ one in memory at a time: the newest of each key
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use bytes::Bytes;
use moneta_item::Version;
use moneta_segments::{Committed, record};
use moneta_store::feed::{Change, Set};
use moneta_store::versions::{Floor, Floors, Standing, Verdict, digest};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::BackupError;
use crate::moment::second;
use crate::owner::Owner;
use crate::point::Point;

/// Bytes of changes that are in memory at once, about.
const MEMORY: u64 = 192 << 20;
/// Bytes that a change takes beside its key and value, in memory.
const EACH: u64 = 200;
/// Files at most: a process may have 1,024 open, as a rule.
const FILES: u64 = 256;
/// Bytes that wait for each file.
const BUFFER: usize = 64 << 10;
/// Where keys are dealt to files by another hash than anything else is.
const SEED: u64 = 0x6261_636b_7570;

/// What a slot held at a restore point.
pub struct State {
    parts: Vec<File>,
    floors: Floors,
    /// The moment, Unix milliseconds.
    at: u64,
}

/// What is read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Only keys that begin so.
    pub prefix: Vec<u8>,
    /// The largest value, in bytes.
    pub value_max: usize,
}

impl State {
    /// Reads what a point needs.
    ///
    /// # Errors
    /// If a segment cannot be read or is damaged, or there is no room for what is dealt out.
    pub fn read(point: &Point, reading: &Reading) -> Result<Self, BackupError> {
        let at = point.watermark;
        let mut floors = Floors::default();
        let may_flush = |segment: &Committed| segment.footer.counts.others > 0;
        point.read(reading.value_max, may_flush, |change| {
            if let Change::Flush(floor) = change
                && !floor.is_local()
            {
                floors.note(floor, second(at));
            }
            Ok(())
        })?;
        let count = (needed(point.counts()) / MEMORY + 1).min(FILES);
        let mut files = Vec::new();
        for _ in 0..count {
            files.push(BufWriter::with_capacity(BUFFER, tempfile::tempfile()?));
        }
        let mut buffer = Vec::new();
        let is_gone = |set: &Set| !set.meta.unversioned && floors.takes(set.meta.version());
        point.read(
            reading.value_max,
            |_| true,
            |change| {
                let Some(key) = change.key() else { return Ok(()) };
                let is_other = |owner: &Owner| !owner.has(key);
                if !key.starts_with(&reading.prefix)
                    || point.owner.as_ref().is_some_and(is_other)
                    || matches!(&change, Change::Set(set) if is_gone(set))
                {
                    return Ok(());
                }
                let file = &mut files[usize::try_from(xxh3_64_with_seed(key, SEED) % count).unwrap_or(0)];
                buffer.clear();
                record::write(&change, &mut buffer);
                file.write_all(&(buffer.len() as u64).to_le_bytes())?;
                file.write_all(&buffer)?;
                Ok(())
            },
        )?;
        let parts = files.into_iter().map(|file| file.into_inner().map_err(|error| error.into_error()));
        Ok(Self { parts: parts.collect::<Result<_, _>>()?, floors, at })
    }

    /// The flushes that hold, as changes: for a base that others go on from.
    pub fn flushes(&self) -> Vec<Floor> {
        let bound = self.floors.bound;
        let taken = (bound > Version::ZERO).then(|| Floor { version: bound, second: second(bound.millis()) });
        taken.into_iter().chain(self.floors.pending).collect()
    }

    /// Shows each item that lived then, each key once, in no order.
    ///
    /// # Errors
    /// If what was dealt out cannot be read, or what `visit` says.
    pub fn items(&mut self, mut visit: impl FnMut(Set) -> Result<(), BackupError>) -> Result<(), BackupError> {
        let at = second(self.at);
        self.newest(|change| match change {
            Change::Set(set) if !set.meta.expiry.is_dead(at) => visit(set),
            _ => Ok(()),
        })
    }

    /// Shows the newest change of each key, in no order.
    ///
    /// # Errors
    /// As [`State::items`].
    pub fn newest(&mut self, mut visit: impl FnMut(Change) -> Result<(), BackupError>) -> Result<(), BackupError> {
        for file in &mut self.parts {
            file.seek(SeekFrom::Start(0))?;
            let mut input = BufReader::with_capacity(BUFFER, &*file);
            let mut newest: HashMap<Bytes, Change> = HashMap::new();
            while let Some(change) = next(&mut input)? {
                let Some(key) = change.key() else { continue };
                match newest.get_mut(key) {
                    None => {
                        newest.insert(Bytes::copy_from_slice(key), change);
                    }
                    Some(there) => {
                        if standing(&change).against(&standing(there)) == Verdict::Newer {
                            *there = change;
                        }
                    }
                }
            }
            newest.into_values().try_for_each(&mut visit)?;
        }
        Ok(())
    }
}

/// Bytes that changes take in memory.
fn needed(counts: moneta_segments::Counts) -> u64 {
    counts.bytes + (counts.sets + counts.deletes) * EACH
}

fn next(input: &mut impl Read) -> Result<Option<Change>, BackupError> {
    let mut length = [0; 8];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX)];
    input.read_exact(&mut bytes)?;
    let change = record::read(&mut Bytes::from(bytes));
    Ok(Some(change.ok_or_else(|| std::io::Error::other("a file of this process has changed"))?))
}

fn standing(change: &Change) -> Standing {
    match change {
        Change::Set(set) => Standing::Item {
            version: set.meta.version(),
            expiry: set.meta.expiry,
            digest: digest(&set.meta, set.value.as_deref()),
        },
        Change::Delete { version, .. } => Standing::Deleted(*version),
        _ => Standing::Deleted(Version::ZERO),
    }
}
