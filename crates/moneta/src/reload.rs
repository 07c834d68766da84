//! What changes the options of a process that runs: SIGHUP, by which all sources are looked at again; the properties of a control
//! plane; and operators, who set one by hand. What can change while serving changes, the rest is named in the log.

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ArgMatches;
use moneta_audit::{Audit, Event};
use moneta_link::Properties;
use moneta_options::declaration::Declaration;
use moneta_options::nearest;
use moneta_options::report::Origin;
use moneta_options::subscribers::{Changed, Subscribers};
use moneta_options::values::Values;
use parking_lot::Mutex;

use crate::options::app::{self, AppSettings};
use crate::options::listener::{self, ExtraListener};
use crate::options::resolve::Resolved;
use crate::options::sections;
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::control::SAVED_OPTIONS;
use crate::options::settings::Settings;
use crate::properties;
use crate::set_options::{Change, SetOptions};

/// Changes that have a line each: the log leaves out what comes more often from one place of the program in a second.
const TOLD: usize = 10;

/// Holds what a reload compares with, and what changes by it.
pub struct Reload {
    matches: ArgMatches,
    // Signals come one at a time; the lock is there because the caller's closure is shared.
    in_force: Mutex<InForce>,
    /// The listeners of the file, which stay as they are.
    listeners: Vec<ExtraListener>,
    /// What leads to each app.
    apps: Vec<AppKey>,
    subscribers: Subscribers,
    /// What the control plane has said last that was taken.
    // Locked before what is in force.
    properties: Mutex<Properties>,
    /// What was set by hand.
    // Locked after what the control plane has said.
    set: Mutex<SetOptions>,
    audit: Option<Arc<Audit>>,
}

/// What came of properties that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// What takes a restart.
    pub after_restart: Vec<&'static str>,
    /// What a stronger source has, such as a flag.
    pub overridden: Vec<&'static str>,
}

/// An option as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForceOption {
    /// The app of an `[[app]]` table that has it for itself.
    pub app: Option<String>,
    /// Its key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where that came from.
    pub from: String,
    /// Whether it changes while the process runs.
    pub is_live: bool,
}

/// Options of a process that runs: shown, and set by hand.
pub trait LiveOptions: Send + Sync {
    /// All options as they are in force.
    fn in_force(&self) -> Vec<InForceOption>;

    /// Sets an option by hand, at once; `None` takes that back. With `save` also for the next start.
    ///
    /// # Errors
    /// Why it is refused: there is no such option, it does not change while the process runs, or the value makes no sense. Then
    /// nothing has changed.
    fn set(&self, name: &str, text: Option<&str>, save: bool, by: &str) -> anyhow::Result<()>;
}

/// The options as they are now.
struct InForce {
    process: Values,
    /// Those of the apps of `[[app]]` tables, each with what changes by them.
    apps: Vec<(AppSettings, Subscribers)>,
}

/// What of an app does not change while the process runs.
type AppKey = (String, Option<String>, bool);

impl Reload {
    /// A reload of a process that was started with the options `in_force`, made from `matches`. `apps`: those of `[[app]]` tables.
    pub fn new(
        matches: ArgMatches,
        in_force: &Settings,
        subscribers: Subscribers,
        apps: Vec<(AppSettings, Subscribers)>,
        properties: Properties,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        let (listeners, keys) = (listeners(in_force), app_keys(in_force));
        let in_force = InForce { process: Values::clone(in_force), apps };
        Self {
            matches,
            in_force: Mutex::new(in_force),
            listeners,
            apps: keys,
            subscribers,
            properties: Mutex::new(properties),
            set: Mutex::default(),
            audit,
        }
    }

    /// Reloads and logs what came of it. If anything is wrong, nothing changes.
    pub fn run(&self) {
        // What rotates logs asks for it by this signal.
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        let properties = self.properties.lock();
        let mut set = self.set.lock();
        if let Err(error) = self.try_reload(&properties, &mut set) {
            let why = format!("{error:#}");
            tracing::error!(error = why, "reload refused, nothing changed");
            self.note(Event::ReloadRefused { why: &why });
        }
    }

