//! What is tried again as a whole.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use object_store::Error;

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
            Err(Error::Generic { .. }) if tries < TRIES_WHOLE => sleep(PAUSE),
            Err(error) => return Err(failure::of(error)),
        }
    }
}
