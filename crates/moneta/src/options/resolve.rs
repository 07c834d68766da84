//! What is in force: what was set by hand, flags, `-o`, the environment, properties, what was saved, the file; and the file's
//! tables.

use std::collections::HashMap;
use std::ffi::OsString;

use clap::ArgMatches;
use moneta_link::Properties;
use moneta_options::file::{ConfigFile, Schema};
use moneta_options::report::{Origin, Refused};
use moneta_options::sources::{Environment, Flags, Source, gather};
use moneta_options::values::Values;

use crate::options::app::AppTable;
use crate::options::flags::{self, OfExtended};
use crate::options::listener::ExtraListener;
use crate::options::sections::control::SAVED_OPTIONS;
use crate::options::sections::tls::TLS_CERT;
use crate::options::{app, listener, sections};
use crate::properties::OfControl;
use crate::set_options::{Saved, SetOptions};

/// What a file may hold.
const SCHEMA: Schema = Schema { sections: &sections::ALL, tables: &[listener::TABLE, app::TABLE] };

/// What all sources say together.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The options.
    pub values: Values,
    /// The file's `[[listener]]` tables.
    pub listeners: Vec<(ExtraListener, Origin)>,
    /// The file's `[[app]]` tables.
    pub apps: Vec<AppTable>,
    /// What the file has for options, as it is written there.
    pub file: HashMap<&'static str, String>,
    /// What was saved of what was set by hand.
    pub saved: Saved,
}

impl Resolved {
    /// Looks at all sources.
    ///
    /// # Errors
    /// [`Refused`] with everything that is wrong, or that the file cannot be read.
    pub fn gather(matches: &ArgMatches, environment: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        Self::gather_with(matches, environment, &Properties::default(), &SetOptions::default())
    }

    /// The same with what a control plane says, and what was set by hand.
    ///
    /// # Errors
    /// As [`Resolved::gather`].
    pub fn gather_with(
        matches: &ArgMatches,
        environment: impl Fn(&str) -> Option<OsString>,
        properties: &Properties,
        set: &SetOptions,
    ) -> anyhow::Result<Self> {
        let mut refusals = flags::refuse_foreign(matches);
        let file = match moneta_options::flags::config_file(matches) {
            Some(path) => ConfigFile::read(path, SCHEMA, &mut refusals)?,
            None => ConfigFile::default(),
        };
        let (mut listeners, mut apps) = (Vec::new(), Vec::new());
        for table in &file.tables {
            let read = match table.name {
                listener::TABLE => ExtraListener::read(table).map(|read| listeners.push((read, table.origin.clone()))),
                _ => AppTable::read(table).map(|read| apps.push(read)),
            };
            refusals.extend(read.err());
        }
        let (flags, extended, environment) = (Flags(matches), OfExtended(matches), Environment(environment));
        // Where saved options are, and whether this is a proxy, is said by none of these two.
        let of_path = gather(&sections::ALL, &[&flags, &extended, &environment, &file], &mut Vec::new());
        let saved = of_path.get(&SAVED_OPTIONS).map(|path| Saved::read(&path, &sections::ALL, &mut refusals));
        let saved = saved.transpose()?.unwrap_or_default();
        let is_proxy = !apps.is_empty() || of_path.is_set(&sections::proxy::TOPOLOGY);
        let properties = OfControl { properties, is_proxy };
        let sources: [&dyn Source; 7] = [set, &flags, &extended, &environment, &properties, &saved, &file];
        let values = gather(&sections::ALL, &sources, &mut refusals);
        refusals.extend(flags::refuse_tls(matches, values.get(&TLS_CERT).is_some()));
        let file = file.written.into_iter().map(|(key, written)| (key, written.text)).collect();
        if refusals.is_empty() {
            Ok(Self { values, listeners, apps, file, saved })
        } else {
            Err(Refused(refusals).into())
        }
    }
}
