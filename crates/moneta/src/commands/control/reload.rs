//! SIGHUP: options are looked at again; what can change while serving changes, the rest is named in the log.

use std::sync::Arc;

use anyhow::Context;
use clap::ArgMatches;
use moneta_audit::{Audit, Event};
use moneta_options::subscribers::{Changed, Effect, Subscribers};
use moneta_options::values::Values;
use moneta_process::logging::LogLevel;
use moneta_process::phases::Phases;
use moneta_server::Certificates;
use moneta_users::Users;
use parking_lot::Mutex;

use crate::options::of_control;
use crate::options::sections::access::{USERS, note_users};
use crate::options::sections::operation::{LAME_DUCK, LOG_LEVEL, VERBOSE};
use crate::options::sections::tls;

/// What changes while the process runs.
pub struct Live {
    pub phases: Arc<Phases>,
    pub level: LogLevel,
    pub users: Option<Arc<Users>>,
    pub certificates: Option<Arc<Certificates>>,
    pub audit: Option<Arc<Audit>>,
}

/// Holds what a reload compares with, and what changes by it.
pub struct Reload {
    matches: ArgMatches,
    // Signals come one at a time; the lock is there because the caller's closure is shared.
    in_force: Mutex<Values>,
    subscribers: Subscribers,
    audit: Option<Arc<Audit>>,
}

impl Reload {
    /// A reload of a process that was started with the options `in_force`, made from `matches`.
    pub fn new(matches: ArgMatches, in_force: Values, live: Live) -> Self {
        let Live { phases, level, users, certificates, audit } = live;
        let mut subscribers = Subscribers::default();
        tls::subscribe(&mut subscribers, certificates.as_ref());
        subscribers.set(&LAME_DUCK, move |duration| phases.set_lame_duck(duration));
        let of = level.clone();
        subscribers.set(&LOG_LEVEL, move |base| of.set_base(base));
        subscribers.set(&VERBOSE, move |verbosity| level.set_own_verbosity(verbosity));
        let noted = audit.clone();
        subscribers.on(&USERS, move |change| match (&users, change.to) {
            (Some(users), Some(path)) => {
                let prepared = Users::prepare(&path).inspect_err(|_| users.note_failure()).context("users")?;
                let (users, audit) = (Arc::clone(users), noted.clone());
                Ok(Effect::now(move || {
                    users.apply(prepared);
                    note_users(&users, audit.as_deref());
                }))
            }
            (None, None) => Ok(Effect::None),
            _ => Ok(Effect::AfterRestart),
        });
        Self { matches, in_force: Mutex::new(in_force), subscribers, audit }
    }

    /// Reloads and logs what came of it. If anything is wrong, nothing changes.
    pub fn run(&self) {
        // What rotates logs asks for it by this signal.
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        if let Err(error) = self.try_run() {
            let why = format!("{error:#}");
            tracing::error!(error = why, "reload refused, nothing changed");
            self.note(Event::ReloadRefused { why: &why });
        }
    }

    fn note(&self, event: Event<'_>) {
        if let Some(audit) = &self.audit {
            audit.note(event);
        }
    }

    fn try_run(&self) -> anyhow::Result<()> {
        let mut in_force = self.in_force.lock();
        let wanted = of_control::resolve(&self.matches, |name| std::env::var_os(name))?;
        let prepared = self.subscribers.prepare(of_control::options(), &in_force, &wanted)?;
        let outcome = prepared.apply(&mut in_force, &wanted);
        for Changed { option, from, to } in &outcome.changed {
            self.note(Event::OptionChanged { app: None, option, from, to });
            tracing::info!(option, from, to, "changed");
        }
        for option in &outcome.after_restart {
            tracing::warn!(option, "changed, but takes effect only after a restart");
        }
        tracing::info!("reloaded");
        self.note(Event::Reloaded);
        Ok(())
    }
}
