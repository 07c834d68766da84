//! What is tried again as a whole.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use crate::failure;

/// Tries of what failed in the midst of its answer, or of a creation whose outcome is not known.
pub(crate) const TRIES_WHOLE: u32 = 5;
/// Pause between these.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);

/// The same again, where an answer broke off: `object_store` tries again what fails before its answer begins.
pub(crate) fn tried<T>(mut call: impl FnMut() -> object_store::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        tries += 1;
        match call() {
            Ok(done) => return Ok(done),
            Err(error @ Error::Generic { .. }) if tries < TRIES_WHOLE && broke_off(&error) => sleep(PAUSE),
            Err(error) => return Err(failure::of(error)),
        }
    }
}

/// Whether there was a connection at least: that none could be made was tried often enough, and a certificate that is not believed
/// stays so.
fn broke_off(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return !matches!(error.kind(), HttpErrorKind::Connect | HttpErrorKind::Unknown);
        }
        cause = error.source();
    }
    true
}
