//! Certificates that are replaced while the process runs: their files are looked at, and their end is told in time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_background::{Run, Task};
use moneta_server::Certificates;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(3);
/// How long before its end a certificate is complained about.
const WARNED: Duration = Duration::from_secs(14 * DAY);
/// How often, at most.
const EVERY: Duration = Duration::from_secs(DAY);
const DAY: u64 = 86_400;

/// Looks at the files of `certificates` from now on.
///
/// # Errors
/// If the system has no thread for it.
pub fn follow(certificates: &Arc<Certificates>) -> io::Result<Task> {
    let certificates = Arc::clone(certificates);
    moneta_background::start("tls-files", move |run| look(&certificates, run))
}

fn look(certificates: &Certificates, run: &Run) {
    let mut complained: Option<(Option<u64>, Instant)> = None;
    loop {
        match certificates.refresh_if_changed() {
            Ok(true) => tracing::info!(expires = certificates.expires(), "TLS: what has changed is in force"),
            Ok(false) => {}
            // Once for each change of the files, since they are read no more often.
            Err(error) => {
                tracing::error!(%error, "TLS: what has changed cannot be used, and what was in force stays");
                run.failed(&error);
            }
        }
        let expires = certificates.expires();
        let is_said = complained.is_some_and(|(of, when)| of == expires && when.elapsed() < EVERY);
        if let Some(left) = expires.map(left).filter(|left| *left < WARNED && !is_said) {
            complained = Some((expires, Instant::now()));
            match left.is_zero() {
                true => tracing::error!(expires, "TLS: this process's certificate has expired: clients refuse it"),
                false => {
                    tracing::warn!(expires, days = left.as_secs() / DAY, "TLS: this process's certificate expires soon")
                }
            }
        }
        if !run.sleep(LOOK) {
            return;
        }
    }
}

/// Time up to a Unix second; zero when it is over.
fn left(second: u64) -> Duration {
    (UNIX_EPOCH + Duration::from_secs(second)).duration_since(SystemTime::now()).unwrap_or_default()
}
