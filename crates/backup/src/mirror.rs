//! A second copy of an archive elsewhere: what it lacks is copied, as it is, encrypted or not.

use std::collections::HashSet;
use std::io;

use moneta_segments::Archive;
use serde::Serialize;

use crate::error::BackupError;
use crate::layout::{ARCHIVE, SLOTS, VERIFIED};
use crate::rings::RINGS;

/// The largest record, in bytes.
const RECORD_MAX: u64 = 64 << 10;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mirrored {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Mirrored {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { files: self.files + other.files, bytes: self.bytes + other.bytes }
    }
}

/// Copies what `to` lacks: segments before what makes them exist, so that the copy is an archive at any moment.
///
/// # Errors
/// If one of both does not answer. The same again goes on.
pub fn mirror(from: &dyn Archive, to: &dyn Archive) -> Result<Mirrored, BackupError> {
    let list =
        |archive: &dyn Archive, folder: &str| archive.list(folder).map_err(|error| BackupError::archive(folder, error));
    let all = |archive: &dyn Archive| -> Result<Vec<String>, BackupError> {
        Ok([list(archive, SLOTS)?, list(archive, VERIFIED)?, list(archive, RINGS)?].concat())
    };
    let mut names: Vec<String> = all(from)?;
    let there: HashSet<String> = all(to)?.into_iter().collect();
    names.retain(|name| !there.contains(name));
    names.push(ARCHIVE.to_owned());
    // A segment that is under way has no record yet, and is copied with that.
    names.sort_by_key(|name| (rank(name), name.clone()));
    let mut mirrored = Mirrored::default();
    for name in &names {
        let copied = match rank(name) {
            0 => copy_whole(from, to, name),
            _ => copy_record(from, to, name),
        };
        match copied {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => {
                let bytes = copied.map_err(|error| BackupError::archive(name, error))?;
                mirrored = mirrored.and(Mirrored { files: u64::from(bytes > 0), bytes });
            }
        }
    }
    Ok(mirrored)
}

/// What comes first: segments, then what makes them exist, then what says that chains are done, then bases and parts.
fn rank(name: &str) -> u8 {
    match name.rsplit('/').next().unwrap_or(name) {
        ARCHIVE => 1,
        // What was made by a ring is restored by it.
        _ if name.starts_with(RINGS) => 0,
        file if file.ends_with(".segment") => 0,
        file if file.ends_with(".commit") => 2,
        "DONE" => 3,
        _ => 4,
    }
}

fn copy_whole(from: &dyn Archive, to: &dyn Archive, name: &str) -> io::Result<u64> {
    let mut input = from.open(name)?;
    let mut upload = to.begin(name)?;
    let bytes = io::copy(&mut input, &mut upload)?;
    upload.finish()?;
    Ok(bytes)
}

fn copy_record(from: &dyn Archive, to: &dyn Archive, name: &str) -> io::Result<u64> {
    let mut content = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(from.open(name)?, RECORD_MAX), &mut content)?;
    match to.create(name, &content)? {
        moneta_segments::Created::Now => Ok(content.len() as u64),
        moneta_segments::Created::Before => Ok(0),
    }
}
