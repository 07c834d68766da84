//! Who is logged in with a browser, and tokens that show that a request was made by one of the console's pages.
//!
//! A session is a random word in a cookie that no script reads and that pages of elsewhere do not send along. It ends after half a
//! day, with the process, or when its user's secret is no user's any more. Every form has a token of its session; where there are no
//! users, of the process. A page of elsewhere can make a browser send a form, but not read the token.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use moneta_users::{LoggedIn, Users};
use parking_lot::Mutex;

/// The cookie's name.
pub const COOKIE: &str = "moneta_session";
/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; the oldest ends for one more.
const MOST: usize = 1_024;
/// The longest cookie header that is looked through, in bytes.
const COOKIES_MAX: usize = 8 << 10;

/// All sessions of a process.
pub struct Sessions {
    sessions: Mutex<HashMap<String, Session>>,
    /// The token of forms where there are no users.
    token: String,
}

#[derive(Clone)]
struct Session {
    user: LoggedIn,
    token: String,
    begun: Instant,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// None yet.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new() -> Result<Self, getrandom::Error> {
        Ok(Self { sessions: Mutex::default(), token: word()? })
    }

    /// Begins a session; returns the word for its cookie.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn begin(&self, user: LoggedIn) -> Result<String, getrandom::Error> {
        let (name, token) = (word()?, word()?);
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| session.begun.elapsed() < LASTS);
        while sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.begun).map(|(name, _)| name.clone());
            oldest.map(|name| sessions.remove(&name));
        }
        sessions.insert(name.clone(), Session { user, token, begun: Instant::now() });
        Ok(name)
    }

    /// Ends the session of a cookie header.
    pub fn end(&self, cookies: &[u8]) {
        if let Some(name) = session_word(cookies) {
            self.sessions.lock().remove(name);
        }
    }

    /// The user of a cookie header, as users are now.
    pub fn user(&self, users: &Users, cookies: &[u8]) -> Option<LoggedIn> {
        let session = self.session(cookies)?;
        if session.user.generation() == users.generation() {
            return Some(session.user);
        }
        let renewed = users.renew(&session.user);
        let mut sessions = self.sessions.lock();
        let name = session_word(cookies)?;
        match &renewed {
            Some(renewed) => {
                if let Some(session) = sessions.get_mut(name) {
                    session.user = renewed.clone();
                }
            }
            None => drop(sessions.remove(name)),
        }
        renewed
    }

    /// The token that forms of a page have that is sent to who has this cookie header.
    pub fn token(&self, cookies: &[u8]) -> String {
        self.session(cookies).map_or_else(|| self.token.clone(), |session| session.token)
    }

    /// Whether a form has the right token.
    pub fn is_token(&self, cookies: &[u8], token: &str) -> bool {
        let wanted = self.token(cookies);
        // The same time, whatever differs.
        let differs = wanted.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        wanted.len() == token.len() && differs == 0
    }

    fn session(&self, cookies: &[u8]) -> Option<Session> {
        let name = session_word(cookies)?;
        let session = self.sessions.lock().get(name).cloned()?;
        (session.begun.elapsed() < LASTS).then_some(session)
    }
}

/// The word of the session's cookie in a cookie header.
fn session_word(cookies: &[u8]) -> Option<&str> {
    let cookies = std::str::from_utf8(cookies).ok().filter(|cookies| cookies.len() <= COOKIES_MAX)?;
    cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// 128 random bits.
fn word() -> Result<String, getrandom::Error> {
    Ok(format!("{:016x}{:016x}", getrandom::u64()?, getrandom::u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use moneta_users::{Checked, Roster, secret};

    fn users(text: &str) -> std::sync::Arc<Users> {
        Users::of(Roster::parse(text).unwrap())
    }

    #[test]
    fn a_session_is_its_users_until_that_has_another_secret() {
        let (first, stored) = secret::generate().unwrap();
        let file = |stored: &secret::StoredSecret| {
            format!("[[user]]\nname = \"ann\"\nsecrets = [\"{stored}\"]\nrights = [\"stats\"]\n")
        };
        let users = users(&file(&stored));
        let Checked::Right(ann) = users.by_secret(b"ann", first.as_bytes()) else { panic!("the secret is right") };
        let sessions = Sessions::new().unwrap();
        let cookie = format!("a=b; {COOKIE}={}", sessions.begin(ann).unwrap());
        assert_eq!(sessions.user(&users, cookie.as_bytes()).unwrap().user().name(), "ann");
        let token = sessions.token(cookie.as_bytes());
        assert!(sessions.is_token(cookie.as_bytes(), &token));
        assert!(!sessions.is_token(b"", &token) && !sessions.is_token(cookie.as_bytes(), ""), "of another session");
        assert!(sessions.user(&users, b"moneta_session=0").is_none());
        let (_, other) = secret::generate().unwrap();
        users.replace(Roster::parse(&file(&other)).unwrap());
        assert!(sessions.user(&users, cookie.as_bytes()).is_none(), "the secret is no user's any more");
    }

    #[test]
    fn sessions_have_a_bound() {
        let (text, stored) = secret::generate().unwrap();
        let users = users(&format!("[[user]]\nname = \"ann\"\nsecrets = [\"{stored}\"]\nrights = [\"stats\"]\n"));
        let sessions = Sessions::new().unwrap();
        let begin = || {
            let Checked::Right(ann) = users.by_secret(b"ann", text.as_bytes()) else { panic!("the secret is right") };
            format!("{COOKIE}={}", sessions.begin(ann).unwrap())
        };
        let first = begin();
        let last = (0..MOST).fold(String::new(), |_, _| begin());
        assert!(sessions.user(&users, first.as_bytes()).is_none() && sessions.user(&users, last.as_bytes()).is_some());
        sessions.end(last.as_bytes());
        assert!(sessions.user(&users, last.as_bytes()).is_none());
    }
}
