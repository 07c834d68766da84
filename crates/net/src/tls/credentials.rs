//! What a process knows for TLS: read at the start, and again while it runs.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::config::TlsConfig;
use super::error::TlsError;
use super::loaded::Loaded;
use super::source::Stamp;

/// What a process knows for TLS. New connections use what was applied last; open ones go on with what they began with.
pub struct Tls {
    config: TlsConfig,
    loaded: RwLock<Arc<Loaded>>,
    /// How the files looked before they were read last.
    stamps: Mutex<[Option<Stamp>; 4]>,
}

/// What was read anew, whole and usable, and is not in force yet.
pub struct PreparedTls(Loaded);

impl Tls {
    /// Reads all that is given.
    ///
    /// # Errors
    /// When something cannot be read, is no PEM, or does not fit: a key to its certificate, a certificate without a key.
    pub fn load(config: TlsConfig) -> Result<Arc<Self>, TlsError> {
        let stamps = config.stamps();
        let loaded = Loaded::read(&config, None)?;
        Ok(Arc::new(Self { config, loaded: RwLock::new(Arc::new(loaded)), stamps: Mutex::new(stamps) }))
    }

    /// Reads all again, without effect yet.
    ///
    /// # Errors
    /// Those of [`Tls::load`]; what is in force stays.
    pub fn prepare(&self) -> Result<PreparedTls, TlsError> {
        let stamps = self.config.stamps();
        let prepared = Loaded::read(&self.config, Some(&self.loaded()));
        // A set of files that does not fit is not read again before one of them changes.
        *self.stamps.lock() = stamps;
        prepared.map(PreparedTls)
    }

    /// The same if a file looks different from when it was read last; commands are not run.
    ///
    /// # Errors
    /// Those of [`Tls::load`].
    pub fn prepare_if_changed(&self) -> Result<Option<PreparedTls>, TlsError> {
        if self.config.stamps() == *self.stamps.lock() {
            return Ok(None);
        }
        self.prepare().map(Some)
    }

    /// Puts in force what was prepared. Tickets that clients hold stay good unless whom this process believes has changed.
    pub fn apply(&self, prepared: PreparedTls) {
        *self.loaded.write() = Arc::new(prepared.0);
    }

    /// The Unix second up to which this process's certificate holds; none if it has none.
    pub fn expires(&self) -> Option<u64> {
        self.loaded().expires()
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("config", &self.config).finish_non_exhaustive()
    }
}
