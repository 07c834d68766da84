//! Files of processes that speak TLS.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use moneta_certificates::{Authority, Wanted};
use moneta_net::{Connector, PemSource, Tls, TlsConfig};

/// A certificate for 127.0.0.1 and `localhost` with its key and authority, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// The authority that has signed it.
    pub authority: PathBuf,
}

impl TlsFiles {
    /// Writes files of a new authority into `folder`.
    ///
    /// # Errors
    /// When they cannot be written, or the system has no randomness.
    pub fn write(folder: &Path) -> io::Result<Self> {
        let mut authority = Authority::new("of the test").map_err(io::Error::other)?;
        let issued = authority.issue(&Wanted::hosts(["127.0.0.1", "localhost"])).map_err(io::Error::other)?;
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map(|()| path)
        };
        let (certificate, key) = (file("cert.pem", &issued.certificate)?, file("key.pem", &issued.key)?);
        Ok(Self { certificate, key, authority: file("ca.pem", authority.certificate())? })
    }

    /// Environment of a process that serves with the certificate and believes the authority: options of every process of the
    /// family, for `Command::envs`.
    pub fn environment(&self) -> [(&'static str, &Path); 3] {
        [("MONETA_TLS_CERT", &self.certificate), ("MONETA_TLS_KEY", &self.key), ("MONETA_TLS_CA", &self.authority)]
    }

    /// What connects to such a process from the test.
    ///
    /// # Errors
    /// When the authority cannot be read.
    pub fn connector(&self) -> io::Result<Connector> {
        let authorities = Some(PemSource::File(self.authority.clone()));
        let tls = Tls::load(TlsConfig { authorities, ..TlsConfig::default() }).map_err(io::Error::other)?;
        Ok(Connector::Tls(tls.connector().map_err(io::Error::other)?))
    }
}
