//! `[[app]]` tables: the apps of a proxy, each with the keys or listeners that lead to it and options that differ from the
//! proxy's.

use std::fmt::Write as _;

use moneta_options::declaration::Declaration;
use moneta_options::file::{Table, unknown};
use moneta_options::report::{Origin, Refusal};
use moneta_options::values::{Values, Written};

use crate::options::listener::ExtraListener;
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::proxy;

/// Longest prefix, in bytes: a key after it needs one more.
const PREFIX_MAX: usize = 249;

/// A table of the file.
#[derive(Clone, Debug)]
pub struct AppTable {
    /// The app's name.
    pub name: String,
    /// How its keys begin; empty: all that are no other app's.
    pub prefix: Option<String>,
    /// Whether nodes get keys without the prefix.
    pub strip_prefix: bool,
    /// Options that it has for itself.
    pub written: Vec<(&'static str, Written)>,
    /// Where it stands.
    pub origin: Origin,
}

/// An app of a proxy, with everything in force for it.
#[derive(Clone, Debug)]
pub struct AppSettings {
    /// Its name.
    pub name: String,
    /// How its keys begin; empty: all that are no other app's. `None`: it is reached through its listeners alone.
    pub prefix: Option<String>,
    /// Whether nodes get keys without the prefix.
    pub strip_prefix: bool,
    /// Whether some listeners are its.
    pub has_listeners: bool,
    /// The proxy's options, with those that the app has for itself in their place.
    pub values: Values,
    /// The keys of these.
    pub own: Vec<&'static str>,
    /// Where it stands.
    pub origin: Origin,
}

/// The options that an app may have for itself.
pub fn options() -> impl Iterator<Item = &'static dyn Declaration> {
    let own = proxy::SECTION
        .options
        .iter()
        .copied()
        .filter(|option| ![proxy::APP.key(), proxy::DRAIN.key()].contains(&option.about().key));
    own.chain([&DISABLE_FLUSH_ALL as &dyn Declaration])
}

/// The keys of an `[[app]]` table.
pub fn keys() -> impl Iterator<Item = &'static str> {
    ["name", "prefix", "strip_prefix"].into_iter().chain(options().map(|option| option.about().key))
}

/// The name of the array of tables.
pub const TABLE: &str = "app";

impl AppTable {
    /// Reads a table.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(table: &Table) -> Result<Self, Refusal> {
        let (mut name, mut prefix, mut strip_prefix, mut written) = (None, None, false, Vec::new());
        for entry in &table.entries {
            let text = table.text(entry)?;
            let refuse = |range: &str| table.refuse(entry, range);
            match entry.key.as_str() {
                "name" => name = Some(read_name(text).map_err(refuse)?),
                "prefix" => prefix = Some(read_prefix(text).map_err(refuse)?),
                "strip_prefix" => strip_prefix = text.parse().map_err(|_| refuse("true or false"))?,
                key => {
                    let Some(option) = options().find(|option| option.about().key == key) else {
                        return Err(unknown(key, &entry.origin, keys()));
                    };
                    let text = option.normal(text).ok_or_else(|| refuse(&option.range()))?;
                    written.push((option.about().key, Written { text, origin: entry.origin.clone() }));
                }
            }
        }
        let name = name.ok_or_else(|| table.refuse_whole("it needs a name"))?;
        Ok(Self { name, prefix, strip_prefix, written, origin: table.origin.clone() })
    }
}

fn read_name(text: &str) -> Result<String, &'static str> {
    let read = proxy::APP.read(text).flatten();
    read.ok_or("a name of letters, digits, `-`, `_` and `.`")
}

fn read_prefix(text: &str) -> Result<String, &'static str> {
    let fits = text.len() <= PREFIX_MAX && text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    fits.then(|| text.to_owned())
        .ok_or("up to 249 bytes that a key may have; empty for all keys that are no other app's")
}

