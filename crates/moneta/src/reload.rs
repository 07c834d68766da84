//! SIGHUP: options are looked at again; what can change while serving changes, the rest is named in the log.

use std::sync::Arc;

use clap::ArgMatches;
use moneta_audit::{Audit, Event};
use moneta_link::Properties;
use moneta_options::declaration::Declaration;
use moneta_options::subscribers::{Changed, Subscribers};
use moneta_options::values::Values;
use parking_lot::Mutex;

use crate::options::app::{self, AppSettings};
use crate::options::listener::{self, ExtraListener};
use crate::options::resolve::Resolved;
use crate::options::sections;
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::settings::Settings;

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
    audit: Option<Arc<Audit>>,
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
        if let Err(error) = self.try_run(&properties) {
            let why = format!("{error:#}");
            tracing::error!(error = why, "reload refused, nothing changed");
            self.note(Event::ReloadRefused { why: &why });
        }
    }

    /// Takes what the control plane says, all of it or nothing; tells what of it takes a restart.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take(&self, properties: Properties) -> anyhow::Result<Vec<&'static str>> {
        let mut current = self.properties.lock();
        match self.try_run(&properties) {
            Ok(after_restart) => {
                *current = properties;
                Ok(after_restart)
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

    fn try_run(&self, properties: &Properties) -> anyhow::Result<Vec<&'static str>> {
        let mut in_force = self.in_force.lock();
        let InForce { process, apps } = &mut *in_force;
        let wanted = Settings::new(Resolved::gather_with(&self.matches, |name| std::env::var_os(name), properties)?)?;
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
            self.note(Event::OptionChanged { app: app.as_deref(), option, from, to });
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
        Ok(outcomes.iter().flat_map(|(_, outcome)| outcome.after_restart.iter().copied()).collect())
    }
}

fn listeners(settings: &Settings) -> Vec<ExtraListener> {
    settings.listeners.iter().map(|(listener, _)| listener.clone()).collect()
}

fn app_keys(settings: &Settings) -> Vec<AppKey> {
    let tables = settings.apps.iter().filter(|_| settings.has_app_tables);
    tables.map(|app| (app.name.clone(), app.prefix.clone(), app.strip_prefix)).collect()
}
