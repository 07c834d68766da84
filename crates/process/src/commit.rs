//! What this program was built from.

/// The commit, as `make install`, `make deb` and `make release` tell it to the compiler (`MONETA_COMMIT`); `unknown` elsewhere, so
/// that a commit does not have everything built anew.
pub const COMMIT: &str = match option_env!("MONETA_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// A version with the commit, where that is known: `0.1.0 (1d66bfa0)`.
pub fn with_commit(version: &str) -> String {
    if COMMIT == "unknown" { version.to_owned() } else { format!("{version} ({COMMIT})") }
}
