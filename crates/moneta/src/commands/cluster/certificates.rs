//! Certificates of a cluster for trying: an authority of its own, whose key lies beside what it signs, one certificate for each
//! process, one for clients and one for the operator.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use moneta_certificates::{Authority, Wanted};
use moneta_net::{Connector, LogIn, Outward, PemSource, Tls, TlsConfig};

use super::plan::{CONTROL, HOST, Plan, Process};
use super::{private, users};

/// The folder with all of them, in that of the cluster.
const FOLDER: &str = "tls";
/// The authority's certificate.
const AUTHORITY: &str = "ca";

/// Where certificates and keys of a cluster lie.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Those of the cluster in `dir`.
    pub fn of(dir: &Path) -> Self {
        Self(dir.join(FOLDER))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Makes all that a plan needs.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn make(&self, plan: &Plan) -> anyhow::Result<()> {
        fs::create_dir_all(&self.0).with_context(|| self.0.display().to_string())?;
        let mut authority = Authority::new("moneta cluster")?;
        let names = plan.processes.iter().map(|process| process.name.as_str());
        for name in names.chain([CONTROL, users::APP, users::OPERATOR]) {
            let issued = authority.issue(&Wanted::hosts([name, HOST, "localhost"]))?;
            private::write(&self.certificate(name), &issued.certificate)?;
            private::write(&self.key(name), &issued.key)?;
        }
        private::write(&self.key(AUTHORITY), authority.key())?;
        private::write(&self.authority(), authority.certificate())
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.certificate(AUTHORITY)
    }

    /// The certificate of a process or a client.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pem"))
    }

    /// Its key.
    pub fn key(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.key"))
    }

    /// The options of a process: it shows its certificate to all, and nodes let in those alone who show one. Clients of a proxy may
    /// log in by a secret instead.
    pub fn options(&self, process: &Process) -> Vec<OsString> {
        let clients = if process.proxy { "ask" } else { "require" };
        self.shown(&process.name, clients)
    }

    /// The options of the control plane, which lets in those alone who show a certificate.
    pub fn of_control(&self) -> Vec<OsString> {
        self.shown(CONTROL, "require")
    }

    fn shown(&self, name: &str, clients: &str) -> Vec<OsString> {
        let files =
            [("--tls-cert", self.certificate(name)), ("--tls-key", self.key(name)), ("--tls-ca", self.authority())];
        let files = files.into_iter().flat_map(|(flag, path)| [OsString::from(flag), path.into_os_string()]);
        files.chain(["--tls-clients", clients].map(OsString::from)).collect()
    }

    /// How the operator's commands reach the processes.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn operator(&self) -> anyhow::Result<Outward> {
        let tls = Tls::load(TlsConfig {
            certificate: Some(PemSource::File(self.certificate(users::OPERATOR))),
            key: Some(PemSource::File(self.key(users::OPERATOR))),
            authorities: Some(PemSource::File(self.authority())),
            ..TlsConfig::default()
        })?;
        Ok(Outward { connector: Connector::Tls(tls.connector()?), log_in: LogIn::None })
    }
}