    /// What was set by hand stays, unless the file says something else of it by now.
    fn try_reload(&self, properties: &Properties, set: &mut SetOptions) -> anyhow::Result<()> {
        let resolved = Resolved::gather_with(&self.matches, |name| std::env::var_os(name), properties, set)?;
        let (kept, dropped) = set.as_of(&resolved.file);
        self.try_run(properties, &kept, None)?;
        for option in dropped {
            tracing::info!(option, "was set by hand, and the file has changed it: the file counts");
        }
        *set = kept;
        Ok(())
    }

    /// Takes what the control plane says, all of it or nothing; tells what came of it.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take(&self, properties: Properties) -> anyhow::Result<Taken> {
        let mut current = self.properties.lock();
        let set = self.set.lock();
        match self.try_run(&properties, &set, None) {
            Ok(taken) => {
                *current = properties;
                Ok(taken)
            }
            Err(error) => {
                let why = format!("{error:#}");
                tracing::error!(error = why, "properties of the control plane refused, nothing changed");
                self.note(Event::ReloadRefused { why: &why });
                Err(error)
            }
        }
    }

    fn note(&self, event: Event<'_>) {
        if let Some(audit) = &self.audit {
            audit.note(event);
        }
    }

    fn wanted(&self, properties: &Properties, set: &SetOptions) -> anyhow::Result<Settings> {
        let resolved = Resolved::gather_with(&self.matches, |name| std::env::var_os(name), properties, set)?;
        Ok(Settings::new(resolved)?)
    }

    /// Whether these could be had.
    fn check(&self, properties: &Properties, set: &SetOptions) -> anyhow::Result<()> {
        let in_force = self.in_force.lock();
        let wanted = self.wanted(properties, set)?;
        self.subscribers.prepare(sections::options(), &in_force.process, &wanted)?;
        Ok(())
    }

    /// `by`: who changes options by hand.
    fn try_run(&self, properties: &Properties, set: &SetOptions, by: Option<&str>) -> anyhow::Result<Taken> {
        let mut in_force = self.in_force.lock();
        let InForce { process, apps } = &mut *in_force;
        let wanted = self.wanted(properties, set)?;
        // What apps of tables can have for themselves changes with them: outside of the tables it is their default.
        let is_of_apps =
            |option: &&dyn Declaration| app::options().any(|of_apps| of_apps.about().key == option.about().key);
        let has_tables = !apps.is_empty();
        // Sessions obey the process's own switch before an app's.
        let is_of_process = |option: &&dyn Declaration| option.about().key == DISABLE_FLUSH_ALL.key();
        let options = sections::options().filter(|option| !has_tables || is_of_process(option) || !is_of_apps(option));
        let of_process = self.subscribers.prepare(options, process, &wanted)?;
        let mut of_apps = Vec::new();
        for (app, subscribers) in apps.iter_mut() {
            if let Some(to) = wanted.apps.iter().find(|to| to.name == app.name) {
                let prepared = subscribers.prepare(app::options(), &app.values, &to.values)?;
                of_apps.push((app, &to.values, prepared));
            }
        }

        let mut outcomes = vec![(None, of_process.apply(process, &wanted))];
        for (app, to, prepared) in of_apps {
            outcomes.push((Some(app.name.clone()), prepared.apply(&mut app.values, to)));
        }
        let tables =
            [(listener::TABLE, self.listeners != listeners(&wanted)), (app::TABLE, self.apps != app_keys(&wanted))];
        outcomes[0].1.after_restart.extend(tables.into_iter().filter(|(_, differ)| *differ).map(|(table, _)| table));
        // Last, so that all of it is logged at the level that is wanted.
        let all = || outcomes.iter().flat_map(|(app, outcome)| outcome.changed.iter().map(move |one| (app, one)));
        for (app, Changed { option, from, to }) in all() {
            self.note(Event::OptionChanged { who: by, app: app.as_deref(), option, from, to });
        }
        let mut changed = all();
        for (app, Changed { option, from, to }) in changed.by_ref().take(TOLD) {
            tracing::info!(app, option, from, to, "changed");
        }
        let more: Vec<&str> = changed.map(|(_, changed)| changed.option).collect();
        if !more.is_empty() {
            tracing::info!(more = more.len(), options = more.join(", "), "more changed");
        }
        for (app, outcome) in &outcomes {
            for option in &outcome.after_restart {
                tracing::warn!(app, option, "changed, but takes effect only after a restart");
            }
        }
        tracing::info!("reloaded");
        self.note(Event::Reloaded);
        let after_restart = outcomes.iter().flat_map(|(_, outcome)| outcome.after_restart.iter().copied()).collect();
        let is_given = |key: &str| {
            properties.get(key).is_some() && properties::may_set(key) && properties::is_meant(key, wanted.is_proxy())
        };
        let is_stronger = |option: &&dyn Declaration| {
            is_given(option.about().key) && !matches!(wanted.origin(*option), Origin::Property(_))
        };
        let overridden = sections::options().filter(is_stronger).map(|option| option.about().key).collect();
        Ok(Taken { after_restart, overridden })
    }
}

