//! What a connection says of itself before its first request: a user's name and secret, which may change while the process runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::address::Address;
use crate::tls::{PemSource, Stamp, TlsError};

/// Longest name of a user, and longest secret, in bytes.
const PART_MAX: usize = 1024;
/// Pause before a server that has refused a log-in is asked again, by all connections of the process together: servers refuse an
/// address that fails too often (`login_failures` of Moneta, 60 a minute), and with it those that share it.
const HOLD_OFF: Duration = Duration::from_secs(5);

/// What a connection says of itself before its first request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum LogIn {
    /// Nothing.
    #[default]
    None,
    /// A user's name and secret.
    Secret(Arc<LogInSource>),
}

impl LogIn {
    /// The name and secret that are in force; `None`: nothing is said.
    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        match self {
            Self::None => None,
            Self::Secret(source) => Some(source.credentials()),
        }
    }

    /// Changes when the secret does.
    pub fn generation(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Secret(source) => source.generation.load(Ordering::Acquire),
        }
    }

    /// Why no log-in is tried at the server at `address` now: it has refused this secret a few seconds ago. `None`: the caller may
    /// try, and others wait for what comes of it.
    pub fn held_off(&self, address: &Address) -> Option<Arc<str>> {
        match self {
            Self::None => None,
            Self::Secret(source) => source.held_off(address),
        }
    }

    /// The server at `address` has refused the log-in.
    pub fn note_refusal(&self, address: &Address, why: &str) {
        if let Self::Secret(source) = self {
            let generation = self.generation();
            let refusal = Refusal { at: Instant::now(), generation, why: why.into() };
            source.refusals.lock().insert(address.place(), refusal);
        }
    }

    /// The server at `address` has taken it.
    pub fn note_taken(&self, address: &Address) {
        if let Self::Secret(source) = self {
            source.refusals.lock().remove(&address.place());
        }
    }
}

/// A log-in that a server has refused.
#[derive(Debug)]
struct Refusal {
    at: Instant,
    /// Of the secret.
    generation: u64,
    why: Arc<str>,
}

/// From the same source.
impl PartialEq for LogIn {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Secret(one), Self::Secret(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for LogIn {}

/// A user's name and secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    secret: String,
}

impl Credentials {
    /// Reads `USER:SECRET`, one line.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(text: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(text).map_err(|_| "it is no UTF-8")?;
        let (user, secret) = text.trim().split_once(':').ok_or("it has no line USER:SECRET")?;
        let fits = |part: &str| (1..=PART_MAX).contains(&part.len()) && !part.contains(char::is_control);
        if !fits(user) || user.contains(' ') {
            return Err("the user's name has 1 to 1024 bytes and no space");
        }
        if !fits(secret) {
            return Err("the secret has 1 to 1024 bytes and one line");
        }
        Ok(Self { user: user.to_owned(), secret: secret.to_owned() })
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The user's secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The value of HTTP's header `Authorization`: a bearer token, `USER:SECRET`.
    pub fn authorization(&self) -> String {
        format!("Bearer {}:{}", self.user, self.secret)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a user's name and secret are read. New connections use those that were read last.
pub struct LogInSource {
    source: PemSource,
    credentials: RwLock<Arc<Credentials>>,
    /// How the file looked before it was read last.
    stamp: Mutex<Option<Stamp>>,
    generation: AtomicU64,
    /// By server; as many as the process connects to, at most.
    refusals: Mutex<HashMap<Address, Refusal>>,
}

impl LogInSource {
    /// Reads them.
    ///
    /// # Errors
    /// When they cannot be read, or are no line `USER:SECRET`.
    pub fn load(source: PemSource) -> Result<Arc<Self>, TlsError> {
        let stamp = Mutex::new(source.stamp());
        let credentials = RwLock::new(Arc::new(read(&source)?));
        Ok(Arc::new(Self { source, credentials, stamp, generation: AtomicU64::new(1), refusals: Mutex::default() }))
    }

    /// Reads them again; true if they are others than before.
    ///
    /// # Errors
    /// Those of [`LogInSource::load`]; what is in force stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.read().map(|read| self.put(read))
    }

    /// Reads them again, without effect yet.
    ///
    /// # Errors
    /// Those of [`LogInSource::load`].
    pub fn read(&self) -> Result<Credentials, TlsError> {
        *self.stamp.lock() = self.source.stamp();
        read(&self.source)
    }

    /// Puts in force what was read; true if it differs from before.
    pub fn put(&self, read: Credentials) -> bool {
        let mut credentials = self.credentials.write();
        if **credentials == read {
            return false;
        }
        *credentials = Arc::new(read);
        drop(credentials);
        // After the secret: who sees the new number sees it.
        self.generation.fetch_add(1, Ordering::Release);
        true
    }

    /// The same if the file looks different from when it was read last; a command is not run.
    ///
    /// # Errors
    /// Those of [`LogInSource::load`].
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        if self.source.stamp() == *self.stamp.lock() { Ok(false) } else { self.reload() }
    }

