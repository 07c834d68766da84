//! The TOML file: its keys, with the line each stands on, and nothing unknown.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::options::app::{self, AppTable};
use crate::options::listener::{self, ExtraAddress, ExtraListener};
use crate::options::nearest::nearest;
use crate::options::report::{Origin, Refusal};
use crate::options::sections;
use crate::options::values::Written;
use moneta_server::config::{ListenerLimits, Policy};

/// Key of the array of listeners.
const LISTENER: &str = "listener";
/// Key of the array of apps.
const APP: &str = "app";

/// What the file says.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// What it has for options, by key.
    pub written: HashMap<&'static str, Written>,
    /// The `[[listener]]` tables, with the place each stands in.
    pub listeners: Vec<(ExtraListener, Origin)>,
    /// The `[[app]]` tables.
    pub apps: Vec<AppTable>,
}

impl ConfigFile {
    /// Reads the file at `path`. What is wrong in it goes to `refusals`.
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub fn read(path: &Path, refusals: &mut Vec<Refusal>) -> anyhow::Result<Self> {
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
            if name == LISTENER {
                let tables = tables(LISTENER, path, &text, value, &origin, refusals);
                for (table, origin) in tables {
                    match read_listener(table, &origin) {
                        Ok(listener) => file.listeners.push((listener, origin)),
                        Err(refusal) => refusals.push(refusal),
                    }
                }
            } else if name == APP && value.get_ref().as_array().is_some() {
                let tables = tables(APP, path, &text, value, &origin, refusals);
                for (table, origin) in tables {
                    match read_app(table, &origin, |at| place(path, &text, at)) {
                        Ok(app) => file.apps.push(app),
                        Err(refusal) => refusals.push(refusal),
                    }
                }
            } else if let Some(option) = sections::options().find(|option| option.about().key == name) {
                match scalar(value.get_ref()) {
                    Some(text) => file.written.extend([(option.about().key, Written { text, origin })]),
                    None => refusals.push(Refusal::value(name, value.get_ref().type_str(), &origin, &option.range())),
                }
            } else {
                let known = sections::options().map(|option| option.about().key).chain([LISTENER, APP]);
                refusals.push(unknown(&origin, name, known));
            }
        }
        Ok(file)
    }
}

/// The tables of an array, each with the place it stands in.
fn tables<'t, 'a>(
    key: &str,
    path: &Path,
    text: &str,
    value: &'t Spanned<DeValue<'a>>,
    origin: &Origin,
    refusals: &mut Vec<Refusal>,
) -> Vec<(&'t DeTable<'a>, Origin)> {
    let Some(array) = value.get_ref().as_array() else {
        let sentence = format!("{key} ({origin}) is refused: it must be an array of tables, [[{key}]]");
        refusals.push(Refusal::sentence(sentence));
        return Vec::new();
    };
    let mut found = Vec::new();
    for element in array.iter() {
        let origin = place(path, text, element.span().start);
        match element.get_ref().as_table() {
            Some(table) => found.push((table, origin)),
            None => refusals.push(Refusal::sentence(format!("{key} ({origin}) is refused: it must be a table"))),
        }
    }
    found
}

fn read_app(table: &DeTable<'_>, origin: &Origin, place: impl Fn(usize) -> Origin) -> Result<AppTable, Refusal> {
    let refuse = |key: &str, text: &str, origin: &Origin, range: &str| {
        Refusal::sentence(format!("{APP}.{key}: `{text}` ({origin}) is refused: it must be {range}"))
    };
    let (mut name, mut prefix, mut strip_prefix, mut written) = (None, None, false, Vec::new());
    for (key, value) in table {
        let origin = place(key.span().start);
        let key = key.get_ref().as_ref();
        let text = scalar(value.get_ref())
            .ok_or_else(|| refuse(key, value.get_ref().type_str(), &origin, "a single value"))?;
        match key {
            "name" => name = Some(app::name(&text).map_err(|range| refuse(key, &text, &origin, range))?),
            "prefix" => prefix = Some(app::prefix(&text).map_err(|range| refuse(key, &text, &origin, range))?),
            "strip_prefix" => {
                strip_prefix = text.parse().map_err(|_| refuse(key, &text, &origin, "true or false"))?;
            }
            _ => {
                let Some(option) = app::options().find(|option| option.about().key == key) else {
                    return Err(unknown(&origin, key, app::keys()));
                };
                let normal = option.normal(&text).ok_or_else(|| refuse(key, &text, &origin, &option.range()))?;
                written.push((option.about().key, Written { text: normal, origin }));
            }
        }
    }
    let name = name.ok_or_else(|| Refusal::sentence(format!("{APP} ({origin}) is refused: it needs a name")))?;
    Ok(AppTable { name, prefix, strip_prefix, written, origin: origin.clone() })
}

fn read_listener(table: &DeTable<'_>, origin: &Origin) -> Result<ExtraListener, Refusal> {
    let refuse = |key: &str, text: &str, range: &str| {
        Refusal::sentence(format!("{LISTENER}.{key}: `{text}` ({origin}) is refused: it must be {range}"))
    };
    let (mut address, mut policy, mut mask, mut limits) = (None, Policy::Online, None, ListenerLimits::default());
    let mut app = None;
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let text = scalar(value.get_ref()).ok_or_else(|| refuse(name, value.get_ref().type_str(), "a single value"))?;
        match name {
            "address" => address = Some(listener::address(&text).map_err(|range| refuse(name, &text, range))?),
            "policy" => policy = listener::policy(&text).map_err(|range| refuse(name, &text, range))?,
            "app" => app = Some(text),
            "unix_mask" => mask = Some(listener::unix_mask(&text).map_err(|range| refuse(name, &text, &range))?),
            _ => match listener::limit(&mut limits, name, &text) {
                Ok(true) => {}
                Ok(false) => return Err(unknown(origin, name, listener::keys())),
                Err(range) => return Err(refuse(name, &text, &range)),
            },
        }
    }
    let mut address =
        address.ok_or_else(|| Refusal::sentence(format!("{LISTENER} ({origin}) is refused: it needs an address")))?;
    if let ExtraAddress::Unix { mode, .. } = &mut address {
        *mode = mask;
    } else if mask.is_some() {
        return Err(Refusal::sentence(format!(
            "{LISTENER}.unix_mask ({origin}) is refused: this address is not a Unix socket"
        )));
    }
    Ok(ExtraListener { address, policy, app, limits })
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

fn unknown<'a>(origin: &Origin, name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    let hint =
        nearest(&name.replace('-', "_"), known).map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
    Refusal::sentence(format!("`{name}` ({origin}) is refused: there is no such key{hint}"))
}

/// Origin of what stands at byte `offset`.
fn place(path: &Path, text: &str, offset: usize) -> Origin {
    let line = text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1;
    Origin::File { path: path.into(), line }
}