impl LiveOptions for Reload {
    fn set(&self, name: &str, text: Option<&str>, save: bool, by: &str) -> anyhow::Result<()> {
        let properties = self.properties.lock();
        let mut set = self.set.lock();
        let option = settable(name, sections::options)?;
        let key = option.about().key;
        let resolved = Resolved::gather_with(&self.matches, |name| std::env::var_os(name), &properties, &set)?;
        let path = resolved.values.get(&SAVED_OPTIONS);
        let path = match (save, path) {
            (true, None) => bail!("nothing can be saved: saved_options or state_dir says where"),
            (_, path) => path.filter(|_| save),
        };
        let in_file = resolved.file.get(key).cloned();
        let new = set.with(Change { option, text, save, by }, in_file)?;
        // What is refused is not saved, and what cannot be saved is not set.
        self.check(&properties, &new)?;
        if let Some(path) = path {
            let text = new.0.get(key).map(|set| set.text.as_str());
            let saved = resolved.saved.store(&path, key, text);
            saved.with_context(|| format!("{} cannot be written", path.display()))?;
        }
        self.try_run(&properties, &new, Some(by))?;
        *set = new;
        Ok(())
    }

    /// In the order of the reference; then those that apps have for themselves.
    fn in_force(&self) -> Vec<InForceOption> {
        let in_force = self.in_force.lock();
        let row = |app: Option<&str>, option: &dyn Declaration, values: &Values| InForceOption {
            app: app.map(str::to_owned),
            key: option.about().key,
            value: option.in_force(values),
            from: values.origin(option).to_string(),
            is_live: option.is_live(),
        };
        let of_process = sections::options().map(|option| row(None, option, &in_force.process));
        let of_apps = in_force.apps.iter().flat_map(|(app, _)| {
            let is_own = |option: &&dyn Declaration| app.own.contains(&option.about().key);
            app::options().filter(is_own).map(|option| row(Some(&app.name), option, &app.values)).collect::<Vec<_>>()
        });
        of_process.chain(of_apps).collect()
    }
}

/// The option of this name among `options`, if it may be set by hand: one that changes while the process runs, and does not say who
/// may do what.
///
/// # Errors
/// Why it may not.
pub fn settable<I: Iterator<Item = &'static dyn Declaration>>(
    name: &str,
    options: impl Fn() -> I,
) -> anyhow::Result<&'static dyn Declaration> {
    let Some(option) = options().find(|option| option.about().key == name) else {
        let near = nearest(name, options().map(|option| option.about().key));
        bail!(
            "there is no option `{name}`{}",
            near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
        );
    };
    if !option.is_live() {
        bail!("{name} takes effect at a restart: it is set by flag, environment or file");
    }
    if properties::says_who_may(name) {
        bail!("{name} says who may do what: it is set by flag, environment or file");
    }
    Ok(option)
}

fn listeners(settings: &Settings) -> Vec<ExtraListener> {
    settings.listeners.iter().map(|(listener, _)| listener.clone()).collect()
}

fn app_keys(settings: &Settings) -> Vec<AppKey> {
    let tables = settings.apps.iter().filter(|_| settings.has_app_tables);
    tables.map(|app| (app.name.clone(), app.prefix.clone(), app.strip_prefix)).collect()
}
