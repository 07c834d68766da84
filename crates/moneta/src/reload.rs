//! SIGHUP: options are looked at again; what can change while serving changes, the rest is named in the log.

use clap::ArgMatches;
use parking_lot::Mutex;

use crate::options::listener::ExtraListener;
use crate::options::live::{Effect, Running};
use crate::options::resolve::Resolved;
use crate::options::sections;
use crate::options::settings::Settings;
use crate::options::values::Values;

/// Holds what a reload compares with and what it changes.
pub struct Reload {
    matches: ArgMatches,
    // Signals come one at a time; the lock is there because the caller's closure is shared.
    in_force: Mutex<Values>,
    /// The listeners of the file, which stay as they are.
    listeners: Vec<ExtraListener>,
    /// The apps, in the text form that is compared.
    apps: Vec<(String, String)>,
    running: Running,
}

impl Reload {
    /// A reload of a node that was started with the options `in_force`, made from `matches`.
    pub fn new(matches: ArgMatches, in_force: &Settings, running: Running) -> Self {
        let values = Values::clone(in_force);
        let (listeners, apps) = (listeners(in_force), apps(in_force));
        Self { matches, in_force: Mutex::new(values), listeners, apps, running }
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
        let (mut effects, mut after_restart) = (Vec::new(), Vec::new());
        for option in sections::options() {
            let (from, to) = (option.in_force(&in_force), option.in_force(&wanted));
            match option.prepare(&in_force, &wanted)? {
                Effect::Now(apply) => effects.push((option, from, to, apply)),
                Effect::AfterRestart if from != to => after_restart.push(option.about().key),
                Effect::AfterRestart => {}
            }
        }
        if self.listeners != listeners(&wanted) {
            after_restart.push("listener");
        }
        if self.apps != apps(&wanted) {
            after_restart.push("app");
        }

        let mut changed = Vec::new();
        for (option, from, to, apply) in effects {
            apply(&self.running)?;
            in_force.take_over(option.about().key, &wanted);
            if from != to {
                changed.push((option.about().key, from, to));
            }
        }
        // Last, so that all of it is logged at the level that is wanted.
        for (option, from, to) in changed {
            tracing::info!(option, from, to, "changed");
        }
        for option in after_restart {
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
