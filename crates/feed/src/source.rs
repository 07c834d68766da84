//! Where changes come from.

use moneta_client::wire::blocking::DialogueError;
use moneta_store::Version;

use crate::mark::Line;
use crate::request::Begin;

/// Tells changes from a place on. Over HTTP, on the memcached port, from SSD regions: to its reader all are alike.
pub trait Source {
    /// Begins to read at a place; what was read before is dropped. Waits until the source answers. `rate`: as of
    /// [`Source::set_rate`].
    ///
    /// # Errors
    /// That it does not, or will not.
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError>;

    /// What comes next, if it is there. Does not wait.
    ///
    /// # Errors
    /// When the feed breaks off: it is to be begun again.
    fn next(&mut self) -> Result<Next, SourceError>;

    /// Whether [`Source::wait`] would find something at once, as far as is known.
    fn is_ready(&self) -> bool {
        false
    }

    /// Waits for so many bytes, as [`Next::Lacking`] said. Sources that follow return within seconds, also where nothing changes.
    ///
    /// # Errors
    /// As [`Source::next`].
    fn wait(&mut self, bytes: usize) -> Result<(), SourceError>;

    /// Bounds what it sends from now on, in bytes a second; 0: as fast as it goes. False if it cannot.
    ///
    /// # Errors
    /// As [`Source::next`].
    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        (**self).begin(from, rate)
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        (**self).next()
    }

    fn is_ready(&self) -> bool {
        (**self).is_ready()
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        (**self).wait(bytes)
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        (**self).set_rate(rate)
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// This.
    Line(Line),
    /// A key was given a value over the reader's limit, which is passed over: what the key held before this version is gone.
    Oversized {
        /// The key.
        key: bytes::Bytes,
        /// The item's.
        version: Version,
    },
    /// So many bytes have to come first, at least.
    Lacking(usize),
}

/// Why a source does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It is not there, or not ready: the same may succeed later.
    #[error("{0}")]
    Away(String),
    /// What it has was changed: checksums do not hold, or a part is missing.
    #[error("{0}")]
    Damaged(String),
    /// It refuses, or is something else.
    #[error("{0}")]
    Refused(String),
}

impl From<DialogueError> for SourceError {
    fn from(error: DialogueError) -> Self {
        match error {
            // It starts, has too many readers, or a secret is being replaced.
            DialogueError::Io(_) | DialogueError::Refused(_) | DialogueError::LogIn(_) | DialogueError::Busy => {
                Self::Away(error.to_string())
            }
            _ => Self::Refused(error.to_string()),
        }
    }
}

impl From<std::io::Error> for SourceError {
    fn from(error: std::io::Error) -> Self {
        DialogueError::Io(error).into()
    }
}
