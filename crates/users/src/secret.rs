//! Secrets as the file keeps them: never in clear.
//!
//! ```text
//!  sha256:SALT:HASH            a generated secret of 256 bits; SALT has 16 bytes, HASH is SHA-256 of salt and secret;
//!                              both in base64 of the alphabet for URLs, without padding
//!  $argon2id$v=19$m=..,t=..    a password that somebody chose, as a PHC string
//! ```

use std::fmt;

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
/// Most that a password hash of the file may cost to check: memory in KiB, passes, lanes.
const ARGON2_MAX: (u32, u32, u32) = (256 * 1024, 16, 8);

/// A secret as the file keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret(Kind);

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
        if let Some(rest) = text.strip_prefix("sha256:") {
            let (salt, hash) = rest.split_once(':').ok_or("it must be sha256:SALT:HASH")?;
            let salt = bytes(salt).ok_or("its salt must be 16 bytes in base64 for URLs")?;
            let hash = bytes(hash).ok_or("its hash must be 32 bytes in base64 for URLs")?;
            return Ok(Self(Kind::Sha256 { salt, hash }));
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
        Ok(Self(Kind::Argon2(text.into())))
    }

    /// Whether checking it takes milliseconds of processor time and megabytes of memory, so that no worker may do it.
    pub fn is_slow(&self) -> bool {
        matches!(self.0, Kind::Argon2(_))
    }

    /// Whether `secret` is it, compared in constant time.
    pub fn is(&self, secret: &[u8]) -> bool {
        match &self.0 {
            Kind::Sha256 { salt, hash } => sha256(salt, secret).ct_eq(hash).into(),
            Kind::Argon2(phc) => {
                PasswordHash::new(phc).is_ok_and(|hash| Argon2::default().verify_password(secret, &hash).is_ok())
            }
        }
    }
}

impl fmt::Display for StoredSecret {
    /// As the file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Sha256 { salt, hash } => {
                write!(f, "sha256:{}:{}", URL_SAFE_NO_PAD.encode(salt), URL_SAFE_NO_PAD.encode(hash))
            }
            Kind::Argon2(phc) => f.write_str(phc),
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
    Ok((secret, StoredSecret(Kind::Sha256 { salt, hash })))
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
    Ok(StoredSecret(Kind::Argon2(hash.to_string().into())))
}

/// A secret of nobody, to be checked where there is no user, so that the time does not tell which names there are.
pub(crate) fn dummy(is_slow: bool) -> StoredSecret {
    // Any hash that nothing has: of argon2's default cost, as those of `moneta user`.
    const SLOW: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    StoredSecret(if is_slow {
        Kind::Argon2(SLOW.into())
    } else {
        Kind::Sha256 { salt: [0; SALT_BYTES], hash: [0; 32] }
    })
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
