//! Apache Parquet: of each row group the columns that are wanted.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row as Record};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::{Row, Rows, places};
use crate::cell::Cell;
use crate::error::LoadError;
use crate::files::RowFile;
use crate::mapping::Mapping;

/// Reads a file, a row group after another.
pub(super) struct ParquetRows {
    name: String,
    reader: SerializedFileReader<File>,
    /// The wanted columns, each once.
    wanted: SchemaDescPtr,
    columns: Vec<String>,
    /// Of each wanted cell, where it is in a record.
    places: Vec<usize>,
    /// The row group to read next.
    next: usize,
    open: Option<ReaderIter>,
    /// Rows that came, those that were passed over among them.
    rows: u64,
}

impl ParquetRows {
    pub(super) fn open(file: &RowFile, mapping: &Mapping) -> Result<Self, LoadError> {
        let name = file.name();
        let bytes = file.local().map_err(|error| LoadError::file(&name, error))?;
        let reader = guarded(|| SerializedFileReader::new(bytes)).map_err(|why| LoadError::file(&name, why))?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema().clone();
        let fields = schema.get_fields();
        let columns: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
        let in_file = places(&name, mapping, &columns)?;
        let mut once = in_file.clone();
        once.sort_unstable();
        once.dedup();
        let places = in_file.iter().map(|place| once.binary_search(place).expect("it is among them")).collect();
        let kept = once.iter().map(|place| Arc::clone(&fields[*place])).collect();
        let wanted = Type::group_type_builder(schema.name()).with_fields(kept).build();
        let wanted = wanted.map_err(|error| LoadError::file(&name, error))?;
        let wanted = Arc::new(SchemaDescriptor::new(Arc::new(wanted)));
        Ok(Self { name, reader, wanted, columns, places, next: 0, open: None, rows: 0 })
    }

    fn failed(&self, why: String) -> LoadError {
        LoadError::file(&format!("{}, row {}", self.name, self.rows + 1), why)
    }

    fn record(&mut self) -> Result<Option<Record>, String> {
        loop {
            if let Some(open) = &mut self.open {
                match guarded(|| open.next().transpose())? {
                    Some(record) => {
                        self.rows += 1;
                        return Ok(Some(record));
                    }
                    None => self.open = None,
                }
            }
            if self.next == self.reader.num_row_groups() {
                return Ok(None);
            }
            let (reader, wanted, group) = (&self.reader, &self.wanted, self.next);
            self.open =
                Some(guarded(|| TreeBuilder::new().as_iter(Arc::clone(wanted), &*reader.get_row_group(group)?))?);
            self.next += 1;
        }
    }
}

/// Calls the library, which panics at some damaged files and at types that it does not know.
fn guarded<T>(call: impl FnOnce() -> ParquetResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => Err("it is damaged, or has a type that is not read".to_owned()),
    }
}

fn cell(field: &Field) -> Cell {
    match field {
        Field::Null => Cell::Nothing,
        Field::Str(text) => Cell::Bytes(text.clone().into_bytes()),
        Field::Bytes(bytes) => Cell::Bytes(bytes.data().to_vec()),
        other => match other.to_json_value() {
            // Decimals, and days and times as text.
            serde_json::Value::String(text) => Cell::Bytes(text.into_bytes()),
            json => Cell::Json(json.to_string().into_bytes()),
        },
    }
}

impl Rows for ParquetRows {
    fn columns(&self) -> Option<Vec<String>> {
        Some(self.columns.clone())
    }

    fn next(&mut self) -> Result<Option<Row>, LoadError> {
        let record = self.record().map_err(|why| self.failed(why))?;
        let Some(record) = record else { return Ok(None) };
        let cells: Vec<Cell> = record.get_column_iter().map(|(_, field)| cell(field)).collect();
        Ok(Some(Ok(self.places.iter().map(|place| cells[*place].clone()).collect())))
    }

    fn skip(&mut self, mut rows: u64) -> Result<(), LoadError> {
        while self.open.is_none() && self.next < self.reader.num_row_groups() {
            let there = u64::try_from(self.reader.metadata().row_group(self.next).num_rows()).unwrap_or(0);
            if there > rows {
                break;
            }
            rows -= there;
            self.rows += there;
            self.next += 1;
        }
        for _ in 0..rows {
            self.record().map_err(|why| self.failed(why))?;
        }
        Ok(())
    }
}
