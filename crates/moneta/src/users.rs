//! Who may connect, and what they may do: the file of users and their rights (`--users`), which is followed.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use anyhow::Context;
use moneta_audit::{Audit, Event};
use moneta_options::values::Values;
use moneta_server::config::{ListenAddress, Listener};
use moneta_users::{Keys, Users};

use crate::admin_access::LISTENER;
use crate::options::sections::access::{AUDIT_LOG, AUTH_FILE, USERS, note_users};
use crate::options::sections::cluster::CLUSTER;
use crate::options::settings::Settings;

/// The users of `--users`.
///
/// # Errors
/// If the file cannot be read or is refused.
pub fn open(settings: &Values) -> anyhow::Result<Option<Arc<Users>>> {
    settings.get(&USERS).map(|path| Users::open(&path).context("users")).transpose()
}

/// Follows the file of users from now on; warns of what is open to more than it should be, or to nobody.
///
/// # Errors
/// If the system has no thread.
pub fn follow(
    users: Option<&Arc<Users>>,
    settings: &Settings,
    listeners: &[Listener],
    audit: Option<&Arc<Audit>>,
) -> anyhow::Result<()> {
    let Some(users) = users else {
        if settings.get(&CLUSTER) && settings.get(&AUTH_FILE).is_none() {
            warn_of_open_cluster(listeners);
        }
        return Ok(());
    };
    warn_of_what_is_nowhere(users, settings, listeners);
    follow_file(Some(users), settings, audit)
}

/// Follows the file of users of a process without listeners for clients; warns where everybody can read it.
///
/// # Errors
/// If the system has no thread.
pub fn follow_file(users: Option<&Arc<Users>>, settings: &Values, audit: Option<&Arc<Audit>>) -> anyhow::Result<()> {
    let Some(users) = users else { return Ok(()) };
    if let Some(path) = settings.get(&USERS)
        && std::fs::metadata(&path).is_ok_and(|found| found.mode() & 0o004 != 0)
    {
        tracing::warn!(file = %path.display(), "everybody can read the file of users; chmod 600 it");
    }
    let audit = audit.cloned();
    users.follow(move |users| note_users(users, audit.as_deref())).context("no thread follows the file of users")
}

/// The audit log of `--audit-log`.
///
/// # Errors
/// If the file cannot be opened.
pub fn audit(settings: &Values) -> anyhow::Result<Option<Arc<Audit>>> {
    let Some(path) = settings.get(&AUDIT_LOG) else { return Ok(None) };
    let audit = Audit::start(&path).with_context(|| format!("audit_log: `{}` cannot be opened", path.display()))?;
    audit.note(Event::Started { version: env!("CARGO_PKG_VERSION") });
    Ok(Some(Arc::new(audit)))
}

/// Warns of a node whose copies anybody can write to: who can connect may read its feed and write with any version.
fn warn_of_open_cluster(listeners: &[Listener]) {
    let is_beyond = |listener: &&Listener| match &listener.address {
        ListenAddress::Tcp(address) => !address.ip().is_loopback(),
        ListenAddress::Unix { .. } => false,
    };
    for listener in listeners.iter().filter(is_beyond) {
        tracing::warn!(
            listener = %listener.address,
            "whoever can connect here may read the feed and write with versions: --users has a right for that"
        );
    }
}

/// Warns of users whose listeners or apps this process has not: one file may be for several.
fn warn_of_what_is_nowhere(users: &Users, settings: &Settings, listeners: &[Listener]) {
    let roster = users.roster();
    for user in roster.users() {
        let is_here = |name: &str| name == LISTENER || listeners.iter().any(|listener| listener.name == name);
        if let Some(names) = user.listeners()
            && !names.iter().any(|name| is_here(name))
        {
            tracing::warn!(user = user.name(), "none of the user's listeners is of this process");
        }
        if let Keys::Apps(apps) = user.keys()
            && !apps.iter().any(|app| settings.apps.iter().any(|own| own.name == **app))
        {
            tracing::warn!(user = user.name(), "none of the user's apps is of this process: it may touch no key here");
        }
    }
}
