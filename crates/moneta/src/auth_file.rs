//! The file of users of `-Y`, which is read at the start and again on SIGHUP.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use moneta_server::auth;

/// Reads the users of a file.
///
/// # Errors
/// If it cannot be read, if others than its owner may write it, or if it holds something else than `user:password` lines.
pub fn read(path: &Path) -> anyhow::Result<auth::Users> {
    let name = path.display();
    check_mode(path)?;
    let text = std::fs::read(path).with_context(|| format!("auth_file: `{name}` cannot be read"))?;
    auth::Users::parse(&text).with_context(|| format!("auth_file: `{name}` is refused"))
}

/// Refuses a file in which others can make themselves users, and warns of one whose passwords everybody can read.
fn check_mode(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("auth_file: `{name}` cannot be read"))?;
    let mode = metadata.mode() & 0o777;
    anyhow::ensure!(
        mode & 0o022 == 0,
        "auth_file: `{name}` is refused: its mode is {mode:o}, so others than its owner may write it; `chmod 600` it"
    );
    if mode & 0o004 != 0 {
        tracing::warn!(file = %name, mode = format!("{mode:o}"), "auth_file: everybody can read the passwords; chmod 600 it");
    }
    Ok(())
}
