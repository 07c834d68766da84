//! The names of a certificate that was verified.

/// The names in the subject alternative name of a verified certificate, as they stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// URIs, as those of SPIFFE.
    pub uris: Vec<String>,
}

impl CertificateNames {
    /// All of them, in the order of the fields.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.dns.iter().chain(&self.uris).map(String::as_str)
    }
}
