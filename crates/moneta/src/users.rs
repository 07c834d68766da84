//! The file of users: read at the start and again on SIGHUP.

use std::path::Path;

use anyhow::Context;
use moneta_server::auth::{AuthMode, Authenticator, Users};

use crate::options::settings::Settings;

/// Reads the users of a file.
///
/// # Errors
/// If it cannot be read, or holds something else than `user:password` lines.
pub fn read(path: &Path) -> anyhow::Result<Users> {
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("auth_file: `{name}` cannot be read"))?;
    Users::parse(&text).with_context(|| format!("auth_file: `{name}` is refused"))
}

/// Who may log in, and how, as `settings` say.
///
/// # Errors
/// As [`read`].
pub fn authenticator(settings: &Settings) -> anyhow::Result<Authenticator> {
    let Some(path) = &settings.auth_file else { return Ok(Authenticator::off()) };
    let mode = if settings.sasl { AuthMode::Sasl } else { AuthMode::Text };
    Ok(Authenticator::new(mode, read(path)?))
}
