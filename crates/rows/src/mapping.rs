//! Which columns make an item.

use moneta_item::Expiry;
use moneta_item::request::KEY_MAX;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;

/// The name of all columns together.
pub const ALL: &str = "*";

/// Which columns make key, value, time to live and flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Stands before each key.
    pub prefix: String,
    /// The columns of the key, at least one.
    pub key: Vec<String>,
    /// Stands between them.
    pub separator: String,
    /// The columns of the value. Of one the value is what it holds; of several, or [`ALL`], a JSON object of them.
    pub value: Vec<String>,
    /// The column with the seconds that the item lives; 0 or nothing: as `default_ttl` says.
    pub ttl: Option<String>,
    /// Seconds that items live of which no column says it; 0: for ever.
    pub default_ttl: u32,
    /// The column with the flags.
    pub flags: Option<String>,
    /// The largest value, in bytes.
    pub value_max: usize,
}

/// An item that a row makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its flags.
    pub flags: u32,
    /// When it dies.
    pub expiry: Expiry,
}

impl Mapping {
    /// Whether the value is made of all columns, whichever a file has.
    pub fn takes_all(&self) -> bool {
        self.value == [ALL]
    }

    /// The names of the columns of the value in a file that has `columns`.
    fn of_value<'a>(&'a self, columns: &'a [String]) -> &'a [String] {
        if self.takes_all() { columns } else { &self.value }
    }

    /// The columns that are wanted of a file that has `columns`: those of the key, time to live and flags if they are asked for,
    /// then those of the value.
    pub fn wanted(&self, columns: &[String]) -> Vec<String> {
        let first = self.key.iter().chain(&self.ttl).chain(&self.flags);
        first.chain(self.of_value(columns)).cloned().collect()
    }

    /// The item that a row makes which is written in this second; else why it makes none. `columns`: of the file.
    ///
    /// # Errors
    /// In words, what is wrong with the row.
    pub fn make(&self, cells: &[Cell], columns: &[String], second: u32) -> Result<Made, String> {
        let (key, rest) = cells.split_at(self.key.len());
        let (ttl, rest) = rest.split_at(usize::from(self.ttl.is_some()));
        let (flags, value) = rest.split_at(usize::from(self.flags.is_some()));
        Ok(Made {
            key: self.make_key(key)?,
            value: self.make_value(value, columns)?,
            flags: flags.first().map_or(Ok(None), |cell| number(cell, "the flags"))?.unwrap_or(0),
            expiry: self.make_expiry(ttl.first(), second)?,
        })
    }

    fn make_key(&self, cells: &[Cell]) -> Result<Vec<u8>, String> {
        let mut key = self.prefix.clone().into_bytes();
        for (place, (cell, name)) in cells.iter().zip(&self.key).enumerate() {
            if place > 0 {
                key.extend_from_slice(self.separator.as_bytes());
            }
            match cell {
                Cell::Bytes(bytes) | Cell::Json(bytes) if !bytes.is_empty() => key.extend_from_slice(bytes),
                _ => return Err(format!("\"{name}\", of the key, is empty")),
            }
        }
        if key.len() > KEY_MAX {
            return Err(format!("the key has {} bytes, and {KEY_MAX} are allowed", key.len()));
        }
        if key.iter().any(|byte| *byte <= b' ' || *byte == 127) {
            return Err("the key has a space or a control character".to_owned());
        }
        Ok(key)
    }

    fn make_value(&self, cells: &[Cell], columns: &[String]) -> Result<Vec<u8>, String> {
        let value = match (cells, &*self.value) {
            ([cell], [name]) if !self.takes_all() => match cell {
                Cell::Nothing => return Err(format!("\"{name}\", the value, is missing")),
                Cell::Bytes(bytes) | Cell::Json(bytes) => bytes.clone(),
            },
            // JSON lines: the object as it is.
            ([Cell::Json(object)], _) if columns.is_empty() => object.clone(),
            _ => object(cells, self.of_value(columns))?,
        };
        match value.len() {
            length if length > self.value_max => {
                Err(format!("the value has {length} bytes, and --value-max is {}", self.value_max))
            }
            _ => Ok(value),
        }
    }

