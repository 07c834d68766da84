//! Changes as a Parquet file, for other programs to read.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use moneta_feed::{Change, Set};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// The columns. Those of a change that it has not are null.
const SCHEMA: &str = "message change {
    required binary change (UTF8);
    optional binary key;
    optional binary value;
    optional int64 flags;
    optional int64 expires;
    optional int64 version (INTEGER(64,false));
    optional int64 read_at (TIMESTAMP(MILLIS,true));
}";
/// Rows of a group at most.
const GROUP: usize = 100_000;
/// Bytes of keys and values of a group, but for its last row.
const GROUP_BYTES: usize = 64 << 20;

/// Writes changes, a row each.
pub struct ChangesFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Row>,
    bytes: usize,
}

#[derive(Default)]
struct Row {
    change: &'static str,
    key: Option<Bytes>,
    value: Option<Bytes>,
    flags: Option<u32>,
    expires: Option<u32>,
    version: Option<u64>,
    read_at: Option<u64>,
}

impl Row {
    fn of(change: &Change, read_at: u64, keys_only: bool) -> Self {
        match change {
            Change::Set(Set { key, meta, value, as_of }) => Self {
                change: "set",
                key: Some(key.clone()),
                value: value.clone().filter(|_| !keys_only),
                flags: Some(meta.flags),
                expires: Some(meta.expiry.0),
                version: Some(meta.cas),
                read_at: Some(as_of.unwrap_or(read_at)),
            },
            Change::Delete { key, version } => {
                Self { change: "delete", key: Some(key.clone()), version: Some(version.0), ..Self::default() }
            }
            Change::Flush(floor) => {
                Self { change: "flush", expires: Some(floor.second), version: Some(floor.version.0), ..Self::default() }
            }
            Change::Gap(gap) => Self { change: "gap", read_at: Some(gap.since), ..Self::default() },
            Change::Lost { until } => Self { change: "lost", read_at: Some(*until), ..Self::default() },
        }
    }

    fn bytes(&self) -> usize {
        [&self.key, &self.value].into_iter().flatten().map(Bytes::len).sum()
    }
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// A number as Parquet keeps it: the bits of one without a sign.
fn number(number: impl Into<u64>) -> i64 {
    number.into().cast_signed()
}

impl<W: Write + Send> ChangesFile<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The writer's.
    pub fn begin(into: W) -> io::Result<Self> {
        let schema = parse_message_type(SCHEMA).map_err(failed)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        let writer = SerializedFileWriter::new(into, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        Ok(Self { writer, rows: Vec::new(), bytes: 0 })
    }

    /// Writes a change of a block that was read from its source at `read_at`, Unix milliseconds; `keys_only`: without its value.
    ///
    /// # Errors
    /// The writer's.
    pub fn add(&mut self, change: &Change, read_at: u64, keys_only: bool) -> io::Result<()> {
        let row = Row::of(change, read_at, keys_only);
        self.bytes += row.bytes();
        self.rows.push(row);
        if self.rows.len() >= GROUP || self.bytes >= GROUP_BYTES { self.group().map_err(failed) } else { Ok(()) }
    }

    /// Ends the file; without it, it is none.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(mut self) -> io::Result<()> {
        self.group().and_then(|()| self.writer.close().map(drop)).map_err(failed)
    }

    fn group(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        let changes: Vec<ByteArray> = rows.iter().map(|row| row.change.into()).collect();
        let mut column = group.next_column()?.ok_or_else(lacks)?;
        column.typed::<ByteArrayType>().write_batch(&changes, None, None)?;
        column.close()?;
        write::<ByteArrayType, _>(&mut group, rows.iter().map(|row| row.key.clone().map(ByteArray::from)))?;
        write::<ByteArrayType, _>(&mut group, rows.iter().map(|row| row.value.clone().map(ByteArray::from)))?;
        write::<Int64Type, _>(&mut group, rows.iter().map(|row| row.flags.map(number)))?;
        write::<Int64Type, _>(&mut group, rows.iter().map(|row| row.expires.map(number)))?;
        write::<Int64Type, _>(&mut group, rows.iter().map(|row| row.version.map(number)))?;
        write::<Int64Type, _>(&mut group, rows.iter().map(|row| row.read_at.map(number)))?;
        group.close().map(drop)
    }
}

fn lacks() -> ParquetError {
    ParquetError::General("the schema lacks a column".to_owned())
}

/// A column of which rows may have nothing.
fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: impl Iterator<Item = Option<T::T>> + Clone,
) -> Result<(), ParquetError> {
    let there: Vec<i16> = cells.clone().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.flatten().collect();
    let mut column = group.next_column()?.ok_or_else(lacks)?;
    column.typed::<T>().write_batch(&values, Some(&there), None)?;
    column.close()
}
