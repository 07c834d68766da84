//! What nodes held at a restore point: of each key the newest change, less what a flush took, what was deleted and what has
//! expired.
//!
//! An archive may hold many times what fits into memory. Changes are dealt by their key's hash to nameless files, each of which
//! has so few that they do; one that has more is dealt again.
//!
//! ```text
//!  segments ─▶ floors ─▶ changes of the wanted keys ─▶ by hash ─▶ 1 … n files ─▶ one in memory at a time: the newest of each key
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

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
/// Files at most into which one is dealt again that is too large, and how often: all changes of one key stay together.
const FILES_AGAIN: u64 = 64;
const TIMES: u32 = 3;
/// Bytes that wait for each file.
const BUFFER: usize = 64 << 10;

/// What a slot held at a restore point.
pub struct State {
    parts: Vec<Dealt>,
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
        let mut dealer = Dealer::new(needed(point.counts()), FILES)?;
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
                dealer.deal(&change)
            },
        )?;
        Ok(Self { parts: dealer.end()?, floors, at })
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
        self.parts.iter_mut().try_for_each(|part| newest(part, TIMES, &mut visit))
    }
}

/// Shows the newest change of each key of a file, which may be dealt again so often.
fn newest(
    part: &mut Dealt,
    times: u32,
    visit: &mut dyn FnMut(Change) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    part.file.seek(SeekFrom::Start(0)).map_err(temporary)?;
    let mut input = BufReader::with_capacity(BUFFER, &part.file);
    if times > 0 && part.needed > 2 * MEMORY {
        let mut dealer = Dealer::new(part.needed, FILES_AGAIN)?;
        while let Some(change) = next(&mut input)? {
            dealer.deal(&change)?;
        }
        return dealer.end()?.iter_mut().try_for_each(|part| newest(part, times - 1, visit));
    }
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
    newest.into_values().try_for_each(visit)
}

/// A nameless file of changes, and the bytes that they take in memory.
struct Dealt {
    file: File,
    needed: u64,
}

/// Deals changes to files, all of one key to one.
struct Dealer {
    files: Vec<(BufWriter<File>, u64)>,
    /// What no archive can know: else its keys might all go to one file.
    seed: u64,
    buffer: Vec<u8>,
}

impl Dealer {
    /// For changes that take so many bytes in memory, into so many files at most.
    fn new(needed: u64, most: u64) -> Result<Self, BackupError> {
        let seed = getrandom::u64().map_err(|error| BackupError::System(error.into()))?;
        let file = |_| Ok((BufWriter::with_capacity(BUFFER, tempfile::tempfile().map_err(temporary)?), 0));
        let files = (0..(needed / MEMORY + 1).min(most)).map(file).collect::<Result<_, BackupError>>()?;
        Ok(Self { files, seed, buffer: Vec::new() })
    }

    fn deal(&mut self, change: &Change) -> Result<(), BackupError> {
        let count = self.files.len() as u64;
        let place = xxh3_64_with_seed(change.key().map_or(&[][..], |key| key), self.seed) % count;
        let (file, needed) = &mut self.files[usize::try_from(place).unwrap_or(0)];
        self.buffer.clear();
        record::write(change, &mut self.buffer);
        let length = self.buffer.len() as u64;
        *needed += length + EACH;
        file.write_all(&length.to_le_bytes()).and_then(|()| file.write_all(&self.buffer)).map_err(temporary)
    }

    fn end(self) -> Result<Vec<Dealt>, BackupError> {
        let end = |(file, needed): (BufWriter<File>, u64)| {
            let file = file.into_inner().map_err(|error| temporary(error.into_error()))?;
            Ok(Dealt { file, needed })
        };
        self.files.into_iter().map(end).collect()
    }
}

fn temporary(error: io::Error) -> BackupError {
    let folder = std::env::temp_dir();
    io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display())).into()
}

/// Bytes that changes take in memory.
fn needed(counts: moneta_segments::Counts) -> u64 {
    counts.sets.saturating_add(counts.deletes).saturating_mul(EACH).saturating_add(counts.bytes)
}

fn next(input: &mut impl Read) -> Result<Option<Change>, BackupError> {
    let mut length = [0; 8];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(temporary)?,
    }
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX)];
    input.read_exact(&mut bytes).map_err(temporary)?;
    let change = record::read(&mut Bytes::from(bytes));
    Ok(Some(change.ok_or_else(|| io::Error::other("a file of this process has changed"))?))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use moneta_item::{Expiry, ItemMeta};

    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_dealt_again_and_tells_the_newest_of_each_key_once() {
        let mut dealer = Dealer::new(0, FILES).expect("there is room");
        for version in 1..=3_u64 {
            for key in 0..100_u64 {
                let meta = ItemMeta { expiry: Expiry(0), cas: (version << 20) + key, ..ItemMeta::default() };
                let (key, value) = (Bytes::from(format!("k{key}")), Some(Bytes::from(version.to_string())));
                dealer.deal(&Change::Set(Set { key, meta, value, as_of: None })).expect("there is room");
            }
        }
        let mut dealt = dealer.end().expect("there is room");
        assert_eq!((dealt.len(), dealt[0].needed > 100), (1, true));
        dealt[0].needed = 50 * MEMORY;
        let mut told: BTreeMap<Bytes, Vec<Bytes>> = BTreeMap::new();
        let mut in_a_row = BTreeMap::new();
        for times in [0, TIMES] {
            let mut order = Vec::new();
            newest(&mut dealt[0], times, &mut |change| {
                let Change::Set(set) = change else { panic!("none was dealt") };
                order.push(set.key.clone());
                told.entry(set.key).or_default().extend(set.value);
                Ok(())
            })
            .expect("it can be read");
            in_a_row.insert(times, order);
        }
        assert_eq!(told.len(), 100);
        assert!(told.values().all(|values| *values == ["3", "3"]), "{told:?}");
        assert!(in_a_row.values().all(|order| order.len() == 100), "each key once");
    }
}
