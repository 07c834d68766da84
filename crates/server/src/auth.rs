//! Who may log in: the users of an ASCII authentication file (`-Y`) and of SASL PLAIN, reloadable while serving.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use subtle::{Choice, ConstantTimeEq};

/// Whether connections have to log in, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// No log-in.
    #[default]
    Off,
    /// The first text command is a `set` whose value is `user password`; the binary protocol is refused (`-Y`).
    Text,
    /// The same, and SASL PLAIN on the binary protocol (`-S`).
    Sasl,
}

/// A password file that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UsersError {
    /// A line without a colon, or with an empty user or password.
    #[error("line {line} is not user:password")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// The file names no user.
    #[error("no users")]
    Empty,
}

/// Identifies a user with one password. A changed password gives a new identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoginId(u64);

#[derive(Debug)]
struct User {
    password: Vec<u8>,
    id: LoginId,
}

/// Users and passwords.
#[derive(Debug, Default)]
pub struct Users {
    by_name: HashMap<Vec<u8>, User>,
    ids: HashSet<LoginId>,
}

impl Users {
    /// Reads `user:password` lines; empty lines are skipped, everything after the first colon is the password.
    ///
    /// # Errors
    /// On the first malformed line, or if there is no user.
    pub fn parse(text: &[u8]) -> Result<Self, UsersError> {
        let mut by_name = HashMap::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
            if colon == 0 || colon + 1 == line.len() {
                return Err(UsersError::Line { line: index + 1 });
            }
            let user = User { password: line[colon + 1..].to_vec(), id: LoginId(0) };
            by_name.insert(line[..colon].to_vec(), user);
        }
        if by_name.is_empty() { Err(UsersError::Empty) } else { Ok(Self { by_name, ids: HashSet::new() }) }
    }

    fn check(&self, user: &[u8], password: &[u8]) -> Option<LoginId> {
        // Compare the password of an unknown user too, with an empty one, so that the time does not reveal which names exist.
        let known = self.by_name.get(user);
        let is_same = same(known.map_or(b"", |user| &user.password), password);
        known.filter(|_| is_same).map(|user| user.id)
    }

    /// Gives every user an id: the one in `before`, or a new one.
    fn identified(mut self, before: &Self, next: &AtomicU64) -> Self {
        for (name, user) in &mut self.by_name {
            let kept = before.by_name.get(name).filter(|known| known.password == user.password).map(|known| known.id);
            user.id = kept.unwrap_or_else(|| LoginId(next.fetch_add(1, Ordering::Relaxed)));
        }
        self.ids = self.by_name.values().map(|user| user.id).collect();
        self
    }
}

/// Compares in a time that depends only on the length of `given`. A comparison of slices would return early for different
/// lengths.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let filled = expected.iter().chain(std::iter::repeat(&0));
    let same_bytes = given.iter().zip(filled).fold(Choice::from(1), |same, (a, b)| same & a.ct_eq(b));
    (same_bytes & expected.len().ct_eq(&given.len())).into()
}

/// Checks users; the list can be replaced while sessions use it.
#[derive(Debug, Default)]
pub struct Authenticator {
    mode: AuthMode,
    users: RwLock<Arc<Users>>,
    next_id: AtomicU64,
    reloads: AtomicU64,
}

impl Authenticator {
    /// No connection has to log in.
    pub fn off() -> Self {
        Self::default()
    }

    /// Connections have to log in as one of `users`.
    pub fn new(mode: AuthMode, users: Users) -> Self {
        let next_id = AtomicU64::new(1);
        let users = users.identified(&Users::default(), &next_id);
        Self { mode, users: RwLock::new(Arc::new(users)), next_id, reloads: AtomicU64::new(0) }
    }

    /// Whether and how connections have to log in.
    #[inline]
    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// Replaces the users. A log-in stays valid if its user and password are in the new list.
    pub fn reload(&self, users: Users) {
        let mut current = self.users.write();
        *current = Arc::new(users.identified(&current, &self.next_id));
        self.reloads.fetch_add(1, Ordering::Release);
    }

    /// How often the users were replaced: a log-in's validity can change only when this number does.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    /// The log-in of `user`, if that is its `password`.
    pub fn check(&self, user: &[u8], password: &[u8]) -> Option<LoginId> {
        self.users().check(user, password)
    }

    /// Whether a log-in is still valid: its user exists with the same password.
    pub fn holds(&self, login: LoginId) -> bool {
        self.users().ids.contains(&login)
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_checked_whole() {
        let users = Authenticator::new(AuthMode::Text, Users::parse(b"ann:se:cret\r\n\nbob:x\n").unwrap());
        assert!(users.check(b"ann", b"se:cret").is_some());
        assert_eq!(users.check(b"ann", b"se:cre"), None);
        assert_eq!(users.check(b"ann", b"se:cret1"), None);
        assert_eq!(users.check(b"ann", b""), None);
        assert_eq!(users.check(b"eve", b""), None);
        users.reload(Users::parse(b"eve:y").unwrap());
        assert!(users.check(b"eve", b"y").is_some() && users.check(b"ann", b"se:cret").is_none());
    }

    #[test]
    fn a_login_holds_while_its_user_has_the_same_password() {
        let users = Authenticator::new(AuthMode::Text, Users::parse(b"ann:a\nbob:b\neve:e").unwrap());
        let [ann, bob, eve] = [(b"ann", b"a"), (b"bob", b"b"), (b"eve", b"e")]
            .map(|(user, password)| users.check(user, password).unwrap());
        users.reload(Users::parse(b"ann:a\nbob:c").unwrap());
        assert!(users.holds(ann));
        assert!(!users.holds(bob), "another password");
        assert!(!users.holds(eve), "no such user any more");
        // A user who is removed and added again gets a new id.
        users.reload(Users::parse(b"ann:a\nbob:b\neve:e").unwrap());
        assert!(users.holds(ann) && !users.holds(bob) && !users.holds(eve));
        assert_eq!(users.reloads(), 2);
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(Users::parse(b"ann:x\nbob\n").err(), Some(UsersError::Line { line: 2 }));
        assert_eq!(Users::parse(b":x").err(), Some(UsersError::Line { line: 1 }));
        assert_eq!(Users::parse(b"a:").err(), Some(UsersError::Line { line: 1 }));
        assert_eq!(Users::parse(b"\n").err(), Some(UsersError::Empty));
    }
}
