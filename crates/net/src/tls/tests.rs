//! Both sides of TLS over loopback.

#[cfg(feature = "tokio")]
mod asynchronous;
mod files;
mod storm;
mod stream;
mod trust;

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use moneta_certificates::{Authority, Issued, Wanted};
use tempfile::TempDir;

use super::{ClientCertificates, MinVersion, PemSource, Tls, TlsAcceptor, TlsConfig, TlsConnector};
use crate::address::Address;
use crate::endpoint::{Connector, Endpoint};
use crate::host_port::HostPort;
use crate::listening::accept;
use crate::stream::Stream;
use crate::transport::Transport;

/// Nothing takes this long on a machine that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// An authority, and a process's files that it has signed.
struct Process {
    folder: TempDir,
    tls: Arc<Tls>,
}

impl Process {
    /// A process with a certificate for `localhost` and 127.0.0.1.
    fn new(authority: &mut Authority) -> Self {
        Self::with(authority, Some(&Wanted::hosts(["localhost", "127.0.0.1"])))
    }

    /// A process that believes `authority`, with a certificate of it or none.
    fn with(authority: &mut Authority, wanted: Option<&Wanted>) -> Self {
        let issued = wanted.map(|wanted| authority.issue(wanted).unwrap());
        Self::of(authority.certificate(), issued.as_ref(), None)
    }

    fn of(authorities: &str, issued: Option<&Issued>, revoked: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: Option<&str>| {
            let path = folder.path().join(name);
            if let Some(text) = text {
                fs::write(&path, text).unwrap();
            }
            text.map(|_| PemSource::File(path))
        };
        let config = TlsConfig {
            certificate: file("certificate", issued.map(|issued| issued.certificate.as_str())),
            key: file("key", issued.map(|issued| issued.key.as_str())),
            authorities: file("authorities", Some(authorities)),
            revoked: file("revoked", revoked),
            min_version: MinVersion::default(),
        };
        let tls = Tls::load(config).unwrap();
        Self { folder, tls }
    }

    /// Replaces a file as tools do that care: at once.
    fn write(&self, name: &str, text: &str) {
        let draft = self.folder.path().join("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.folder.path().join(name)).unwrap();
    }

    fn acceptor(&self, clients: ClientCertificates) -> TlsAcceptor {
        self.tls.acceptor(clients).unwrap()
    }

    fn connector(&self) -> TlsConnector {
        self.tls.connector().unwrap()
    }
}

/// Connects to `host` and gives both ends, or why there are none.
fn meet(acceptor: &TlsAcceptor, connector: &TlsConnector, host: &str) -> (io::Result<Stream>, io::Result<Stream>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Endpoint {
        connector: Connector::Tls(connector.clone()),
        ..Endpoint::new(Address::Tcp(HostPort::new(host, port))).patient(PATIENCE)
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| take(&listener, acceptor));
        let client = endpoint.connect().and_then(|mut stream| {
            // Where a client's certificate is refused, the client learns it with its first answer.
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0])?;
            Ok(stream)
        });
        (server.join().unwrap(), client)
    })
}

fn take(listener: &TcpListener, acceptor: &TlsAcceptor) -> io::Result<Stream> {
    let accepted = accepted(listener);
    let mut transport = acceptor.protect(accepted)?;
    transport.open_within(Some(PATIENCE))?;
    let mut stream = Stream::new(transport, Some(PATIENCE), None);
    stream.read_exact(&mut [0])?;
    stream.write_all(b"!")?;
    Ok(stream)
}

fn accepted(listener: &TcpListener) -> Transport {
    accept(listener).unwrap().expect("the listener waits").0
}

fn met(acceptor: &TlsAcceptor, connector: &TlsConnector) -> (Stream, Stream) {
    let (server, client) = meet(acceptor, connector, "localhost");
    (server.unwrap(), client.unwrap())
}

/// Why the two do not meet: what the server and the client say.
fn refusal(acceptor: &TlsAcceptor, connector: &TlsConnector, host: &str) -> (String, String) {
    let (server, client) = meet(acceptor, connector, host);
    let text = |end: io::Result<Stream>| end.err().map_or_else(String::new, |error| error.to_string());
    (text(server), text(client))
}
