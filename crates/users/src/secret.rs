//! Secrets as the file keeps them: never in clear.
//!
//! ```text
//!  sha256:SALT:HASH            a generated secret of 256 bits; SALT has 16 bytes, HASH is SHA-256 of salt and secret;
//!                              both in base64 of the alphabet for URLs, without padding
//!  $argon2id$v=19$m=..,t=..    a password that somebody chose, as a PHC string
//! ```
//!
//! Either may be followed by ` expires=2027-01-31T12:00:00Z`: log-ins by it fail from that time on.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a generated secret: 256 bits, which cannot be guessed however quick the hash is.
const SECRET_BYTES: usize = 32;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Longest secret, in bytes: what a client that has not logged in may send.
pub const SECRET_MAX: usize = 1024;
/// Shortest password that is taken, in bytes.
pub const PASSWORD_MIN: usize = 8;
/// The last second of the year 9999.
const END_MAX: u64 = 253_402_300_799;
/// Most that a password hash of the file may cost to check: memory in KiB, passes, lanes.
const ARGON2_MAX: (u32, u32, u32) = (256 * 1024, 16, 8);

/// What stands before the end of a secret.
const EXPIRES: &str = " expires=";

/// A secret as the file keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    kind: Kind,
    /// The Unix second at which it expires; `None`: never.
    expires: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Sha256 { salt: [u8; SALT_BYTES], hash: [u8; 32] },
    Argon2(Box<str>),
}

impl StoredSecret {
    /// Reads it as the file has it.
    ///
    /// # Errors
    /// What is wrong with it, in words that do not tell it.
    pub fn read(text: &str) -> Result<Self, String> {
        let (text, expires) = match text.split_once(EXPIRES) {
            Some((text, end)) => (text, Some(read_end(end)?)),
            None => (text, None),
        };
        Ok(Self { kind: Kind::read(text)?, expires })
    }

    /// The same with an end, a Unix second of the years up to 9999; `None`: without one.
    #[must_use]
    pub fn until(self, expires: Option<u64>) -> Self {
        Self { expires, ..self }
    }

    /// The Unix second at which it expires.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Whether its end has come at a Unix second.
    pub fn has_ended(&self, now: u64) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Whether both are the same secret, whatever their ends are.
    pub(crate) fn is_that_of(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    /// As the file has it, without its end.
    pub(crate) fn without_end(&self) -> String {
        self.kind.to_string()
    }

    /// Whether checking it takes milliseconds of processor time and megabytes of memory, so that no worker may do it.
    pub fn is_slow(&self) -> bool {
        matches!(self.kind, Kind::Argon2(_))
    }

    /// Whether `secret` is it, compared in constant time. Its end is not looked at.
    pub fn is(&self, secret: &[u8]) -> bool {
        match &self.kind {
            Kind::Sha256 { salt, hash } => sha256(salt, secret).ct_eq(hash).into(),
            Kind::Argon2(phc) => {
                PasswordHash::new(phc).is_ok_and(|hash| Argon2::default().verify_password(secret, &hash).is_ok())
            }
        }
    }
}

impl Kind {
    fn read(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("sha256:") {
            let (salt, hash) = rest.split_once(':').ok_or("it must be sha256:SALT:HASH")?;
            let salt = bytes(salt).ok_or("its salt must be 16 bytes in base64 for URLs")?;
            let hash = bytes(hash).ok_or("its hash must be 32 bytes in base64 for URLs")?;
            return Ok(Self::Sha256 { salt, hash });
        }
        if !text.starts_with("$argon2id$") {
            return Err("it must be sha256:SALT:HASH or an argon2id PHC string; `moneta user` writes both".into());
        }
        let hash = PasswordHash::new(text).map_err(|error| format!("it is no PHC string: {error}"))?;
        if hash.hash.is_none() || hash.salt.is_none() {
            return Err("it lacks its salt or its hash".into());
        }
        let params = Params::try_from(&hash).map_err(|error| format!("its parameters are no argon2id's: {error}"))?;
        let (memory, passes, lanes) = ARGON2_MAX;
        if params.m_cost() > memory || params.t_cost() > passes || params.p_cost() > lanes {
            return Err(format!("it costs more to check than m={memory},t={passes},p={lanes}"));
        }
        Ok(Self::Argon2(text.into()))
    }
}

impl fmt::Display for StoredSecret {
    /// As the file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        self.expires.map_or(Ok(()), |end| write!(f, "{EXPIRES}{}", shown_end(end)))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256 { salt, hash } => {
                write!(f, "sha256:{}:{}", URL_SAFE_NO_PAD.encode(salt), URL_SAFE_NO_PAD.encode(hash))
            }
            Self::Argon2(phc) => f.write_str(phc),
        }
    }
}

impl fmt::Debug for StoredSecret {
    /// Its kind: a hash is for the file alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_slow() { "argon2id" } else { "sha256" })
    }
}

/// Makes a secret of 256 bits: what to tell once, 43 letters, digits, `-` and `_`; and what to keep.
///
/// # Errors
/// If the system has no randomness.
pub fn generate() -> Result<(String, StoredSecret), getrandom::Error> {
    let (mut secret, mut salt) = ([0; SECRET_BYTES], [0; SALT_BYTES]);
    getrandom::fill(&mut secret)?;
    getrandom::fill(&mut salt)?;
    let secret = URL_SAFE_NO_PAD.encode(secret);
    let hash = sha256(&salt, secret.as_bytes());
    Ok((secret, Kind::Sha256 { salt, hash }.into()))
}

