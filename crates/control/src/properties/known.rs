//! The properties of an environment, as the ledger has them.

use std::collections::BTreeMap;

use moneta_ledger::{Entry, Revision};

use crate::decode::decode;
use crate::properties::rollout::Rollout;
use crate::properties::schema::Schema;
use crate::properties::scope::Scope;
use crate::properties::value::Property;
use crate::record::Record;

/// The most values of an environment.
pub const VALUES_MAX: usize = 5_000;
/// The most schemas of names of users' own.
pub const SCHEMAS_MAX: usize = 1_000;
/// Rollouts that are kept.
pub const ROLLOUTS_KEPT: usize = 50;

/// What a key of the ledger holds, after that of the environment's properties.
const VERSION: &str = "version";
const SCHEMAS: &str = "schemas/";
const ROLLOUTS: &str = "rollouts/";

/// The key of the number of changes of an environment.
pub(crate) fn version_key(environment: &str) -> String {
    format!("env/{environment}/property/{VERSION}")
}

/// The key of a schema.
pub(crate) fn schema_key(environment: &str, name: &str) -> String {
    format!("env/{environment}/property/{SCHEMAS}{name}")
}

/// The key of a rollout.
pub(crate) fn rollout_key(environment: &str, id: u64) -> String {
    format!("env/{environment}/property/{ROLLOUTS}{id:010}")
}

/// The key of a value.
pub(crate) fn value_key(environment: &str, scope: &Scope, name: &str) -> String {
    format!("env/{environment}/properties/{scope}/{name}")
}

/// A value's scope and name.
pub type Of = (Scope, String);

/// All of an environment.
#[derive(Debug, Default)]
pub struct Properties {
    /// How often they were changed, and the commit that did so last.
    pub version: Option<(Revision, u64)>,
    /// The values, each with the commit that put it.
    pub values: BTreeMap<Of, (Revision, Property)>,
    /// Schemas of names of users' own.
    pub schemas: BTreeMap<String, Schema>,
    /// Rollouts by their numbers, each with the commit that put it.
    pub rollouts: BTreeMap<u64, (Revision, Rollout)>,
}

impl Properties {
    /// How often they were changed.
    pub fn version(&self) -> u64 {
        self.version.map_or(0, |(_, version)| version)
    }

    /// A value.
    pub fn get(&self, scope: &Scope, name: &str) -> Option<&(Revision, Property)> {
        // Names are short, and this is no path of requests.
        self.values.get(&(scope.clone(), name.to_owned()))
    }

    /// All values of a name that an instance is in the scope of, the narrowest first.
    pub fn of_instance<'a>(
        &'a self,
        name: &'a str,
        (app, id): (&'a str, &'a str),
        record: &'a Record,
    ) -> Vec<(&'a Scope, &'a Revision, &'a Property)> {
        let scopes = scopes_of(app, id, record);
        let found = scopes.into_iter().filter_map(|scope| {
            let ((scope, _), (revision, property)) = self.values.get_key_value(&(scope, name.to_owned()))?;
            Some((scope, revision, property))
        });
        found.collect()
    }

    pub(crate) fn put(&mut self, what: &str, entry: &Entry) {
        let revision = entry.modified;
        if what == VERSION {
            if let Some(version) = decode::<u64>(entry) {
                self.version = Some((revision, version));
            }
        } else if let Some(name) = what.strip_prefix(SCHEMAS) {
            if let Some(schema) = decode::<Schema>(entry) {
                self.schemas.insert(name.to_owned(), schema);
            }
        } else if let Some(id) = what.strip_prefix(ROLLOUTS).and_then(|id| id.parse().ok())
            && let Some(rollout) = decode::<Rollout>(entry)
        {
            self.rollouts.insert(id, (revision, rollout));
        }
    }

    pub(crate) fn deleted(&mut self, what: &str) {
        if what == VERSION {
            self.version = None;
        } else if let Some(name) = what.strip_prefix(SCHEMAS) {
            self.schemas.remove(name);
        } else if let Some(id) = what.strip_prefix(ROLLOUTS).and_then(|id| id.parse::<u64>().ok()) {
            self.rollouts.remove(&id);
        }
    }

    pub(crate) fn put_value(&mut self, scope: &str, name: &str, entry: &Entry) {
        if let (Ok(scope), Some(property)) = (scope.parse(), decode::<Property>(entry)) {
            self.values.insert((scope, name.to_owned()), (entry.modified, property));
        }
    }

    pub(crate) fn delete_value(&mut self, scope: &str, name: &str) {
        if let Ok(scope) = scope.parse() {
            self.values.remove(&(scope, name.to_owned()));
        }
    }
}

/// The scopes that an instance is in, the narrowest first.
pub(crate) fn scopes_of(app: &str, id: &str, record: &Record) -> Vec<Scope> {
    let app_name = || app.to_owned();
    [
        Some(Scope::Instance { app: app_name(), id: id.to_owned() }),
        record.replica.clone().map(|replica| Scope::Replica { app: app_name(), replica }),
        Some(Scope::App(app_name())),
        record.zone.clone().map(Scope::Zone),
        record.region.clone().map(Scope::Region),
        Some(Scope::Global),
    ]
    .into_iter()
    .flatten()
    .collect()
}
