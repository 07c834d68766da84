//! CSV, and the same with tabs.

use std::io::Read;

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::{Bounded, Reading, Row, Rows, places};
use crate::cell::Cell;
use crate::error::LoadError;
use crate::mapping::Mapping;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// Reads values with a delimiter. The first line has the names of columns, unless they were given.
pub(super) struct Delimited {
    name: String,
    reader: Reader<Bounded<Box<dyn Read>>>,
    columns: Vec<String>,
    places: Vec<usize>,
    record: ByteRecord,
    row_max: usize,
}

impl Delimited {
    pub(super) fn open(
        name: &str,
        bytes: Box<dyn Read>,
        delimiter: u8,
        mapping: &Mapping,
        reading: &Reading,
    ) -> Result<Self, LoadError> {
        let bounded = Bounded { bytes, left: reading.row_max + BUFFER };
        let mut reader = ReaderBuilder::new()
            .delimiter(reading.delimiter.unwrap_or(delimiter))
            .has_headers(reading.names.is_none())
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(bounded);
        let columns = match &reading.names {
            Some(names) => names.clone(),
            None => {
                let header = reader.byte_headers().map_err(|error| LoadError::file(name, error))?;
                header.iter().map(|name| String::from_utf8_lossy(without_mark(name)).into_owned()).collect()
            }
        };
        let places = places(name, mapping, &columns)?;
        Ok(Self { name: name.to_owned(), reader, columns, places, record: ByteRecord::new(), row_max: reading.row_max })
    }
}

/// Without the byte order mark that some programs begin a file with.
fn without_mark(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name)
}

impl Rows for Delimited {
    fn columns(&self) -> Option<Vec<String>> {
        Some(self.columns.clone())
    }

    fn next(&mut self) -> Result<Option<Row>, LoadError> {
        self.reader.get_mut().left = self.row_max + BUFFER;
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => {
                let line = self.reader.position().line();
                return Err(LoadError::file(&format!("{}, line {line}", self.name), error));
            }
        }
        let (fields, columns) = (self.record.len(), self.columns.len());
        if fields != columns {
            return Ok(Some(Err(format!("it has {fields} fields, and there are {columns} columns"))));
        }
        let cell = |place: &usize| Cell::Bytes(self.record[*place].to_vec());
        Ok(Some(Ok(self.places.iter().map(cell).collect())))
    }
}
