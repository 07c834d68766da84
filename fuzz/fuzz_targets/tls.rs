//! Any bytes to an accepted connection with TLS: in place of a client's handshake, behind its first message, or behind one that was
//! done and what was enciphered after it. It ends or waits for more, what it holds is bounded, and what was enciphered comes out
//! whole. The first byte says which of the three, the second how much is enciphered, the third how long the pieces are.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use moneta_certificates::{Authority, Wanted};
use moneta_net::{
    Address, ClientCertificates, Connector, Endpoint, HostPort, Opening, PemSource, Received, Tls, TlsAcceptor,
    TlsConfig, Transport, accept,
};

/// More than a connection may hold: two records, what the caller had no room for, and a handshake.
const HELD_MAX: usize = 512 * 1024;
/// More calls than any input takes.
const CALLS_MAX: usize = 100_000;

struct Both {
    acceptor: TlsAcceptor,
    connector: Connector,
    listener: TcpListener,
}

fn both() -> &'static Both {
    static BOTH: OnceLock<Both> = OnceLock::new();
    BOTH.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("moneta-fuzz-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut authority = Authority::new("of the fuzzer").expect("an authority");
        let issued = authority.issue(&Wanted::hosts(["127.0.0.1"])).expect("a certificate");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("it can be written");
            Some(PemSource::File(path))
        };
        let config = TlsConfig {
            certificate: file("cert.pem", &issued.certificate),
            key: file("key.pem", &issued.key),
            authorities: file("ca.pem", authority.certificate()),
            ..TlsConfig::default()
        };
        let tls: Arc<Tls> = Tls::load(config).expect("the files fit");
        std::fs::remove_dir_all(&folder).expect("they are read");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        Both {
            acceptor: tls.acceptor(ClientCertificates::Ask).expect("it has a certificate"),
            connector: Connector::Tls(tls.connector().expect("it believes somebody")),
            listener,
        }
    })
}

/// Both ends, and the client's socket.
fn pair() -> (Transport, Transport, File) {
    let Both { acceptor, connector, listener } = both();
    let address = listener.local_addr().expect("an address");
    let endpoint = Endpoint { connector: connector.clone(), ..Endpoint::new(Address::Tcp(HostPort::from(address))) };
    let (client, _) = endpoint.begin(Some(address)).expect("it listens");
    let accepted = accept(listener).expect("one waits").expect("it has come").0;
    let server = acceptor.protect(accepted).expect("it has a certificate");
    let socket = client.as_fd().try_clone_to_owned().expect("a descriptor");
    (client, server, File::from(socket))
}

/// Whether the server's handshake goes on or is done after all that has come.
fn opens(server: &mut Transport) -> Option<Opening> {
    server.open().ok()
}

/// Receives all there is; returns whether more may come.
fn drain(server: &mut Transport, received: &mut Vec<u8>) -> bool {
    let mut room = [0; 4096];
    for _ in 0..CALLS_MAX {
        assert!(server.held() <= HELD_MAX, "{} bytes", server.held());
        match server.receive_into(&mut room) {
            Ok(Received::Some { bytes, .. }) => received.extend_from_slice(&room[..bytes]),
            Ok(Received::Nothing) => return true,
            Ok(Received::End) | Err(_) => return false,
        }
    }
    panic!("it never ends");
}

fuzz_target!(|data: &[u8]| {
    let [mode, enciphered, piece, input @ ..] = data else { return };
    let (mut client, mut server, mut socket) = pair();
    let mut received = Vec::new();
    let is_done = mode % 2 == 1;
    if is_done {
        let mut is_open = (false, false);
        while is_open != (true, true) {
            is_open.0 |= client.open().expect("it is believed") == Opening::Done;
            is_open.1 |= server.open().expect("it is believed") == Opening::Done;
        }
        let text = vec![b'x'; usize::from(*enciphered) * 64];
        let sent = client.send(&text).expect("it is open");
        assert_eq!(sent, text.len(), "the socket has room");
        while received.len() < text.len() {
            assert!(drain(&mut server, &mut received), "what is enciphered is lost");
        }
        assert!(received == text);
    } else if mode % 4 == 2 {
        // Its first message: the socket connects at once over loopback.
        assert_eq!(client.open(), Ok(Opening::UnderWay));
        assert_eq!(opens(&mut server), Some(Opening::UnderWay));
    }
    for bytes in input.chunks(usize::from(*piece).max(1) * 8) {
        if socket.write_all(bytes).is_err() {
            return;
        }
        let goes_on = if is_done {
            let before = received.len();
            let goes_on = drain(&mut server, &mut received);
            assert_eq!(received.len(), before, "what nobody enciphered comes out");
            goes_on
        } else {
            assert!(server.held() <= HELD_MAX, "{} bytes", server.held());
            match opens(&mut server) {
                Some(opening) => {
                    assert_eq!(opening, Opening::UnderWay, "a handshake that nobody made is done");
                    true
                }
                None => false,
            }
        };
        if !goes_on {
            return;
        }
    }
});
