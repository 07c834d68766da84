//! What a test wants from a server, and the command line that asks for it.
//!
//! The two servers share most of memcached's letters; where they differ, they differ here and nowhere else.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use moneta_certificates::{Authority, Wanted};
use moneta_net::{Connector, PemSource, Tls, TlsConfig};

/// Which server a test runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Debian's memcached, the reference.
    Memcached,
    /// The server this workspace builds.
    Moneta,
}

/// Wishes for a server. Everything unset is left to the server's own default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-m`: memory for items, MiB.
    pub memory_mebibytes: Option<u32>,
    /// `-t`: worker threads.
    pub threads: Option<u32>,
    /// `-c`: how many connections may be open at once.
    pub max_connections: Option<u32>,
    /// `-I`: the largest item, KiB.
    pub item_kibibytes: Option<u32>,
    /// `-A`: the `shutdown` command is allowed.
    pub shutdown_command: bool,
    /// `-M`: refuse to store when full, rather than evict.
    pub refuse_when_full: bool,
    /// `-Y`: a file of `user:password` lines for the text protocol.
    pub auth_file: Option<PathBuf>,
    /// `-S`: SASL on the binary protocol, with this file of `user:password` lines.
    pub sasl_file: Option<PathBuf>,
    /// `-s` and `-a`: a Unix socket and its octal mode, in place of TCP.
    pub unix_socket: Option<(PathBuf, String)>,
    /// TLS, with these files.
    pub tls: Option<TlsFiles>,
    /// What clients log in by: its file and flag are among the other options.
    pub log_in: Option<LogIn>,
    /// Nothing but commands touches items: memcached's background threads hold items for moments, and what `decr` leaves
    /// (padded or shorter) depends on whether one does.
    pub no_background_work: bool,
    /// Seconds of silence after which a connection is closed.
    pub idle_timeout_seconds: Option<u32>,
    /// A folder for an SSD tier, with clients on the batch port and nothing brought into RAM: every item is on SSD only.
    /// memcached serves from RAM all the same.
    pub only_on_ssd: Option<PathBuf>,
    /// Moneta's tiers, as arguments ([`crate::stacks`]); memcached has none.
    pub tiers: Vec<OsString>,
}

/// What a client logs in by.
#[derive(Clone, Debug)]
pub struct LogIn {
    /// The user.
    pub name: String,
    /// Its secret or password.
    pub secret: String,
}

/// Files of a server with TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Its certificate, for 127.0.0.1.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// The authority that has signed it.
    pub authority: PathBuf,
    /// A certificate of a client, [`CLIENT`].
    pub of_client: PathBuf,
    /// The key of that.
    pub key_of_client: PathBuf,
}

/// The name in a client's certificate.
pub const CLIENT: &str = "client.example";

impl TlsFiles {
    /// Writes files of a new authority into `folder`.
    ///
    /// # Errors
    /// When they cannot be written, or the system has no randomness.
    pub fn write(folder: &Path) -> Result<Self> {
        let mut authority = Authority::new("of the comparison")?;
        let issued = authority.issue(&Wanted::hosts(["127.0.0.1"]))?;
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text)?;
            Ok(path)
        };
        let (certificate, key) = (file("cert.pem", &issued.certificate)?, file("key.pem", &issued.key)?);
        let client = authority.issue(&Wanted::hosts([CLIENT]))?;
        Ok(Self {
            certificate,
            key,
            authority: file("ca.pem", authority.certificate())?,
            of_client: file("client.pem", &client.certificate)?,
            key_of_client: file("client.key", &client.key)?,
        })
    }

    /// What connects to such a server.
    ///
    /// # Errors
    /// When the authority cannot be read.
    pub fn connector(&self) -> Result<Connector> {
        let authorities = Some(PemSource::File(self.authority.clone()));
        let tls = Tls::load(TlsConfig { authorities, ..TlsConfig::default() })?;
        Ok(Connector::Tls(tls.connector()?))
    }

    /// The same, which shows the client's certificate.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn known(&self) -> Result<Connector> {
        let [authorities, certificate, key] =
            [&self.authority, &self.of_client, &self.key_of_client].map(|path| Some(PemSource::File(path.clone())));
        let tls = Tls::load(TlsConfig { authorities, certificate, key, ..TlsConfig::default() })?;
        Ok(Connector::Tls(tls.connector()?))
    }
}

/// Size of an SSD tier: more than any test writes.
const SSD_TIER: &str = "512m";

impl Options {
    /// The arguments for `kind`, listening on 127.0.0.1 at `port` unless a Unix socket is wished for.
    pub fn arguments(&self, kind: Kind, port: u16) -> Vec<OsString> {
        let mut line = Line::default();
        match kind {
            Kind::Memcached => line.add("-u").add("root").add("-U").add("0"),
            Kind::Moneta => line.add("serve").add("--admin").add("off"),
        };
        match &self.unix_socket {
            Some((path, mode)) => line.add("-s").add(path).add("-a").add(mode),
            None if kind == Kind::Moneta && self.only_on_ssd.is_some() => {
                line.add("-p").add("0").add("--batch-port").add(port.to_string()).add("-l").add("127.0.0.1")
            }
            None => line.add("-p").add(port.to_string()).add("-l").add("127.0.0.1"),
        };
        if let Some(folder) = self.only_on_ssd.as_ref().filter(|_| kind == Kind::Moneta) {
            line.add("--flash").add(format!("{}:{SSD_TIER}", folder.display())).add("--promote").add("0%");
        }
        if kind == Kind::Moneta {
            line.arguments.extend(self.tiers.iter().cloned());
        }
        line.option("-m", self.memory_mebibytes)
            .option("-t", self.threads)
            .option("-c", self.max_connections)
            .flag("-A", self.shutdown_command)
            .flag("-M", self.refuse_when_full);
        if let Some(kibibytes) = self.item_kibibytes {
            line.add("-I").add(format!("{kibibytes}k"));
            // memcached refuses to start when a slab chunk, 512 KiB by default, could be larger than an item; in bytes.
            if kind == Kind::Memcached && kibibytes < 512 {
                line.add("-o").add(format!("slab_chunk_max={}", kibibytes * 1024));
            }
        }
        if self.no_background_work && kind == Kind::Memcached {
            line.add("-o").add("no_lru_maintainer,no_lru_crawler");
        }
        if let Some(path) = &self.auth_file {
            line.add("-Y").add(path);
        }
        if let Some(TlsFiles { certificate, key, .. }) = &self.tls {
            let files = format!("ssl_chain_cert={},ssl_key={}", certificate.display(), key.display());
            line.add("-Z").add("-o").add(files);
        }
        if let Some(path) = &self.sasl_file {
            line.add("-S");
            if kind == Kind::Moneta {
                line.add("-Y").add(path);
            }
        }
        if let Some(seconds) = self.idle_timeout_seconds {
            match kind {
                Kind::Memcached => line.add("-o").add(format!("idle_timeout={seconds}")),
                Kind::Moneta => line.add("--idle-timeout").add(seconds.to_string()),
            };
        }
        line.arguments
    }
}

/// A command line under construction.
#[derive(Default)]
struct Line {
    arguments: Vec<OsString>,
}

impl Line {
    fn add(&mut self, argument: impl Into<OsString>) -> &mut Self {
        self.arguments.push(argument.into());
        self
    }

    fn option(&mut self, name: &str, value: Option<u32>) -> &mut Self {
        match value {
            Some(value) => self.add(name).add(value.to_string()),
            None => self,
        }
    }

    fn flag(&mut self, name: &str, wanted: bool) -> &mut Self {
        if wanted { self.add(name) } else { self }
    }
}
