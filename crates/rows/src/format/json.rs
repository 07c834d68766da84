//! JSON lines: an object a line.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Map, Value};

use super::{Reading, Row, Rows};
use crate::cell::Cell;
use crate::error::LoadError;
use crate::mapping::Mapping;

/// Reads JSON lines. An empty line is no row.
pub(super) struct JsonLines {
    name: String,
    lines: BufReader<Box<dyn Read>>,
    wanted: Vec<String>,
    /// The value is the whole object.
    takes_all: bool,
    line: Vec<u8>,
    row_max: usize,
}

impl JsonLines {
    pub(super) fn open(name: &str, bytes: Box<dyn Read>, mapping: &Mapping, reading: &Reading) -> Self {
        Self {
            name: name.to_owned(),
            lines: BufReader::with_capacity(128 << 10, bytes),
            wanted: mapping.wanted(&[]),
            takes_all: mapping.takes_all(),
            line: Vec::new(),
            row_max: reading.row_max,
        }
    }

    /// Reads a line. False: there is none. One that is too long is left empty, and read to its end.
    fn read_line(&mut self) -> Result<Option<bool>, LoadError> {
        self.line.clear();
        self.line.shrink_to(64 << 10);
        let failed = |error| LoadError::file(&self.name, error);
        let most = self.row_max as u64 + 1;
        let read = (&mut self.lines).take(most).read_until(b'\n', &mut self.line).map_err(failed)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.ends_with(b"\n") || (read as u64) < most {
            return Ok(Some(true));
        }
        self.line.clear();
        loop {
            let part = self.lines.fill_buf().map_err(failed)?;
            let end = part.iter().position(|byte| *byte == b'\n');
            let (length, is_over) = (end.map_or(part.len(), |end| end + 1), end.is_some() || part.is_empty());
            self.lines.consume(length);
            if is_over {
                return Ok(Some(false));
            }
        }
    }

    fn row(&self) -> Row {
        let fields: Map<String, Value> =
            serde_json::from_slice(&self.line).map_err(|error| format!("it is no object: {error}"))?;
        if self.takes_all {
            let all = Value::Object(fields.clone()).to_string().into_bytes();
            let first = self.wanted.iter().map(|name| cell(fields.get(name)));
            return Ok(first.chain([Cell::Json(all)]).collect());
        }
        Ok(self.wanted.iter().map(|name| cell(fields.get(name))).collect())
    }
}

fn cell(value: Option<&Value>) -> Cell {
    match value {
        None | Some(Value::Null) => Cell::Nothing,
        Some(Value::String(text)) => Cell::Bytes(text.clone().into_bytes()),
        Some(other) => Cell::Json(other.to_string().into_bytes()),
    }
}

impl Rows for JsonLines {
    fn columns(&self) -> Option<Vec<String>> {
        None
    }

    fn next(&mut self) -> Result<Option<Row>, LoadError> {
        loop {
            match self.read_line()? {
                None => return Ok(None),
                Some(false) => return Ok(Some(Err(format!("it is longer than {} bytes", self.row_max)))),
                Some(true) if self.line.iter().all(u8::is_ascii_whitespace) => {}
                Some(true) => return Ok(Some(self.row())),
            }
        }
    }
}
