//! Options that were set by hand while the process runs, and the file that keeps those that are to outlast it.
//!
//! Stronger than all other sources is what was set; what was saved is stronger than the file alone. What was set is gone at a
//! restart, and at a reload once the file says something else of that option than when it was set.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use moneta_options::declaration::{Declaration, Section};
use moneta_options::file::{ConfigFile, Schema};
use moneta_options::report::{Origin, Refusal};
use moneta_options::sources::Source;
use moneta_options::values::Written;

/// The first line of a file of saved options.
const HEAD: &str =
    "# Options that `moneta set-option --save` has set. The start reads it after flags, environment and properties.\n";
/// Most bytes of that file.
const SAVED_MAX: u64 = 1 << 20;

/// An option that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOption {
    /// Its value, as options are written.
    pub text: String,
    /// Who set it.
    pub by: String,
    /// When, as a Unix second.
    pub at: u64,
    /// What the file said of it then.
    pub in_file: Option<String>,
}

/// All that were set since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetOptions(pub BTreeMap<&'static str, SetOption>);

impl SetOptions {
    /// Those of which the file says now what it said when they were set, and the names of the others.
    pub fn as_of(&self, file: &HashMap<&'static str, String>) -> (Self, Vec<&'static str>) {
        let is_as_it_was = |key: &&'static str, set: &SetOption| file.get(*key) == set.in_file.as_ref();
        let (kept, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.0.clone().into_iter().partition(|(key, set)| is_as_it_was(key, set));
        (Self(kept), dropped.into_keys().collect())
    }
}

/// A change of an option by hand.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Which.
    pub option: &'static dyn Declaration,
    /// Its new value; `None`: it is set by hand no more.
    pub text: Option<&'a str>,
    /// Whether what is saved changes, too: then one that is not set may be taken back.
    pub save: bool,
    /// Who changes it.
    pub by: &'a str,
}

impl SetOptions {
    /// These with `change`. `in_file`: what the file says of the option now.
    ///
    /// # Errors
    /// If the value makes no sense, or was not set and is to be set no more.
    pub fn with(&self, change: Change<'_>, in_file: Option<String>) -> anyhow::Result<Self> {
        let Change { option, text, save, by } = change;
        let key = option.about().key;
        let mut new = self.clone();
        match text {
            Some(text) => {
                let refused = || anyhow!("{key}: `{text}` is refused: it must be {}", option.range());
                let text = option.normal(text).ok_or_else(refused)?;
                let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                new.0.insert(key, SetOption { text, by: by.into(), at, in_file });
            }
            None if new.0.remove(key).is_none() && !save => bail!("{key} was not set by hand"),
            None => {}
        }
        Ok(new)
    }
}

impl Source for SetOptions {
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        let set = self.0.get(option.about().key)?;
        Some(Written { text: set.text.clone(), origin: Origin::Set { by: set.by.clone(), at: set.at } })
    }
}

/// What a file of saved options has.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    all: HashMap<&'static str, Written>,
}

impl Saved {
    /// Reads the file; nothing where there is none. What is wrong in it goes to `refusals`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(
        path: &Path,
        sections: &'static [&'static Section],
        refusals: &mut Vec<Refusal>,
    ) -> anyhow::Result<Self> {
        match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("saved_options: {}", path.display())),
            Ok(about) if about.len() > SAVED_MAX => bail!("saved_options: {} is too long", path.display()),
            Ok(_) => {}
        }
        let file = ConfigFile::read(path, Schema { sections, tables: &[] }, refusals)?;
        let saved = |(key, written): (&'static str, Written)| {
            let origin = match written.origin {
                Origin::File { path, line } => Origin::Saved { path, line },
                other => other,
            };
            (key, Written { text: written.text, origin })
        };
        Ok(Self { all: file.written.into_iter().map(saved).collect() })
    }

    /// Puts an option into the file, or takes it out: all of it, or nothing, also if the power goes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store(&self, path: &Path, key: &'static str, text: Option<&str>) -> std::io::Result<()> {
        let mut all: BTreeMap<&str, &str> =
            self.all.iter().map(|(key, written)| (*key, written.text.as_str())).collect();
        match text {
            Some(text) => drop(all.insert(key, text)),
            None => drop(all.remove(key)),
        }
        let mut lines = HEAD.to_owned();
        for (key, text) in all {
            let _ = writeln!(lines, "{key} = {}", toml::Value::from(text));
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

impl Source for Saved {
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        self.all.get(option.about().key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::sections;

    #[test]
    fn what_is_saved_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("options.toml");
        let read = || {
            let mut refusals = Vec::new();
            let saved = Saved::read(&path, &sections::ALL, &mut refusals).unwrap();
            assert!(refusals.is_empty(), "{refusals:?}");
            saved
        };
        read().store(&path, "idle_timeout", Some("7m")).unwrap();
        read().store(&path, "log_level", Some("debug")).unwrap();
        let text = |key: &str| read().all.get(key).map(|written| written.text.clone());
        assert_eq!((text("idle_timeout").as_deref(), text("log_level").as_deref()), (Some("7m"), Some("debug")));
        assert!(read().all["idle_timeout"].origin.to_string().starts_with("saved "));
        read().store(&path, "idle_timeout", None).unwrap();
        assert_eq!((text("idle_timeout"), text("log_level").as_deref()), (None, Some("debug")));
    }

    #[test]
    fn what_the_file_changes_is_not_set_any_more() {
        let set = |in_file: Option<&str>| SetOption {
            text: "1".into(),
            by: "ops".into(),
            at: 0,
            in_file: in_file.map(str::to_owned),
        };
        let all = SetOptions(BTreeMap::from([("a", set(None)), ("b", set(Some("2"))), ("c", set(Some("3")))]));
        let file = HashMap::from([("a", "9".to_owned()), ("b", "2".to_owned())]);
        let (kept, dropped) = all.as_of(&file);
        assert_eq!((kept.0.into_keys().collect::<Vec<_>>(), dropped), (vec!["b"], vec!["a", "c"]));
    }
}
