//! What a log-in comes to.

use std::sync::Arc;

use moneta_net::CertificateNames;

use crate::secret::{StoredSecret, unix_now};
use crate::user::User;

/// A log-in that succeeded: whose it is, and by what. It is as old as its generation; [`crate::Users::renew`] has it as users are
/// now.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    pub(crate) user: Arc<User>,
    pub(crate) by: Credential,
    pub(crate) generation: u64,
}

/// By what a client showed who it is.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// One of the user's secrets.
    Secret(StoredSecret),
    /// A certificate with these names.
    Certificate(Arc<CertificateNames>),
}

impl LoggedIn {
    /// The user.
    #[inline]
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// The generation of users that it is of ([`crate::Users::generation`]).
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// What a name and a secret come to.
#[derive(Debug)]
pub enum Checked {
    /// They are right.
    Right(LoggedIn),
    /// They are wrong.
    Wrong,
    /// It takes long to say: [`crate::Users::check_apart`].
    Slow(SlowCheck),
}

/// A check that takes milliseconds of processor time and megabytes of memory.
pub struct SlowCheck {
    pub(crate) secret: Box<[u8]>,
    pub(crate) stored: Vec<StoredSecret>,
    /// None where there is no user of the name: then it takes as long, and is wrong.
    pub(crate) user: Option<Arc<User>>,
    pub(crate) generation: u64,
}

impl SlowCheck {
    /// The answer. It blocks the calling thread for some milliseconds.
    pub fn run(self) -> Option<LoggedIn> {
        let Self { secret, stored, user, generation } = self;
        // All of them, so that the time does not tell which was right.
        let right =
            stored.into_iter().fold(None, |right, stored| if stored.is(&secret) { Some(stored) } else { right });
        let right = right.filter(|stored| !stored.has_ended(unix_now()))?;
        Some(LoggedIn { user: user?, by: Credential::Secret(right), generation })
    }
}

impl std::fmt::Debug for SlowCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowCheck").field("user", &self.user).finish_non_exhaustive()
    }
}
