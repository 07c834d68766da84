//! Who may connect: the file of users and their rights (`--users`), which is followed, and that of `-Y`, which is read at the start
//! and again on SIGHUP.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use moneta_audit::{Audit, Event};
use moneta_server::auth;
use moneta_server::config::{ListenAddress, Listener};
use moneta_users::{Keys, Users};

use crate::options::sections::access::{AUDIT_LOG, AUTH_FILE, USERS};
use crate::options::sections::cluster::CLUSTER;
use crate::options::settings::Settings;

/// The users of `--users`, whose file is followed from now on.
///
/// # Errors
/// If the file cannot be read or is refused.
pub fn start(
    settings: &Settings,
    listeners: &[Listener],
    audit: Option<&Arc<Audit>>,
) -> anyhow::Result<Option<Arc<Users>>> {
    let Some(path) = settings.get(&USERS) else {
        if settings.get(&CLUSTER) && settings.get(&AUTH_FILE).is_none() {
            warn_of_open_cluster(listeners);
        }
        return Ok(None);
    };
    let users = Users::open(&path).context("users")?;
    warn_of_what_is_nowhere(&users, settings, listeners);
    let audit = audit.cloned();
    users.follow(move |users| note(users, audit.as_deref())).context("no thread follows the file of users")?;
    Ok(Some(users))
}

/// The audit log of `--audit-log`.
///
/// # Errors
/// If the file cannot be opened.
pub fn audit(settings: &Settings) -> anyhow::Result<Option<Arc<Audit>>> {
    let Some(path) = settings.get(&AUDIT_LOG) else { return Ok(None) };
    let audit = Audit::start(&path).with_context(|| format!("audit_log: `{}` cannot be opened", path.display()))?;
    audit.note(Event::Started { version: env!("CARGO_PKG_VERSION") });
    Ok(Some(Arc::new(audit)))
}

/// Notes that the users were replaced.
pub fn note(users: &Users, audit: Option<&Audit>) {
    if let Some(audit) = audit {
        audit.note(Event::UsersChanged { users: users.counts().users });
    }
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
        let is_here = |name: &str| name == ADMIN || listeners.iter().any(|listener| listener.name == name);
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

/// The name of the admin listener in the file of users.
const ADMIN: &str = "admin";

/// Reads the users of a file.
///
/// # Errors
/// If it cannot be read, if others than its owner may write it, or if it holds something else than `user:password` lines.
pub fn read(path: &Path) -> anyhow::Result<auth::Users> {
    let name = path.display();
    check_mode(path)?;
    let text = std::fs::read(path).with_context(|| format!("auth_file: `{name}` cannot be read"))?;
    auth::Users::parse(&text).with_context(|| format!("auth_file: `{name}` is refused"))
}

/// Refuses a file in which others can make themselves users, and warns of one whose passwords everybody can read.
fn check_mode(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("auth_file: `{name}` cannot be read"))?;
    let mode = metadata.mode() & 0o777;
    anyhow::ensure!(
        mode & 0o022 == 0,
        "auth_file: `{name}` is refused: its mode is {mode:o}, so others than its owner may write it; `chmod 600` it"
    );
    if mode & 0o004 != 0 {
        tracing::warn!(file = %name, mode = format!("{mode:o}"), "auth_file: everybody can read the passwords; chmod 600 it");
    }
    Ok(())
}
