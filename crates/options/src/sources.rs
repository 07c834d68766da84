//! What is in force: for each option the value of the strongest source that has one, and which source that was.

use std::ffi::OsString;

use clap::ArgMatches;

use crate::declaration::{Declaration, Section, options};
use crate::file::ConfigFile;
use crate::flags;
use crate::report::{Origin, Refusal};
use crate::values::{Values, Written};

/// A place where values of options stand.
pub trait Source {
    /// What it has for `option`.
    fn written(&self, option: &dyn Declaration) -> Option<Written>;
}

/// The flags of a command.
#[derive(Debug)]
pub struct Flags<'a>(pub &'a ArgMatches);

/// Environment variables, by the function that looks one up.
pub struct Environment<F>(pub F);

impl Source for Flags<'_> {
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        flags::written(self.0, option)
    }
}

impl<F: Fn(&str) -> Option<OsString>> Source for Environment<F> {
    /// Bytes that are not UTF-8 become replacement characters and are refused by what they are, not silently left out.
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        let name = option.about().environment();
        let text = (self.0)(&name)?.to_string_lossy().into_owned();
        Some(Written { text, origin: Origin::Environment(name) })
    }
}

impl Source for ConfigFile {
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        self.written.get(option.about().key).cloned()
    }
}

/// What the sources say together, the strongest first. What is wrong goes to `refusals`, also where a stronger source overrides
/// it, so that it does not lie in wait.
pub fn gather(sections: &'static [&'static Section], sources: &[&dyn Source], refusals: &mut Vec<Refusal>) -> Values {
    let mut values = Values::default();
    for option in options(sections) {
        let key = option.about().key;
        for Written { text, origin } in sources.iter().filter_map(|source| source.written(option)) {
            match option.normal(&text) {
                Some(text) => values.set(key, Written { text, origin }),
                None => refusals.push(Refusal::value(key, &text, &origin, &option.range())),
            }
        }
    }
    values
}