    fn make_expiry(&self, ttl: Option<&Cell>, second: u32) -> Result<Expiry, String> {
        let lives = ttl.map_or(Ok(None), |cell| number(cell, "the time to live"))?.unwrap_or(0);
        match if lives == 0 { self.default_ttl } else { lives } {
            0 => Ok(Expiry(0)),
            lives => second.checked_add(lives).map(Expiry).ok_or_else(|| "it lives beyond the year 2106".to_owned()),
        }
    }
}

/// A number that a column holds; `None`: it is empty.
fn number(cell: &Cell, what: &str) -> Result<Option<u32>, String> {
    let (Cell::Bytes(bytes) | Cell::Json(bytes)) = cell else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| format!("{what} is no number from 0 to 4294967295: {text:.40}")),
    }
}

/// Columns as a JSON object, in their order. What holds nothing is null.
fn object(cells: &[Cell], names: &[String]) -> Result<Vec<u8>, String> {
    let mut out = vec![b'{'];
    for (place, (cell, name)) in cells.iter().zip(names).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, name).map_err(|error| error.to_string())?;
        out.push(b':');
        match cell {
            Cell::Nothing => out.extend_from_slice(b"null"),
            Cell::Json(json) => out.extend_from_slice(json),
            Cell::Bytes(bytes) => {
                let text = std::str::from_utf8(bytes).map_err(|_| format!("\"{name}\" is no UTF-8"))?;
                serde_json::to_writer(&mut out, text).map_err(|error| error.to_string())?;
            }
        }
    }
    out.push(b'}');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn mapping(key: &str, value: &str) -> Mapping {
        Mapping {
            prefix: "p:".to_owned(),
            key: words(key),
            separator: ":".to_owned(),
            value: words(value),
            ttl: Some("ttl".to_owned()),
            default_ttl: 50,
            flags: Some("flags".to_owned()),
            value_max: 100,
        }
    }

    fn bytes(text: &str) -> Cell {
        Cell::Bytes(text.into())
    }

    #[test]
    fn one_column_is_the_value_and_several_are_an_object() {
        let one = mapping("a", "v");
        let made = one.make(&[bytes("k"), bytes("10"), bytes("7"), bytes("x\"y")], &[], 1000).expect("it is good");
        assert_eq!((&*made.key, &*made.value, made.flags, made.expiry.0), (&b"p:k"[..], &b"x\"y"[..], 7, 1010));
        let several = mapping("a b", "v n e");
        let cells = [
            bytes("k"),
            bytes("l"),
            Cell::Nothing,
            bytes(""),
            bytes("x\"y"),
            Cell::Json(b"1.50".into()),
            Cell::Nothing,
        ];
        let made = several.make(&cells, &[], 1000).expect("it is good");
        let value = String::from_utf8(made.value).expect("it is text");
        assert_eq!((&*made.key, &*value), (&b"p:k:l"[..], r#"{"v":"x\"y","n":1.50,"e":null}"#));
        assert_eq!((made.flags, made.expiry.0), (0, 1050), "what is empty is as by default");
    }

    #[test]
    fn a_row_that_makes_no_item_says_why() {
        let wrong = |cells: [Cell; 4]| mapping("a", "v").make(&cells, &[], 1000).expect_err("it is bad");
        let good = || [bytes("k"), bytes(""), bytes(""), bytes("v")];
        let with = |place: usize, cell: Cell| {
            let mut cells = good();
            cells[place] = cell;
            wrong(cells)
        };
        assert!(mapping("a", "v").make(&good(), &[], 1000).is_ok());
        assert!(with(0, Cell::Nothing).contains("\"a\", of the key, is empty"));
        assert!(with(0, bytes("a b")).contains("space"));
        assert!(with(0, bytes(&"k".repeat(249))).contains("251 bytes"));
        assert!(with(1, bytes("-1")).contains("time to live"));
        assert!(with(1, bytes("4294967000")).contains("2106"));
        assert!(with(2, bytes("1.5")).contains("flags"));
        assert!(with(3, bytes(&"v".repeat(101))).contains("101 bytes"));
        assert!(with(3, Cell::Nothing).contains("missing"));
    }
}
