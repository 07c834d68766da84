//! SIGHUP: options are looked at again; what can change while serving changes, the rest is named in the log.

use clap::ArgMatches;
use moneta_options::subscribers::{Changed, Subscribers};
use moneta_options::values::Values;
use parking_lot::Mutex;

use crate::options::app;
use crate::options::listener::{self, ExtraListener};
use crate::options::resolve::Resolved;
use crate::options::sections;
use crate::options::settings::Settings;

/// Holds what a reload compares with, and what changes by it.
pub struct Reload {
    matches: ArgMatches,
    // Signals come one at a time; the lock is there because the caller's closure is shared.
    in_force: Mutex<Values>,
    /// The listeners of the file, which stay as they are.
    listeners: Vec<ExtraListener>,
    /// The apps, in the text form that is compared.
    apps: Vec<(String, String)>,
    subscribers: Subscribers,
}

impl Reload {
    /// A reload of a process that was started with the options `in_force`, made from `matches`.
    pub fn new(matches: ArgMatches, in_force: &Settings, subscribers: Subscribers) -> Self {
        let values = Values::clone(in_force);
        let (listeners, apps) = (listeners(in_force), apps(in_force));
        Self { matches, in_force: Mutex::new(values), listeners, apps, subscribers }
    }

    /// Reloads and logs what came of it. If anything is wrong, nothing changes.
    pub fn run(&self) {
        if let Err(error) = self.try_run() {
            tracing::error!(error = format!("{error:#}"), "reload refused, nothing changed");
        }
    }

    fn try_run(&self) -> anyhow::Result<()> {
        let mut in_force = self.in_force.lock();
        let wanted = Settings::new(Resolved::gather(&self.matches, |name| std::env::var_os(name))?)?;
        let prepared = self.subscribers.prepare(sections::options(), &in_force, &wanted)?;
        let mut outcome = prepared.apply(&mut in_force, &wanted);
        if self.listeners != listeners(&wanted) {
            outcome.after_restart.push(listener::TABLE);
        }
        if self.apps != apps(&wanted) {
            outcome.after_restart.push(app::TABLE);
        }
        // Last, so that all of it is logged at the level that is wanted.
        for Changed { option, from, to } in outcome.changed {
            tracing::info!(option, from, to, "changed");
        }
        for option in outcome.after_restart {
            tracing::warn!(option, "changed, but takes effect only after a restart");
        }
        tracing::info!("reloaded");
        Ok(())
    }
}

fn listeners(settings: &Settings) -> Vec<ExtraListener> {
    settings.listeners.iter().map(|(listener, _)| listener.clone()).collect()
}

fn apps(settings: &Settings) -> Vec<(String, String)> {
    settings.apps.iter().filter(|_| settings.has_app_tables).map(|app| (app.name.clone(), app.describe())).collect()
}
