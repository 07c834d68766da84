//! The users in force, shared by all who ask; the file that names them may change meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_net::CertificateNames;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::apart::{Apart, SlowAnswer};
use crate::error::UsersError;
use crate::file::{self, Stamp};
use crate::log_in::{Checked, Credential, LoggedIn, SlowCheck};
use crate::refusals::Refusals;
use crate::rights::Right;
use crate::roster::{NoUser, Roster};
use crate::secret::{SECRET_MAX, StoredSecret, dummy, unix_now};

/// The users in force.
#[derive(Debug)]
pub struct Users {
    // Read for log-ins, and when the generation has changed.
    roster: RwLock<Arc<Roster>>,
    generation: AtomicU64,
    /// Tells of each new generation.
    changes: watch::Sender<()>,
    /// The file, and how it was when it was last looked at.
    pub(crate) file: Mutex<FileState>,
    is_stale: AtomicBool,
    reloads: AtomicU64,
    failures: AtomicU64,
    refusals: Refusals,
    apart: Apart,
}

/// The file of users.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    /// Of what is in force.
    pub(crate) stamp: Option<Stamp>,
}

/// A file that was read and can be put in force.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    stamp: Stamp,
    roster: Roster,
}

impl Prepared {
    /// What it names.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Users in force.
    pub users: u64,
    /// How often they were replaced.
    pub reloads: u64,
    /// How often the file could not be read, or was refused.
    pub failures: u64,
    /// Whether the file is not in force: it cannot be read, or is refused.
    pub is_stale: bool,
}

impl Users {
    /// The users of a file.
    ///
    /// # Errors
    /// As [`Users::prepare`].
    pub fn open(path: &Path) -> Result<Arc<Self>, UsersError> {
        let Prepared { path, stamp, roster } = Self::prepare(path)?;
        let users = Self::of(roster);
        *users.file.lock() = FileState { path, stamp: Some(stamp) };
        Ok(users)
    }

    /// No users, until the file at `path` is there and names some: everybody is refused meanwhile.
    pub fn awaiting(path: &Path) -> Arc<Self> {
        let users = Self::of(Roster::default());
        *users.file.lock() = FileState { path: path.to_owned(), stamp: None };
        users.is_stale.store(true, Ordering::Relaxed);
        users
    }

    /// Users without a file.
    pub fn of(roster: Roster) -> Arc<Self> {
        Arc::new(Self {
            roster: RwLock::new(Arc::new(roster)),
            generation: AtomicU64::new(1),
            changes: watch::Sender::new(()),
            file: Mutex::default(),
            is_stale: AtomicBool::new(false),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            refusals: Refusals::default(),
            apart: Apart::default(),
        })
    }

    /// Reads a file, which [`Users::apply`] puts in force.
    ///
    /// # Errors
    /// If it cannot be read, others than its owner may write it, it changes while it is read, or what it says makes no sense.
    pub fn prepare(path: &Path) -> Result<Prepared, UsersError> {
        let (stamp, roster) = file::read(path)?;
        Ok(Prepared { path: path.to_owned(), stamp, roster })
    }

    /// The file that is followed.
    pub fn path(&self) -> PathBuf {
        self.file.lock().path.clone()
    }

    /// Puts a file in force.
    pub fn apply(&self, prepared: Prepared) {
        let Prepared { path, stamp, roster } = prepared;
        *self.file.lock() = FileState { path, stamp: Some(stamp) };
        self.replace(roster);
        self.is_stale.store(false, Ordering::Relaxed);
    }

