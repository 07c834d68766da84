//! Rows of any format as cells, and where each format is read.

mod delimited;
mod json;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::{self, Read};

use crate::cell::Cell;
use crate::error::LoadError;
use crate::files::{Format, RowFile};
use crate::mapping::Mapping;

/// A row: the cells of the columns that are wanted; or why it is none.
pub type Row = Result<Vec<Cell>, String>;

/// Reads rows, one after another.
pub trait Rows {
    /// The names of all columns, for a value that has them all; `None`: each row says its own.
    fn columns(&self) -> Option<Vec<String>>;

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// If the file cannot be read further.
    fn next(&mut self) -> Result<Option<Row>, LoadError>;

    /// Passes over rows.
    ///
    /// # Errors
    /// As [`Rows::next`].
    fn skip(&mut self, rows: u64) -> Result<(), LoadError> {
        for _ in 0..rows {
            self.next()?;
        }
        Ok(())
    }
}

/// How files are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The delimiter of CSV, if it is not the format's.
    pub delimiter: Option<u8>,
    /// The names of the columns of CSV that has no line for them.
    pub names: Option<Vec<String>>,
    /// The longest row, in bytes.
    pub row_max: usize,
}

/// Begins to read a file.
///
/// # Errors
/// If it cannot be opened, or lacks a column that the mapping names.
pub fn open(file: &RowFile, mapping: &Mapping, reading: &Reading) -> Result<Box<dyn Rows>, LoadError> {
    let name = file.name();
    let bytes = || file.open().map_err(|error| LoadError::file(&name, error));
    Ok(match file.format {
        Format::Csv => Box::new(delimited::Delimited::open(&name, bytes()?, b',', mapping, reading)?),
        Format::Tsv => Box::new(delimited::Delimited::open(&name, bytes()?, b'\t', mapping, reading)?),
        Format::Json => Box::new(json::JsonLines::open(&name, bytes()?, mapping, reading)),
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(parquet::ParquetRows::open(file, mapping)?),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => {
            return Err(LoadError::file(&name, "this build reads no Parquet: it lacks the feature `parquet`"));
        }
    })
}

/// Where the wanted columns are among those of a file; all of them for a mapping that takes all.
///
/// # Errors
/// If one is not there.
fn places(name: &str, mapping: &Mapping, columns: &[String]) -> Result<Vec<usize>, LoadError> {
    let place = |wanted: &String| {
        columns.iter().position(|column| column == wanted).ok_or_else(|| {
            LoadError::file(name, format!("it has no column \"{wanted}\"; it has {}", columns.join(", ")))
        })
    };
    mapping.wanted(columns).iter().map(place).collect()
}

/// Bytes of a file of which a row takes at most so many.
struct Bounded<R> {
    bytes: R,
    left: usize,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other(
                "a row is too long, perhaps for want of a closing quote: --value-max bounds it",
            ));
        }
        let most = buffer.len().min(self.left);
        let read = self.bytes.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}
