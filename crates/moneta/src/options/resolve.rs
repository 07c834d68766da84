//! What is in force: flags, then `-o`, then the environment, then the file; and the file's tables.

use std::ffi::OsString;

use clap::ArgMatches;
use moneta_link::Properties;
use moneta_options::file::{ConfigFile, Schema};
use moneta_options::report::{Origin, Refused};
use moneta_options::sources::{Environment, Flags, gather};
use moneta_options::values::Values;

use crate::options::app::AppTable;
use crate::options::flags::{self, OfExtended};
use crate::options::listener::ExtraListener;
use crate::options::sections::tls::TLS_CERT;
use crate::options::{app, listener, sections};
use crate::properties::OfControl;

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
}

impl Resolved {
    /// Looks at all sources.
    ///
    /// # Errors
    /// [`Refused`] with everything that is wrong, or that the file cannot be read.
    pub fn gather(matches: &ArgMatches, environment: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        Self::gather_with(matches, environment, &Properties::default())
    }

    /// The same with what a control plane says.
    ///
    /// # Errors
    /// As [`Resolved::gather`].
    pub fn gather_with(
        matches: &ArgMatches,
        environment: impl Fn(&str) -> Option<OsString>,
        properties: &Properties,
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
        let values =
            gather(&sections::ALL, &[&flags, &extended, &environment, &OfControl(properties), &file], &mut refusals);
        refusals.extend(flags::refuse_tls(matches, values.get(&TLS_CERT).is_some()));
        if refusals.is_empty() { Ok(Self { values, listeners, apps }) } else { Err(Refused(refusals).into()) }
    }
}