    /// Replaces all users.
    pub fn replace(&self, roster: Roster) {
        *self.roster.write() = Arc::new(roster);
        // After the users: who sees the new number sees them.
        self.renew_log_ins();
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Has all log-ins looked at anew.
    pub(crate) fn renew_log_ins(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        self.changes.send_replace(());
    }

    /// The file could not be put in force.
    pub fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Changes when users do: a log-in of this generation needs no look.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Tells when users were replaced.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The users now.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read())
    }

    /// The generation before the users, so that a log-in is never taken for newer than it is.
    fn now(&self) -> (u64, Arc<Roster>) {
        (self.generation(), self.roster())
    }

    /// The log-in of who has shown a certificate with these names.
    ///
    /// # Errors
    /// If they are no user's, or of several.
    pub fn by_certificate(&self, names: &Arc<CertificateNames>) -> Result<LoggedIn, NoUser> {
        let (generation, roster) = self.now();
        let user = Arc::clone(roster.by_certificate(names)?);
        Ok(LoggedIn { user, by: Credential::Certificate(Arc::clone(names)), generation })
    }

    /// The log-in of who knows a secret of the user `name` that has not ended. Generated secrets are checked at once, in microseconds.
    pub fn by_secret(&self, name: &[u8], secret: &[u8]) -> Checked {
        if secret.len() > SECRET_MAX {
            return Checked::Wrong;
        }
        let (generation, roster) = self.now();
        let user = std::str::from_utf8(name).ok().and_then(|name| roster.by_name(name));
        let Some(user) = user.filter(|user| !user.secrets().is_empty()) else {
            // As much work as for a user there is.
            let stored = dummy(roster.has_passwords());
            if stored.is_slow() {
                return Checked::Slow(SlowCheck {
                    secret: secret.into(),
                    stored: vec![stored],
                    user: None,
                    generation,
                });
            }
            let _ = stored.is(secret);
            return Checked::Wrong;
        };
        let quick = user.secrets().iter().filter(|stored| !stored.is_slow());
        let right = quick.fold(None, |right, stored| if stored.is(secret) { Some(stored) } else { right });
        if let Some(stored) = right {
            if stored.has_ended(unix_now()) {
                return Checked::Wrong;
            }
            return Checked::Right(LoggedIn {
                user: Arc::clone(user),
                by: Credential::Secret(stored.clone()),
                generation,
            });
        }
        let stored: Vec<_> = user.secrets().iter().filter(|stored| stored.is_slow()).cloned().collect();
        if stored.is_empty() {
            return Checked::Wrong;
        }
        Checked::Slow(SlowCheck { secret: secret.into(), stored, user: Some(Arc::clone(user)), generation })
    }

    /// Has a slow check done by the thread for that; `None` if too many wait already: then it is not done.
    pub fn check_apart(&self, check: SlowCheck) -> Option<SlowAnswer> {
        self.apart.begin(check)
    }

    /// The log-in of `USER:SECRET`. Takes generated secrets alone, since it is asked for each request: a password, which is slow to
    /// check, is wrong here.
    pub fn by_bearer(&self, user_and_secret: &[u8]) -> Option<LoggedIn> {
        let colon = user_and_secret.iter().position(|&byte| byte == b':')?;
        match self.by_secret(&user_and_secret[..colon], &user_and_secret[colon + 1..]) {
            Checked::Right(logged_in) => Some(logged_in),
            Checked::Wrong | Checked::Slow(_) => None,
        }
    }

    /// The log-in of an HTTP header `Authorization`: `Bearer USER:SECRET`, or `Basic` with the same in base64; as
    /// [`Users::by_bearer`].
    pub fn by_authorization(&self, header: &[u8]) -> Option<LoggedIn> {
        let space = header.iter().position(|&byte| byte == b' ')?;
        let (scheme, rest) = (&header[..space], header[space..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return self.by_bearer(rest);
        }
        if scheme.eq_ignore_ascii_case(b"basic") && rest.len() <= 4 * SECRET_MAX {
            return self.by_bearer(&STANDARD.decode(rest).ok()?);
        }
        None
    }

    /// A log-in as users are now: with what its user may do now; `None` if the user is gone, or that by which it logged in has ended
    /// or is not the user's any more.
    pub fn renew(&self, logged_in: &LoggedIn) -> Option<LoggedIn> {
        let (generation, roster) = self.now();
        let user = match &logged_in.by {
            Credential::Secret(stored) => {
                let is_in_force = |own: &StoredSecret| own.is_that_of(stored) && !own.has_ended(unix_now());
                roster.by_name(logged_in.user.name()).filter(|user| user.secrets().iter().any(is_in_force))
            }
            Credential::Certificate(names) => {
                roster.by_certificate(names).ok().filter(|user| user.name() == logged_in.user.name())
            }
        }?;
        Some(LoggedIn { user: Arc::clone(user), by: logged_in.by.clone(), generation })
    }

    /// Counts that a user was refused something for want of a right.
    pub fn count_refusal(&self, user: &str, right: Right) {
        self.refusals.count(user, right);
    }

    /// What was refused since the start: user, right, how often. Of more than 64 users the rest is counted as `others`.
    pub fn refusals(&self) -> Vec<(String, Right, u64)> {
        self.refusals.all()
    }

    /// Numbers for metrics.
    pub fn counts(&self) -> Counts {
        Counts {
            users: self.roster().users().len() as u64,
            reloads: self.reloads.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            is_stale: self.is_stale.load(Ordering::Relaxed),
        }
    }
}
