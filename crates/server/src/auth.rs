//! Who may log in: the users of an ASCII authentication file (`-Y`) and of SASL PLAIN, reloadable while serving.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Whether connections have to log in, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Nobody has to.
    #[default]
    Off,
    /// The first text command is a `set` whose value is `user password`; the binary protocol is refused (`-Y`).
    Text,
    /// SASL PLAIN on the binary protocol; the text protocol is refused (`-S`).
    Sasl,
}

/// A password file that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UsersError {
    /// A line without a colon, or with nothing before or behind it.
    #[error("line {line} is not user:password")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// No user at all.
    #[error("no users")]
    Empty,
}

/// Users and passwords.
#[derive(Debug, Default)]
pub struct Users(HashMap<Vec<u8>, Vec<u8>>);

impl Users {
    /// Reads `user:password` lines; empty lines are skipped, everything behind the first colon is the password.
    ///
    /// # Errors
    /// On the first line that is not of that form, and when there is no user.
    pub fn parse(text: &[u8]) -> Result<Self, UsersError> {
        let mut users = HashMap::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
            if colon == 0 || colon + 1 == line.len() {
                return Err(UsersError::Line { line: index + 1 });
            }
            users.insert(line[..colon].to_vec(), line[colon + 1..].to_vec());
        }
        if users.is_empty() { Err(UsersError::Empty) } else { Ok(Self(users)) }
    }

    fn check(&self, user: &[u8], password: &[u8]) -> bool {
        // An unknown user is compared too, so that the time taken does not tell which names exist.
        let known = self.0.get(user);
        let expected = known.map_or(&b""[..], Vec::as_slice);
        same(expected, password) && known.is_some()
    }
}

/// Compares without stopping at the first difference; the time depends on the length of `given` only.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(expected.len() != given.len());
    for (index, byte) in given.iter().enumerate() {
        difference |= byte ^ expected.get(index).copied().unwrap_or(0);
    }
    difference == 0
}

/// Checks users; the list can be replaced while sessions use it.
#[derive(Debug, Default)]
pub struct Authenticator {
    mode: AuthMode,
    users: RwLock<Arc<Users>>,
}

impl Authenticator {
    /// Nobody has to log in.
    pub fn off() -> Self {
        Self::default()
    }

    /// Connections have to log in as one of `users`.
    pub fn new(mode: AuthMode, users: Users) -> Self {
        Self { mode, users: RwLock::new(Arc::new(users)) }
    }

    /// Whether and how connections have to log in.
    #[inline]
    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// Replaces the users; those already logged in stay so.
    pub fn reload(&self, users: Users) {
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
    }

    /// Whether `user` may log in with `password`.
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let users = Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner));
        users.check(user, password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_checked_whole() {
        let users = Authenticator::new(AuthMode::Text, Users::parse(b"ann:se:cret\r\n\nbob:x\n").unwrap());
        assert!(users.check(b"ann", b"se:cret"));
        assert!(!users.check(b"ann", b"se:cre"));
        assert!(!users.check(b"ann", b"se:cret1"));
        assert!(!users.check(b"ann", b""));
        assert!(!users.check(b"eve", b""));
        users.reload(Users::parse(b"eve:y").unwrap());
        assert!(users.check(b"eve", b"y") && !users.check(b"ann", b"se:cret"));
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(Users::parse(b"ann:x\nbob\n").err(), Some(UsersError::Line { line: 2 }));
        assert_eq!(Users::parse(b":x").err(), Some(UsersError::Line { line: 1 }));
        assert_eq!(Users::parse(b"a:").err(), Some(UsersError::Line { line: 1 }));
        assert_eq!(Users::parse(b"\n").err(), Some(UsersError::Empty));
    }
}