    fn held_off(&self, address: &Address) -> Option<Arc<str>> {
        let mut refusals = self.refusals.lock();
        if refusals.is_empty() {
            return None;
        }
        let refusal = refusals.get_mut(&address.place())?;
        let (now, generation) = (Instant::now(), self.generation.load(Ordering::Acquire));
        if refusal.generation == generation && now.saturating_duration_since(refusal.at) < HOLD_OFF {
            return Some(Arc::clone(&refusal.why));
        }
        // One tries; the others wait.
        (refusal.at, refusal.generation) = (now, generation);
        None
    }

    /// What is in force.
    pub fn credentials(&self) -> Arc<Credentials> {
        Arc::clone(&self.credentials.read())
    }
}

impl fmt::Debug for LogInSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogInSource").field("source", &self.source).finish_non_exhaustive()
    }
}

fn read(source: &PemSource) -> Result<Credentials, TlsError> {
    Credentials::read(&source.read()?).map_err(|why| TlsError::new(source, why))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_is_a_user_and_a_secret_that_is_not_shown() {
        let read = Credentials::read(b"proxy:a:b c\n").unwrap();
        assert_eq!(
            (read.user(), read.secret(), read.authorization().as_str()),
            ("proxy", "a:b c", "Bearer proxy:a:b c")
        );
        assert!(!format!("{read:?}").contains("a:b"));
        for text in [&b"proxy"[..], b":secret", b"proxy:", b"a b:secret", b"a:b\nc:d", b"\xff:a"] {
            assert!(Credentials::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_server_that_refuses_is_asked_again_by_one_alone_or_with_another_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("login");
        fs::write(&path, "proxy:one").unwrap();
        let source = LogInSource::load(PemSource::File(path.clone())).unwrap();
        let log_in = LogIn::Secret(Arc::clone(&source));
        let [node, other]: [Address; 2] = ["a:1", "b:1"].map(|text| text.parse().unwrap());
        assert_eq!(log_in.held_off(&node), None);
        log_in.note_refusal(&node, "no such user");
        let same_place: Address = "tls:a:1".parse().unwrap();
        assert_eq!(log_in.held_off(&same_place).as_deref(), Some("no such user"));
        assert_eq!(log_in.held_off(&other), None);
        fs::write(&path, "proxy:second").unwrap();
        assert_eq!(source.reload(), Ok(true));
        assert_eq!(log_in.held_off(&node), None, "another secret");
        assert!(log_in.held_off(&node).is_some(), "one tries, the next waits for it");
        log_in.note_taken(&node);
        assert_eq!(log_in.held_off(&node), None);
    }

    #[test]
    fn a_secret_that_changes_is_read_again_and_a_broken_file_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("login"), folder.path().join("draft"));
        let write = |text: &str| {
            fs::write(&draft, text).unwrap();
            fs::rename(&draft, &path).unwrap();
        };
        write("proxy:one");
        let source = LogInSource::load(PemSource::File(path.clone())).unwrap();
        let log_in = LogIn::Secret(Arc::clone(&source));
        let before = log_in.generation();
        assert_eq!(source.reload_if_changed(), Ok(false));
        write("proxy:two");
        assert_eq!(source.reload_if_changed(), Ok(true));
        assert_eq!(log_in.credentials().unwrap().secret(), "two");
        assert_ne!(log_in.generation(), before);
        write("proxy");
        assert!(source.reload_if_changed().is_err());
        assert_eq!(source.reload_if_changed(), Ok(false));
        assert_eq!(log_in.credentials().unwrap().secret(), "two");
    }
}
