//! Who may connect, and what they may do: the file of users and their rights (`--users`), which is followed.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use moneta_audit::{Audit, Event};
use moneta_link::{Control, HandedUsers, of_users};
use moneta_options::values::Values;
use moneta_process::Process;
use moneta_process::desk::{Desk, Observed};
use moneta_server::config::{ListenAddress, Listener};
use moneta_store::Health;
use moneta_store::metric::Sample;
use moneta_users::{Keys, Users};

use crate::admin_access::LISTENER;
use crate::options::kinds::users::From;
use crate::options::sections::access::{AUDIT_LOG, AUTH_FILE, USERS, note_users};
use crate::options::sections::cluster::CLUSTER;
use crate::options::settings::Settings;

/// The file of the control plane's users in the folder of the state.
const KEPT: &str = "users.toml";
/// Users that are named in a line of the log, at most.
const NAMED: usize = 8;
/// How long they are waited for where none are kept.
const FIRST: Duration = Duration::from_secs(10);

/// The users of `--users`. Those of a control plane that cannot be had from `state_dir` are none, until [`of_control`] has them.
///
/// # Errors
/// If the file cannot be read or is refused.
pub fn open(settings: &Values, state_dir: Option<PathBuf>) -> anyhow::Result<Option<Arc<Users>>> {
    Ok(match settings.get(&USERS) {
        None => None,
        Some(From::File(path)) => Some(Users::open(&path).context("users")?),
        Some(From::Control) => {
            let path = state_dir.context("users: there is no state_dir")?.join(KEPT);
            Some(Users::open(&path).unwrap_or_else(|_| Users::awaiting(&path)))
        }
    })
}

/// The users that a control plane hands on, followed.
struct OfControl(HandedUsers);

/// Has users that are those of the control plane follow it, and waits for the first where none are kept.
///
/// # Errors
/// If none are kept, and the control plane does not tell them.
pub fn of_control(
    users: Option<&Arc<Users>>,
    settings: &Values,
    control: Option<&Arc<Control>>,
    process: &Process,
) -> anyhow::Result<()> {
    let Some(users) = users.filter(|_| settings.get(&USERS) == Some(From::Control)) else { return Ok(()) };
    let control = control.context("users: no control plane is named")?;
    let path = users.path();
    let handed = HandedUsers::start(Arc::clone(control), path.clone()).context("no thread follows the users")?;
    if users.counts().is_stale {
        let first = handed.first(FIRST);
        first.map_err(|why| {
            let kept = Users::prepare(&path).map_or_else(|error| error.to_string(), |_| "kept too late".into());
            anyhow!("users: the control plane does not tell them: {why}; nor are any kept of before: {kept}")
        })?;
        users.apply(Users::prepare(&path).context("users")?);
    }
    process.desk().show(Arc::new(OfControl(handed)), []);
    Ok(())
}

impl Observed for OfControl {
    fn samples(&self) -> Vec<Sample> {
        of_users(&self.0)
    }

    /// What is stale is told; it makes nothing unfit to serve.
    fn health(&self) -> Health {
        let standing = self.0.standing();
        let age = standing.age().as_secs();
        let why = standing.failure.as_deref();
        let note = if standing.is_held {
            Some("users: most are gone at once at the control plane; they stay until that is confirmed".into())
        } else if standing.is_fresh() && why.is_none() {
            None
        } else {
            let since = if standing.told.is_some() { "are" } else { "were not told since the start," };
            Some(format!(
                "users: those of the control plane {since} {age} s old: {}",
                why.unwrap_or("it has not answered yet")
            ))
        };
        Health { unready: false, notes: note.into_iter().collect() }
    }
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
    desk: &Desk,
) -> anyhow::Result<()> {
    let Some(users) = users else {
        if settings.get(&CLUSTER) && settings.get(&AUTH_FILE).is_none() {
            warn_of_open_cluster(listeners);
        }
        return Ok(());
    };
    warn_of_what_is_nowhere(users, settings, listeners);
    follow_file(Some(users), settings, audit, desk)
}

/// Follows the file of users of a process without listeners for clients; warns where everybody can read it.
///
/// # Errors
/// If the system has no thread.
pub fn follow_file(
    users: Option<&Arc<Users>>,
    settings: &Values,
    audit: Option<&Arc<Audit>>,
    desk: &Desk,
) -> anyhow::Result<()> {
    let Some(users) = users else { return Ok(()) };
    if let Some(From::File(path)) = settings.get(&USERS)
        && std::fs::metadata(&path).is_ok_and(|found| found.mode() & 0o004 != 0)
    {
        tracing::warn!(file = %path.display(), "everybody can read the file of users; chmod 600 it");
    }
    let audit = audit.cloned();
    desk.show(Arc::new(Ends(Arc::clone(users))), []);
    users.follow(move |users| note_users(users, audit.as_deref())).context("no thread follows the file of users")
}

/// When secrets end.
struct Ends(Arc<Users>);

impl Observed for Ends {
    fn samples(&self) -> Vec<Sample> {
        moneta_server::secret_ends(&self.0)
    }
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
    let (mut of_listeners, mut of_apps) = (Vec::new(), Vec::new());
    for user in roster.users() {
        let is_here = |name: &str| name == LISTENER || listeners.iter().any(|listener| listener.name == name);
        if user.listeners().is_some_and(|names| !names.iter().any(|name| is_here(name))) {
            of_listeners.push(user.name());
        }
        if let Keys::Apps(apps) = user.keys()
            && !apps.iter().any(|app| settings.apps.iter().any(|own| own.name == **app))
        {
            of_apps.push(user.name());
        }
    }
    if !of_listeners.is_empty() {
        let users = named(&of_listeners);
        tracing::warn!(users, "none of these users' listeners is of this process");
    }
    if !of_apps.is_empty() {
        let users = named(&of_apps);
        tracing::warn!(users, "none of these users' apps is of this process: they may touch no key here");
    }
}

/// The first names of a list, and how many more there are.
fn named(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    if names.len() <= NAMED { first } else { format!("{first} and {} more", names.len() - NAMED) }
}
