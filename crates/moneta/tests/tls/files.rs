//! An authority, and files of those that it has signed.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moneta_certificates::{Authority, Issued, Wanted};
use moneta_net::{Address, Connector, Endpoint, HostPort, PemSource, Stream, Tls, TlsConfig};
use tempfile::TempDir;

use crate::common::{Node, moneta};

/// Far more than anything takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with the files of a node, and the authority that it believes.
pub struct Files {
    folder: TempDir,
    pub authority: Authority,
}

impl Files {
    /// `cert.pem`, `key.pem` for 127.0.0.1, and `ca.pem`.
    pub fn new() -> Self {
        let mut authority = Authority::new("of the test").expect("an authority");
        let issued = authority.issue(&Wanted::hosts(["127.0.0.1", "localhost"])).expect("a certificate");
        let files = Self { folder: tempfile::tempdir().expect("a folder"), authority };
        files.write("ca.pem", files.authority.certificate());
        files.replace(&issued);
        files
    }

    /// Another certificate of the node.
    pub fn replace(&self, issued: &Issued) {
        self.write("key.pem", &issued.key);
        self.write("cert.pem", &issued.certificate);
    }

    /// Replaces a file as tools do that care: at once.
    pub fn write(&self, name: &str, text: &str) {
        let draft = self.path("draft");
        fs::write(&draft, text).expect("it can be written");
        fs::rename(draft, self.path(name)).expect("it can be renamed");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as an argument.
    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary folders have plain names").into()
    }

    /// A node with TLS, and `more` arguments.
    pub fn node(&self, more: &[&str]) -> Node {
        let (certificate, key) = (self.name("cert.pem"), self.name("key.pem"));
        let with = ["--tls-cert", &certificate, "--tls-key", &key];
        Node::run(moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--admin-tls", "off"]).args(with).args(more))
    }

    /// What a client knows who believes the authority, and shows a certificate of it for `wanted` or none.
    pub fn client(&mut self, wanted: Option<&Wanted>) -> Arc<Tls> {
        let issued = wanted.map(|wanted| self.authority.issue(wanted).expect("a certificate"));
        client_of(&self.path("ca.pem"), issued.as_ref())
    }
}

/// What a client knows who believes the authorities in a file.
pub fn client_of(authorities: &Path, issued: Option<&Issued>) -> Arc<Tls> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it can be written");
        PemSource::File(path)
    };
    let config = TlsConfig {
        certificate: issued.map(|issued| file("cert.pem", &issued.certificate)),
        key: issued.map(|issued| file("key.pem", &issued.key)),
        authorities: Some(PemSource::File(authorities.into())),
        ..TlsConfig::default()
    };
    Tls::load(config).expect("the files fit")
}

/// A connection over TLS.
pub fn connect(tls: &Arc<Tls>, address: SocketAddr) -> std::io::Result<Stream> {
    let connector = Connector::Tls(tls.connector().expect("it believes somebody"));
    Endpoint { connector, ..Endpoint::new(Address::Tcp(HostPort::from(address))).patient(PATIENCE) }.connect()
}

/// Sends `requests` and reads exactly `replies`.
pub fn ask(stream: &mut (impl Read + Write), requests: &[u8], replies: &[u8]) {
    stream.write_all(requests).expect("the node reads");
    let mut read = vec![0; replies.len()];
    stream.read_exact(&mut read).expect("the node answers");
    assert!(read == replies, "{:?}", String::from_utf8_lossy(&read[..read.len().min(200)]));
}

/// The value of a metric with these labels, as `name{label="value"}`.
pub fn metric(node: &Node, name: &str) -> f64 {
    let admin = node.screen.iter().find_map(|line| line.strip_prefix("admin on     http://"));
    let admin = admin.and_then(|rest| rest.split(' ').next()).expect("the admin port is on");
    let mut stream = crate::common::connect(admin);
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("moneta_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().expect("a number")
}
