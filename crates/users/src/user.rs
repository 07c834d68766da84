//! One user.

use std::fmt;

use crate::certificates::Pattern;
use crate::rights::Rights;
use crate::roles::Fleet;
use crate::secret::{StoredSecret, unix_now};

/// The keys that a user may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All.
    All,
    /// Those that begin so.
    Prefixes(Box<[Box<str>]>),
    /// On a proxy those of these apps; a node knows no apps, so there none.
    Apps(Box<[Box<str>]>),
}

impl Keys {
    /// Whether all keys are among them, whatever leads to them.
    #[inline]
    pub fn are_all(&self) -> bool {
        match self {
            Self::All => true,
            Self::Prefixes(prefixes) => prefixes.iter().any(|prefix| prefix.is_empty()),
            Self::Apps(_) => false,
        }
    }

    /// Whether `key` is among them; `app` finds the app that it is of.
    #[inline]
    pub fn have<'a>(&self, key: &[u8], app: impl FnOnce() -> Option<&'a str>) -> bool {
        match self {
            Self::All => true,
            Self::Prefixes(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix.as_bytes())),
            Self::Apps(apps) => app().is_some_and(|app| self.have_app(apps, app)),
        }
    }

    /// Whether all keys of an app are among them.
    pub fn have_all_of(&self, app: &str) -> bool {
        self.are_all() || matches!(self, Self::Apps(apps) if self.have_app(apps, app))
    }

    fn have_app(&self, apps: &[Box<str>], app: &str) -> bool {
        apps.iter().any(|own| **own == *app)
    }
}

/// A user. It does not change: a file that was read again gives new ones.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub(crate) name: Box<str>,
    pub(crate) rights: Rights,
    pub(crate) keys: Keys,
    pub(crate) fleet: Fleet,
    pub(crate) listeners: Option<Box<[Box<str>]>>,
    pub(crate) certificates: Box<[Pattern]>,
    pub(crate) secrets: Box<[StoredSecret]>,
}

impl User {
    /// Its name: 1 to 64 letters, digits, `.`, `_`, `-` and `@`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it may do.
    #[inline]
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// What it does in environments of a fleet.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Whether an app is one of its own: of those of its `apps`; all, if it may touch all keys. An instance of an app has all keys of
    /// it, so who has prefixes has no app.
    pub fn has_app(&self, app: &str) -> bool {
        self.keys.have_all_of(app)
    }

    /// The keys that it may touch.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The names of the listeners through which it may come; `None`: all.
    pub fn listeners(&self) -> Option<&[Box<str>]> {
        self.listeners.as_deref()
    }

    /// Whether it may come through the listener of this name.
    pub fn may_use(&self, listener: &str) -> bool {
        self.listeners.as_ref().is_none_or(|own| own.iter().any(|own| **own == *listener))
    }

    /// The names of certificates that are its, as the file has them.
    pub fn certificates(&self) -> impl Iterator<Item = String> {
        self.certificates.iter().map(ToString::to_string)
    }

    /// Its secrets: at most two.
    pub fn secrets(&self) -> &[StoredSecret] {
        &self.secrets
    }

    /// The Unix second at which its last secret ends; `None`: it has none, or one without an end.
    pub fn ends(&self) -> Option<u64> {
        let ends = self.secrets.iter().map(|secret| secret.expires().unwrap_or(u64::MAX));
        ends.max().filter(|end| *end != u64::MAX)
    }

    /// Whether it may log in by anything now: a certificate, or a secret that has not ended.
    pub fn may_log_in(&self) -> bool {
        !self.certificates.is_empty() || self.ends().is_none_or(|end| end > unix_now())
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("rights", &self.rights).finish_non_exhaustive()
    }
}