/// What to keep of a password that somebody chose.
///
/// # Errors
/// What is wrong with it.
pub fn of_password(password: &str) -> Result<StoredSecret, String> {
    if !(PASSWORD_MIN..=SECRET_MAX).contains(&password.len()) {
        return Err(format!("a password has {PASSWORD_MIN} to {SECRET_MAX} bytes"));
    }
    if password.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("a password has no spaces and no control characters: the text log-in could not carry it".into());
    }
    // OWASP's first choice: 19 MiB, two passes, one lane.
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default());
    let hash = argon2.hash_password(password.as_bytes()).map_err(|error| error.to_string())?;
    Ok(Kind::Argon2(hash.to_string().into()).into())
}

/// A secret of nobody, to be checked where there is no user, so that the time does not tell which names there are.
pub(crate) fn dummy(is_slow: bool) -> StoredSecret {
    // Any hash that nothing has: of argon2's default cost, as those of `moneta user`.
    const SLOW: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    if is_slow {
        Kind::Argon2(SLOW.into()).into()
    } else {
        Kind::Sha256 { salt: [0; SALT_BYTES], hash: [0; 32] }.into()
    }
}

impl From<Kind> for StoredSecret {
    fn from(kind: Kind) -> Self {
        Self { kind, expires: None }
    }
}

/// The Unix second of now.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read_end(text: &str) -> Result<u64, String> {
    let wrong = |_| "its end must be a time such as 2027-01-31T12:00:00Z".to_owned();
    let end = humantime::parse_rfc3339(text).map_err(wrong)?;
    Ok(end.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Parses when a secret expires into a Unix second: a duration from now (`90d`) or a time (`2027-01-31T12:00:00Z`).
///
/// # Errors
/// If it is neither, is over, or lies after the year 9999.
pub fn end_of(text: &str) -> Result<u64, String> {
    let end = match humantime::parse_duration(text) {
        Ok(after) => SystemTime::now().checked_add(after),
        Err(_) => humantime::parse_rfc3339(text).ok().filter(|end| *end > SystemTime::now()),
    };
    let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
    end.filter(|end| *end <= END_MAX).ok_or_else(|| "it is no time to come, such as 90d or 2027-01-31T12:00:00Z".into())
}

/// A Unix second as the file has it.
pub fn shown_end(end: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(end.min(END_MAX))).to_string()
}

fn sha256(salt: &[u8], secret: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(secret).finalize().into()
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_secret_is_known_again_and_no_other_is() {
        let ((secret, stored), (other, _)) = (generate().unwrap(), generate().unwrap());
        assert_eq!(secret.len(), 43);
        assert!(stored.is(secret.as_bytes()) && !stored.is(other.as_bytes()) && !stored.is(b"") && !stored.is_slow());
        let read = StoredSecret::read(&stored.to_string()).unwrap();
        assert!(read == stored && read.is(secret.as_bytes()));
        assert!(!format!("{stored:?} {stored}").contains(&secret));
    }

    #[test]
    fn a_password_is_known_again_and_its_like_is_not() {
        let stored = of_password("correct-horse").unwrap();
        assert!(stored.is_slow() && stored.to_string().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(stored.is(b"correct-horse") && !stored.is(b"correct-horsf"));
        assert_eq!(StoredSecret::read(&stored.to_string()), Ok(stored));
        assert!(of_password("short").is_err() && of_password("with a space").is_err());
    }

    #[test]
    fn the_secrets_of_nobody_are_read_and_fit_nothing() {
        for slow in [false, true] {
            let stored = dummy(slow);
            assert_eq!(StoredSecret::read(&stored.to_string()).as_ref(), Ok(&stored));
            assert!(!stored.is(b"") && !stored.is(b"secret"));
        }
    }

    #[test]
    fn an_end_is_kept_with_its_secret() {
        for stored in [generate().unwrap().1, of_password("correct-horse").unwrap()] {
            let ending = stored.clone().until(Some(1_800_000_000));
            assert_eq!(ending.to_string(), format!("{stored} expires=2027-01-15T08:00:00Z"));
            let read = StoredSecret::read(&ending.to_string()).unwrap();
            assert!(read == ending && read != stored && read.is_that_of(&stored));
            assert_eq!([1_799_999_999, 1_800_000_000].map(|now| read.has_ended(now)), [false, true]);
            assert!(!stored.has_ended(u64::MAX));
            for end in ["", "soon", "2027-01-15", "2027-01-15T08:00:00", "2027-01-15T08:00:00Z x"] {
                assert!(StoredSecret::read(&format!("{stored} expires={end}")).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn an_end_is_a_time_to_come() {
        let now = unix_now();
        assert!((now + 90 * 86_400..now + 90 * 86_400 + 60).contains(&end_of("90d").unwrap()));
        assert_eq!(end_of("9999-12-31T23:59:59Z"), Ok(END_MAX));
        for text in ["", "90", "2020-01-01T00:00:00Z", "9000y", "tomorrow"] {
            assert!(end_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let wrong = [
            "",
            "secret",
            "sha256:",
            "sha256:a:b",
            "sha256:AAAAAAAAAAAAAAAAAAAAAA:AAAA",
            "$argon2id$",
            "$argon2i$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAA",
            // More than a log-in may cost.
            "$argon2id$v=19$m=4194304,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA",
        ];
        for text in wrong {
            assert!(StoredSecret::read(text).is_err(), "{text}");
        }
    }
}
