//! The file of bad rows: a line of JSON for each.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::LoadError;

/// Bad rows, in the order in which they were found.
pub(crate) struct BadRows {
    file: Option<(PathBuf, BufWriter<File>)>,
    bytes: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    row: u64,
    reason: &'a str,
}

impl BadRows {
    /// The file at `path`, of which the first `bytes` are kept; `None`: bad rows are counted alone.
    pub(crate) fn open(path: Option<&Path>, bytes: u64) -> Result<Self, LoadError> {
        let Some(path) = path else { return Ok(Self { file: None, bytes: 0 }) };
        let open = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
            Ok(file)
        };
        let file = open().map_err(|source| LoadError::Own { file: path.display().to_string(), source })?;
        Ok(Self { file: Some((path.to_owned(), BufWriter::with_capacity(64 << 10, file))), bytes })
    }

    /// Adds a row; rows of a file count from 1.
    pub(crate) fn add(&mut self, name: &str, row: u64, reason: &str) -> Result<(), LoadError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_vec(&Line { file: name, row, reason }).map_err(std::io::Error::from);
        let added = line.and_then(|mut line| {
            line.push(b'\n');
            file.write_all(&line)?;
            Ok(line.len() as u64)
        });
        self.bytes += added.map_err(|source| LoadError::Own { file: path.display().to_string(), source })?;
        Ok(())
    }

    /// Takes back what was added after the file had so many bytes.
    pub(crate) fn rewind(&mut self, bytes: u64) -> Result<(), LoadError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut rewind = || {
            file.seek(SeekFrom::Start(bytes))?;
            file.get_ref().set_len(bytes)
        };
        rewind().map_err(|source| LoadError::Own { file: path.display().to_string(), source })?;
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes that are in the file, once all of them are.
    pub(crate) fn settle(&mut self) -> Result<u64, LoadError> {
        if let Some((path, file)) = &mut self.file {
            let written = file.flush().and_then(|()| file.get_ref().sync_data());
            written.map_err(|source| LoadError::Own { file: path.display().to_string(), source })?;
        }
        Ok(self.bytes)
    }
}
