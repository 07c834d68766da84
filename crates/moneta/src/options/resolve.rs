//! What is in force: for each option the value of the strongest source that has one, and which source that was.

use std::ffi::OsString;

use clap::ArgMatches;

use crate::options::app::AppTable;
use crate::options::declaration::About;
use crate::options::file::ConfigFile;
use crate::options::flags;
use crate::options::listener::ExtraListener;
use crate::options::report::{Origin, Refusal, Refused};
use crate::options::sections;
use crate::options::values::{Values, Written};

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
    /// Looks at all sources: flag, then environment, then file.
    ///
    /// A wrong value is refused even where a stronger source overrides it, so that it does not lie in wait.
    ///
    /// # Errors
    /// [`Refused`] with everything that is wrong, or that the file cannot be read.
    pub fn gather(matches: &ArgMatches, environment: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        let mut refusals = flags::refuse_foreign(matches);
        let mut file = match flags::config_file(matches) {
            Some(path) => ConfigFile::read(path, &mut refusals)?,
            None => ConfigFile::default(),
        };
        let mut values = Values::default();
        for option in sections::options() {
            let key = option.about().key;
            let sources = [
                flags::written(matches, option),
                written_in_environment(option.about(), &environment),
                file.written.remove(key),
            ];
            for Written { text, origin } in sources.into_iter().flatten() {
                match option.normal(&text) {
                    Some(text) => values.set(key, Written { text, origin }),
                    None => refusals.push(Refusal::value(key, &text, &origin, &option.range())),
                }
            }
        }
        if !refusals.is_empty() {
            return Err(Refused(refusals).into());
        }
        Ok(Self { values, listeners: file.listeners, apps: file.apps })
    }
}

/// Bytes that are not UTF-8 become replacement characters and are refused by what they are, not silently left out.
fn written_in_environment(about: &About, environment: impl Fn(&str) -> Option<OsString>) -> Option<Written> {
    let name = about.environment();
    let text = environment(&name)?.to_string_lossy().into_owned();
    Some(Written { text, origin: Origin::Environment(name) })
}
