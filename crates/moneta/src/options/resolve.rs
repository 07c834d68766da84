//! What is in force: for each option the value of the strongest source that has one, and which source that was.

use clap::ArgMatches;
use std::ffi::OsString;

use crate::options::file::ConfigFile;
use crate::options::flags::{self, Written};
use crate::options::flash::fit_regions;
use crate::options::listener::ExtraListener;
use crate::options::report::{Origin, Refusal, Refused};
use crate::options::table::{Id, OptionSpec, TABLE};
use crate::options::value::Value;

/// All options with their values, in the order of [`TABLE`].
#[derive(Clone, Debug)]
pub struct Resolved {
    entries: Vec<Entry>,
    /// The file's `[[listener]]` tables.
    pub listeners: Vec<(ExtraListener, Origin)>,
}

/// An option's value and where it came from.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The option.
    pub spec: &'static OptionSpec,
    /// Its value.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

impl Resolved {
    /// Looks at all sources: flag, then environment, then file, then default.
    ///
    /// A wrong value is refused even where a stronger source overrides it, so that it does not lie in wait.
    ///
    /// # Errors
    /// [`Refused`] with everything that is wrong, or that the file cannot be read.
    pub fn gather(matches: &ArgMatches, environment: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        let mut refusals = flags::refuse_foreign(matches);
        let file = match flags::config_file(matches) {
            Some(path) => ConfigFile::read(path, &mut refusals)?,
            None => ConfigFile::default(),
        };
        let mut entries = Vec::with_capacity(TABLE.len());
        for spec in TABLE {
            let sources = [
                flags::written(matches, spec),
                written_in_environment(spec, &environment),
                file.written(spec),
                Some(Written { text: spec.default.into(), origin: Origin::Default }),
            ];
            let mut strongest = None;
            for Written { text, origin } in sources.into_iter().flatten() {
                match spec.kind.read(&text) {
                    Some(value) => strongest = strongest.or(Some(Entry { spec, value, origin })),
                    None => refusals.push(Refusal::value(spec, &text, &origin)),
                }
            }
            entries.extend(strongest);
        }
        if refusals.is_empty() {
            let mut resolved = Self { entries, listeners: file.listeners };
            fit_regions(&mut resolved);
            Ok(resolved)
        } else {
            Err(Refused(refusals).into())
        }
    }

    /// All options.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One option.
    pub fn entry(&self, id: Id) -> &Entry {
        &self.entries[id as usize]
    }

    /// Its value.
    pub fn value(&self, id: Id) -> &Value {
        &self.entry(id).value
    }

    /// Puts another value of the same option in force.
    pub fn replace(&mut self, entry: Entry) {
        let id = entry.spec.id;
        self.entries[id as usize] = entry;
    }

    /// Whether anybody set it.
    pub fn is_set(&self, id: Id) -> bool {
        self.entry(id).origin != Origin::Default
    }
}

/// Bytes that are not UTF-8 become replacement characters and are refused by what they are, not silently left out.
fn written_in_environment(spec: &OptionSpec, environment: impl Fn(&str) -> Option<OsString>) -> Option<Written> {
    let name = spec.environment();
    let text = environment(&name)?.to_string_lossy().into_owned();
    Some(Written { text, origin: Origin::Environment(name) })
}
