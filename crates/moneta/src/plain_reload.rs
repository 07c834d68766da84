//! What changes the options of a process that runs and is neither node nor proxy: SIGHUP, by which all sources are looked at again,
//! and operators, who set one by hand. What can change meanwhile changes, the rest is named in the log.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::bail;
use clap::ArgMatches;
use moneta_audit::{Audit, Event};
use moneta_options::declaration::{Declaration, Section, options};
use moneta_options::file::{ConfigFile, Schema};
use moneta_options::report::Refusal;
use moneta_options::sources::{Environment, Flags, gather};
use moneta_options::subscribers::{Changed, Effect, Subscribers};
use moneta_options::values::Values;
use moneta_process::Process;
use moneta_server::Certificates;
use moneta_users::Users;
use parking_lot::Mutex;

use crate::options::sections::access::{USERS, read_again};
use crate::options::sections::operation::{LAME_DUCK, LOG_LEVEL, VERBOSE};
use crate::options::sections::tls;
use crate::reload::{InForceOption, LiveOptions, settable};
use crate::set_options::{Change, SetOptions};

/// What the sources say together.
pub struct Gathered {
    /// The values of the strongest source that has one.
    pub values: Values,
    /// What the file says.
    pub file: HashMap<&'static str, String>,
}

impl Gathered {
    /// What was set by hand, then flags, the environment and the file. What is wrong goes to `refusals`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        sections: &'static [&'static Section],
        matches: &ArgMatches,
        set: &SetOptions,
        refusals: &mut Vec<Refusal>,
    ) -> anyhow::Result<Self> {
        let file = match moneta_options::flags::config_file(matches) {
            Some(path) => ConfigFile::read(path, Schema { sections, tables: &[] }, refusals)?,
            None => ConfigFile::default(),
        };
        let (flags, environment) = (Flags(matches), Environment(|name: &str| std::env::var_os(name)));
        let values = gather(sections, &[set, &flags, &environment, &file], refusals);
        let file = file.written.into_iter().map(|(key, written)| (key, written.text)).collect();
        Ok(Self { values, file })
    }
}

/// The options of a kind of process.
#[derive(Clone, Copy)]
pub struct Kind {
    /// All of them.
    pub sections: &'static [&'static Section],
    /// What is in force: what was set by hand, flags, the environment, the file; an error where that is refused.
    pub resolve: fn(&ArgMatches, &SetOptions) -> anyhow::Result<Gathered>,
}

/// What changes while any such process runs.
pub struct Live {
    pub users: Option<Arc<Users>>,
    pub certificates: Option<Arc<Certificates>>,
    pub audit: Option<Arc<Audit>>,
}

/// Holds what a reload compares with, and what changes by it.
pub struct PlainReload {
    kind: Kind,
    matches: ArgMatches,
    // One change at a time; locked before what was set.
    in_force: Mutex<Values>,
    /// What was set by hand.
    set: Mutex<SetOptions>,
    subscribers: Subscribers,
    audit: Option<Arc<Audit>>,
}

impl PlainReload {
    /// A reload of `process`, which was started with the options `in_force`, made from `matches`. `subscribers`: those of its own
    /// parts.
    pub fn new(
        kind: Kind,
        matches: ArgMatches,
        in_force: Values,
        process: &Process,
        live: Live,
        mut subscribers: Subscribers,
    ) -> Self {
        let Live { users, certificates, audit } = live;
        tls::subscribe(&mut subscribers, certificates.as_ref());
        let (phases, level) = (Arc::clone(process.phases()), process.log().level.clone());
        subscribers.set(&LAME_DUCK, move |duration| phases.set_lame_duck(duration));
        let of = level.clone();
        subscribers.set(&LOG_LEVEL, move |base| of.set_base(base));
        subscribers.set(&VERBOSE, move |verbosity| level.set_own_verbosity(verbosity));
        let noted = audit.clone();
        subscribers.on(&USERS, move |change| match (&users, &change.to) {
            (Some(users), Some(_)) => read_again(users, noted.as_ref(), &change),
            (None, None) => Ok(Effect::None),
            _ => Ok(Effect::AfterRestart),
        });
        Self { kind, matches, in_force: Mutex::new(in_force), set: Mutex::default(), subscribers, audit }
    }

    /// Reloads and logs what came of it. If anything is wrong, nothing changes.
    pub fn run(&self) {
        // What rotates logs asks for it by this signal.
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        if let Err(error) = self.try_reload() {
            let why = format!("{error:#}");
            tracing::error!(error = why, "reload refused, nothing changed");
            self.note(Event::ReloadRefused { why: &why });
        }
    }

    /// What was set by hand stays, unless the file says something else of it by now.
    fn try_reload(&self) -> anyhow::Result<()> {
        let mut in_force = self.in_force.lock();
        let mut set = self.set.lock();
        let (kept, dropped) = set.as_of(&(self.kind.resolve)(&self.matches, &set)?.file);
        self.take(&mut in_force, &kept, None)?;
        for option in dropped {
            tracing::info!(option, "was set by hand, and the file has changed it: the file counts");
        }
        *set = kept;
        Ok(())
    }

    /// Puts in force what the sources say now. `by`: who changes options by hand.
    fn take(&self, in_force: &mut Values, set: &SetOptions, by: Option<&str>) -> anyhow::Result<()> {
        let wanted = (self.kind.resolve)(&self.matches, set)?.values;
        let prepared = self.subscribers.prepare(options(self.kind.sections), in_force, &wanted)?;
        let outcome = prepared.apply(in_force, &wanted);
        for Changed { option, from, to } in &outcome.changed {
            self.note(Event::OptionChanged { who: by, app: None, option, from, to });
            tracing::info!(option, from, to, "changed");
        }
        for option in &outcome.after_restart {
            tracing::warn!(option, "changed, but takes effect only after a restart");
        }
        tracing::info!("reloaded");
        self.note(Event::Reloaded);
        Ok(())
    }

    /// Whether something here changes by it while the process runs: of a proxy's options a relay takes some at its start alone.
    fn is_live(&self, key: &str) -> bool {
        self.subscribers.keys().any(|own| own == key)
    }

    fn note(&self, event: Event<'_>) {
        if let Some(audit) = &self.audit {
            audit.note(event);
        }
    }
}

impl LiveOptions for PlainReload {
    fn in_force(&self) -> Vec<InForceOption> {
        let in_force = self.in_force.lock();
        let row = |option: &'static dyn Declaration| InForceOption {
            app: None,
            key: option.about().key,
            value: option.in_force(&in_force),
            from: in_force.origin(option).to_string(),
            is_live: self.is_live(option.about().key),
        };
        options(self.kind.sections).map(row).collect()
    }

    fn set(&self, name: &str, text: Option<&str>, save: bool, by: &str) -> anyhow::Result<()> {
        let mut in_force = self.in_force.lock();
        let mut set = self.set.lock();
        let option = settable(name, || options(self.kind.sections))?;
        let key = option.about().key;
        if !self.is_live(key) {
            bail!("{name} takes effect at a restart of this process");
        }
        if save {
            bail!("nothing can be saved: nodes and proxies alone have a file of saved options");
        }
        let in_file = (self.kind.resolve)(&self.matches, &set)?.file.remove(key);
        let new = set.with(Change { option, text, save, by }, in_file)?;
        self.take(&mut in_force, &new, Some(by))?;
        *set = new;
        Ok(())
    }
}