impl AppSettings {
    /// The apps of a proxy: those of the file, or the one that the options are about. None where this is no proxy.
    pub fn all(options: &Values, tables: &[AppTable], listeners: &[(ExtraListener, Origin)]) -> Vec<Self> {
        if tables.is_empty() {
            let only = options.get(&proxy::TOPOLOGY).map(|_| Self {
                name: options.get(&proxy::APP).unwrap_or_default(),
                prefix: Some(String::new()),
                strip_prefix: false,
                has_listeners: false,
                values: options.clone(),
                own: Vec::new(),
                origin: options.origin(&proxy::TOPOLOGY).clone(),
            });
            return only.into_iter().collect();
        }
        let app = |table: &AppTable| {
            let mut values = options.clone();
            let is_set = |key: &str| matches!(options.written(key).map(|set| &set.origin), Some(Origin::Set { .. }));
            // What was set by hand is stronger than tables, too.
            let written = table.written.iter().filter(|(key, _)| !is_set(key));
            written.for_each(|(key, written)| values.replace(key, written.clone()));
            let name = table.name.clone();
            Self {
                has_listeners: listeners.iter().any(|(listener, _)| listener.app.as_ref() == Some(&name)),
                name,
                prefix: table.prefix.clone(),
                strip_prefix: table.strip_prefix,
                values,
                own: table.written.iter().map(|(key, _)| *key).collect(),
                origin: table.origin.clone(),
            }
        };
        tables.iter().map(app).collect()
    }

    /// How it is reached and what it has for itself, in a line.
    pub fn describe(&self) -> String {
        let mut text = match &self.prefix {
            None => String::from("its listeners"),
            Some(prefix) if prefix.is_empty() => "all other keys".into(),
            Some(prefix) => format!("keys {prefix}*{}", if self.strip_prefix { ", stripped" } else { "" }),
        };
        if self.has_listeners && self.prefix.is_some() {
            text.push_str(" and its listeners");
        }
        for option in options().filter(|option| self.own.contains(&option.about().key)) {
            let _ = write!(text, ", {} {}", option.about().key, option.in_force(&self.values));
        }
        text
    }
}

/// What cannot be had together.
pub fn contradictions(
    options: &Values,
    apps: &[AppSettings],
    has_tables: bool,
    listeners: &[(ExtraListener, Origin)],
    has_common: bool,
) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |origin: &Origin, what: &str, why: &str| {
        refusals.push(Refusal::sentence(format!("{what} ({origin}) is refused: {why}")));
    };
    for (listener, origin) in listeners {
        let Some(name) = &listener.app else { continue };
        if !has_tables || !apps.iter().any(|app| app.name == *name) {
            refuse(origin, &format!("listener.app: `{name}`"), "it must be the name of an [[app]]");
        }
    }
    if !has_tables {
        return refusals;
    }
    if options.is_changed(&proxy::APP) {
        let origin = options.origin(&proxy::APP);
        refuse(origin, proxy::APP.key(), "with [[app]] tables each app has its name there");
    }
    for (place, app) in apps.iter().enumerate() {
        let (origin, what) = (&app.origin, format!("app `{}`", app.name));
        let before = &apps[..place];
        if before.iter().any(|other| other.name == app.name) {
            refuse(origin, &what, "another app has this name");
        }
        if let Some(other) = before.iter().find(|other| app.prefix.is_some() && other.prefix == app.prefix) {
            let prefix = app.prefix.as_deref().unwrap_or_default();
            refuse(origin, &what, &format!("app `{}` has the prefix `{prefix}` already", other.name));
        }
        if app.prefix.is_none() && !app.has_listeners {
            let why = "nothing leads to it: it needs a prefix (\"\" takes all keys that are no other app's), or a [[listener]] with its name as app";
            refuse(origin, &what, why);
        }
        if app.strip_prefix && app.prefix.as_deref().is_none_or(str::is_empty) {
            refuse(origin, &what, "strip_prefix needs a prefix");
        }
        if app.own.contains(&proxy::APP_CONNECTIONS.key()) && !app.has_listeners {
            refuse(origin, &what, "app_connections needs a [[listener]] of the app: other connections are of all apps");
        }
        if app.values.get(&proxy::TOPOLOGY).is_none() {
            refuse(origin, &what, "it needs a topology, its own or the proxy's");
        }
        if options.get(&DISABLE_FLUSH_ALL) && !app.values.get(&DISABLE_FLUSH_ALL) {
            refuse(origin, &what, "disable_flush_all cannot be false for an app where it is true for the proxy");
        }
    }
    if has_common && apps.iter().all(|app| app.prefix.is_none()) {
        let origin = options.origin(&crate::options::sections::network::LISTEN);
        let why = "no app has a prefix, so nothing would answer there; give one app `prefix = \"\"`, or set it to \"\"";
        refuse(origin, "listen", why);
    }
    refusals
}
