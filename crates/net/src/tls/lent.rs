//! TLS for a library that makes its connections itself, and by `rustls`, too.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use super::connector::TlsConnector;
use super::error::TlsError;

/// What protects such connections, for those who hand it on and name neither side's type. Two are equal if nothing was read anew
/// between them.
#[derive(Clone)]
pub struct LentTls(Arc<ClientConfig>);

impl TlsConnector {
    /// The configuration in force now. One that was lent before does not change: its holder compares both.
    ///
    /// # Errors
    /// When there is no authority to believe.
    pub fn lent(&self) -> Result<LentTls, TlsError> {
        self.connecting().map(LentTls).map_err(|error| TlsError::new("TLS to servers", error))
    }
}

impl From<LentTls> for Arc<ClientConfig> {
    fn from(lent: LentTls) -> Self {
        lent.0
    }
}

impl PartialEq for LentTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LentTls {}

impl fmt::Debug for LentTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LentTls")
    }
}
