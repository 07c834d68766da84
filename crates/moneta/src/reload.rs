//! SIGHUP: options are looked at again; what can change while serving changes, the rest is named in the log.

use std::sync::Arc;

use anyhow::Context;
use clap::ArgMatches;
use moneta_server::node::Node;
use moneta_store::Store;
use parking_lot::Mutex;

use crate::logging::LogLevel;
use crate::options::resolve::Resolved;
use crate::options::settings::Settings;
use crate::options::table::{Change, Id, TABLE};
use crate::options::value::Value;
use crate::users;

/// Holds what a reload compares with and what it changes.
pub struct Reload<S> {
    matches: ArgMatches,
    // Signals come one at a time; the lock is there because the caller's closure is shared.
    in_force: Mutex<Resolved>,
    log_level: LogLevel,
    node: Arc<Node>,
    store: S,
}

/// What a reload found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// Options that can change now.
    applicable: Vec<Id>,
    /// Names of those that cannot.
    after_restart: Vec<&'static str>,
}

impl<S: Store> Reload<S> {
    /// A reload of a node that was started with `resolved`, made from `matches`.
    pub fn new(matches: ArgMatches, resolved: Resolved, log_level: LogLevel, node: Arc<Node>, store: S) -> Self {
        Self { matches, in_force: Mutex::new(resolved), log_level, node, store }
    }

    /// Reloads and logs what came of it. If anything is wrong, nothing changes.
    pub fn run(&self) {
        if let Err(error) = self.try_run() {
            tracing::error!(error = format!("{error:#}"), "reload refused, nothing changed");
        }
    }

    fn try_run(&self) -> anyhow::Result<()> {
        let mut in_force = self.in_force.lock();
        let wanted = Resolved::gather(&self.matches, |name| std::env::var_os(name))?;
        let settings = Settings::new(&wanted)?;
        let differences = differences(&in_force, &wanted);
        let authenticates = has_users(&in_force) && settings.auth_file.is_some();
        let users = settings.auth_file.as_deref().filter(|_| authenticates).map(users::read).transpose()?;

        if differences.applicable.contains(&Id::Memory) {
            anyhow::ensure!(
                self.store.resize(settings.memory),
                "memory: the store cannot take {} bytes",
                settings.memory
            );
        }
        if let Some(users) = users {
            self.node.authenticator.reload(users);
            tracing::info!("users read again");
        }
        self.log_level.set(settings.log).context("log_level cannot change")?;
        // Always: a client may have changed it meanwhile.
        self.node.set_verbosity(settings.log.verbosity);
        for id in differences.applicable {
            let (old, new) = (in_force.value(id).to_string(), wanted.entry(id).clone());
            tracing::info!(option = new.spec.key, from = old, to = %new.value, "changed");
            in_force.replace(new);
        }
        for option in differences.after_restart {
            tracing::warn!(option, "changed, but takes effect only after a restart");
        }
        tracing::info!("reloaded");
        Ok(())
    }
}

/// Whether clients have to log in.
fn has_users(resolved: &Resolved) -> bool {
    *resolved.value(Id::AuthFile) != Value::Path(None)
}

fn differences(in_force: &Resolved, wanted: &Resolved) -> Differences {
    let mut differences = Differences::default();
    for spec in TABLE.iter().filter(|spec| in_force.value(spec.id) != wanted.value(spec.id)) {
        // Another file of users can be read; turning logins on or off cannot be done to connections that are open.
        let toggled = spec.id == Id::AuthFile && has_users(in_force) != has_users(wanted);
        match spec.change {
            Change::Reload if !toggled => differences.applicable.push(spec.id),
            _ => differences.after_restart.push(spec.key),
        }
    }
    if in_force.listeners.iter().map(|(listener, _)| listener).ne(wanted.listeners.iter().map(|(listener, _)| listener))
    {
        differences.after_restart.push("listener");
    }
    differences
}
