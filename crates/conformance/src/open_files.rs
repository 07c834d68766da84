//! How many files this process may open.

use anyhow::{Result, ensure};

/// Raises how many files this process may open (its children inherit it) to at least `wanted`.
///
/// # Errors
/// When the hard limit is lower and may not be raised.
pub fn allow_open_files(wanted: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    ensure!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0, "getrlimit failed");
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    limit.rlim_cur = wanted;
    limit.rlim_max = limit.rlim_max.max(wanted);
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    ensure!(result == 0, "this test needs {wanted} open files, but the hard limit is lower: raise `ulimit -Hn`");
    Ok(())
}
