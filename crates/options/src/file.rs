//! The TOML file: its keys, with the line each stands on, and nothing unknown.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::declaration::{Section, options};
use crate::nearest::nearest;
use crate::report::{Origin, Refusal};
use crate::values::Written;

/// What a file may hold.
#[derive(Clone, Copy)]
pub struct Schema {
    /// The options.
    pub sections: &'static [&'static Section],
    /// The arrays of tables, by name. Where an option has the same name, an array is the tables.
    pub tables: &'static [&'static str],
}

/// What the file says.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// What it has for options, by key.
    pub written: HashMap<&'static str, Written>,
    /// Its tables, in the order of the file.
    pub tables: Vec<Table>,
}

/// One table of an array, as `[[listener]]`. What its keys mean is for its reader to say.
#[derive(Clone, Debug)]
pub struct Table {
    /// The array's name.
    pub name: &'static str,
    /// Where it stands.
    pub origin: Origin,
    /// Its keys.
    pub entries: Vec<Entry>,
}

/// One key of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value, in the form that every other source writes it, with commas between those of an array; or, of what is no single
    /// value, what it is.
    pub value: Result<String, &'static str>,
    /// Where it stands.
    pub origin: Origin,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads the file at `path`. What is wrong in it goes to `refusals`.
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub fn read(path: &Path, schema: Schema, refusals: &mut Vec<Refusal>) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {} (--config)", path.display()))?;
        let mut file = Self::default();
        let table = match DeTable::parse(&text) {
            Ok(table) => table,
            Err(error) => {
                let place = place(path, &text, error.span().map_or(0, |span| span.start));
                refusals.push(Refusal::sentence(format!("{place}: this is not TOML: {}", error.message())));
                return Ok(file);
            }
        };
        for (key, value) in table.get_ref() {
            let origin = place(path, &text, key.span().start);
            let name = key.get_ref().as_ref();
            let option = options(schema.sections).find(|option| option.about().key == name);
            let table = schema.tables.iter().find(|table| **table == name);
            match (table, option) {
                (Some(name), option) if option.is_none() || value.get_ref().as_array().is_some() => {
                    let at = |offset| place(path, &text, offset);
                    file.tables.extend(tables(name, value, &origin, at, refusals));
                }
                (_, Some(option)) => match scalar(value.get_ref()) {
                    Some(text) => file.written.extend([(option.about().key, Written { text, origin })]),
                    None => refusals.push(Refusal::value(name, value.get_ref().type_str(), &origin, &option.range())),
                },
                (_, None) => {
                    let known = options(schema.sections).map(|option| option.about().key);
                    refusals.push(unknown(name, &origin, known.chain(schema.tables.iter().copied())));
                }
            }
        }
        Ok(file)
    }
}

impl Table {
    /// Refuses the value of an entry, which must be `range`.
    pub fn refuse(&self, entry: &Entry, range: &str) -> Refusal {
        let (value, origin) = (entry.value.as_deref().unwrap_or_else(|kind| kind), &entry.origin);
        Refusal::sentence(format!("{}.{}: `{value}` ({origin}) is refused: it must be {range}", self.name, entry.key))
    }

    /// Refuses the table as a whole, for this reason.
    pub fn refuse_whole(&self, why: &str) -> Refusal {
        Refusal::sentence(format!("{} ({}) is refused: {why}", self.name, self.origin))
    }

    /// The text of an entry.
    ///
    /// # Errors
    /// If it is not a single value.
    pub fn text<'e>(&self, entry: &'e Entry) -> Result<&'e str, Refusal> {
        entry.value.as_deref().map_err(|_| self.refuse(entry, "a single value"))
    }
}

/// Refuses a key that is none of those `known`.
pub fn unknown<'a>(name: &str, origin: &Origin, known: impl Iterator<Item = &'a str>) -> Refusal {
    let hint =
        nearest(&name.replace('-', "_"), known).map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
    Refusal::sentence(format!("`{name}` ({origin}) is refused: there is no such key{hint}"))
}

/// The tables of an array.
fn tables(
    name: &'static str,
    value: &Spanned<DeValue<'_>>,
    origin: &Origin,
    at: impl Fn(usize) -> Origin,
    refusals: &mut Vec<Refusal>,
) -> Vec<Table> {
    let Some(array) = value.get_ref().as_array() else {
        let sentence = format!("{name} ({origin}) is refused: it must be an array of tables, [[{name}]]");
        refusals.push(Refusal::sentence(sentence));
        return Vec::new();
    };
    let mut found = Vec::new();
    for element in array.iter() {
        let origin = at(element.span().start);
        let Some(table) = element.get_ref().as_table() else {
            refusals.push(Refusal::sentence(format!("{name} ({origin}) is refused: it must be a table")));
            continue;
        };
        let entries = table.iter().map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            value: scalar(value.get_ref()).ok_or_else(|| value.get_ref().type_str()),
            origin: at(key.span().start),
        });
        found.push(Table { name, origin, entries: entries.collect() });
    }
    found
}

/// The text of a value, in the form every other source writes it; an array of them with commas between.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(on) => Some(on.to_string()),
        DeValue::Array(elements) => {
            let texts: Option<Vec<_>> =
                elements.iter().map(|element| element.get_ref().as_str().map(String::from)).collect();
            Some(texts?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// Origin of what stands at byte `offset`.
fn place(path: &Path, text: &str, offset: usize) -> Origin {
    let line = text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1;
    Origin::File { path: path.into(), line }
}
