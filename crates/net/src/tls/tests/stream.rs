//! Bytes over a connection.

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::ServerName;

use super::*;
use crate::opening::Opening;
use crate::received::Received;
use crate::transport_error::TransportError;

/// Bytes that differ from their neighbours.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Both ends as event loops have them.
fn transports() -> (Transport, Transport) {
    let mut authority = Authority::new("test").unwrap();
    let (server, client) = (Process::new(&mut authority), Process::with(&mut authority, None));
    let (server, client) = met(&server.acceptor(ClientCertificates::None), &client.connector());
    (server.into_transport().unwrap(), client.into_transport().unwrap())
}

/// A server, and a socket whose other end it takes.
fn half_open() -> (TlsAcceptor, TcpListener, TcpStream) {
    let server = Process::new(&mut Authority::new("test").unwrap());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (server.acceptor(ClientCertificates::None), listener, client)
}

#[test]
fn much_goes_both_ways_at_once_through_small_buffers_and_full_sockets() {
    let (mut server, mut client) = transports();
    let sent = bytes(3_000_000);
    let mut ends = [&mut server, &mut client];
    let (mut offered, mut received) = ([0, 0], [Vec::new(), Vec::new()]);
    let mut buffer = Vec::with_capacity(3000);
    let mut step = 0;
    while received.iter().any(|received: &Vec<u8>| received.len() < sent.len()) {
        for (end, transport) in ends.iter_mut().enumerate() {
            step += 1;
            // What was offered stays in the offer, with more behind it, as the contract wants.
            let until = sent.len().min(offered[end] + 1 + step * 7919 % 200_000);
            if until > offered[end] {
                offered[end] += transport.send(&sent[offered[end]..until.max(offered[end] + 1)]).unwrap();
            }
            buffer.clear();
            if let Received::Some { .. } = transport.receive(&mut buffer).unwrap() {
                received[end].extend_from_slice(&buffer);
            }
        }
        if step % 64 == 0 {
            // Empties what is there, so that sockets fill and empty in turns.
            let (end, transport) = (step / 64 % 2, &mut *ends[step / 64 % 2]);
            buffer.clear();
            while let Received::Some { .. } = transport.receive(&mut buffer).unwrap() {
                received[end].extend_from_slice(&buffer);
                buffer.clear();
            }
        }
    }
    assert!(received[0] == sent && received[1] == sent);
    assert_eq!((server.held(), client.held()), (0, 0), "a connection that waits holds no buffer");
}

#[test]
fn a_batch_is_one_call_and_what_the_kernel_does_not_take_is_offered_again() {
    let (mut server, mut client) = transports();
    let sent = bytes(20_000_000);
    let (mut taken, mut offers) = (0, 0);
    while taken < sent.len() && offers < 10_000 {
        let now = server.send(&sent[taken..]).unwrap();
        taken += now;
        offers += 1;
        if now == 0 {
            break;
        }
    }
    assert!(taken < sent.len(), "the socket has no end");
    assert!(server.held() > 0 && server.held() < 200_000, "{}", server.held());
    assert_eq!(server.send(&sent[taken..]).unwrap(), 0);
    let mut received = Vec::with_capacity(sent.len());
    while received.len() < sent.len() {
        if taken < sent.len() {
            taken += server.send(&sent[taken..]).unwrap();
        }
        while let Received::Some { .. } = client.receive(&mut received).unwrap() {
            if received.len() == received.capacity() {
                break;
            }
        }
    }
    assert!(received == sent);
}

#[test]
fn an_end_is_told_from_a_cut() {
    let (mut server, client) = transports();
    drop(client);
    wait(&server);
    assert_eq!(server.receive_into(&mut [0; 8]), Ok(Received::End));
    let (server, mut client) = transports();
    // As a process that is killed: its sockets are closed without a word.
    let socket = server.as_fd().try_clone_to_owned().unwrap();
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).unwrap();
    wait(&client);
    assert_eq!(client.receive_into(&mut [0; 8]), Err(TransportError::Truncated));
}

#[test]
fn what_is_no_tls_fails_and_so_does_what_never_ends() {
    let (acceptor, listener, mut client) = half_open();
    let mut transport = acceptor.protect(accepted(&listener)).unwrap();
    client.write_all(b"get a\r\n").unwrap();
    wait(&transport);
    assert!(matches!(transport.open(), Err(TransportError::Tls(_))));

    let (acceptor, listener, mut client) = half_open();
    let mut transport = acceptor.protect(accepted(&listener)).unwrap();
    // Records of a handshake message that goes on for 16 MiB.
    let mut flood = vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    flood.resize(5 + 0x4000, 0);
    let failed = (0..100).find_map(|_| {
        client.write_all(&flood).ok()?;
        wait(&transport);
        transport.open().err()
    });
    assert!(failed.is_some() && transport.held() < 200_000, "{failed:?} {}", transport.held());

    let (acceptor, listener, mut client) = half_open();
    let mut transport = acceptor.protect(accepted(&listener)).unwrap();
    client.write_all(&[0x16, 3, 1]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    wait(&transport);
    while transport.open() == Ok(Opening::UnderWay) {
        wait(&transport);
    }
    assert_eq!(transport.open(), Err(TransportError::Truncated));
}

/// A client of rustls's own, over a socket that it shares with nobody.
fn other_client(authority: &Authority, socket: TcpStream) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let name = ServerName::try_from("localhost").unwrap();
    rustls::StreamOwned::new(rustls::ClientConnection::new(config, name).unwrap(), socket)
}

#[test]
fn new_keys_in_the_middle_and_records_of_one_byte_change_nothing() {
    let mut authority = Authority::new("test").unwrap();
    let server = Process::new(&mut authority);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = other_client(&authority, socket);
            client.conn.complete_io(&mut client.sock).unwrap();
            for round in 0..50u8 {
                for _ in 0..round {
                    client.write_all(&[round]).unwrap();
                    client.flush().unwrap();
                }
                client.conn.refresh_traffic_keys().unwrap();
                client.write_all(b".").unwrap();
                let mut echo = vec![0; usize::from(round) + 1];
                client.read_exact(&mut echo).unwrap();
                assert!(echo[..usize::from(round)].iter().all(|&byte| byte == round) && echo.ends_with(b"."));
            }
        });
        let mut transport = server.acceptor(ClientCertificates::None).protect(accepted(&listener)).unwrap();
        transport.open_within(Some(PATIENCE)).unwrap();
        let mut stream = Stream::new(transport, Some(PATIENCE), None);
        let mut buffer = [0; 64];
        let mut line = Vec::new();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => line.extend_from_slice(&buffer[..read]),
                Err(error) => panic!("{error}"),
            }
            if line.ends_with(b".") {
                stream.write_all(&std::mem::take(&mut line)).unwrap();
            }
        }
    });
}

#[test]
fn a_message_of_tls_in_pieces_is_waited_for_while_bytes_go_the_other_way() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let mut authority = Authority::new("test").unwrap();
    let own = authority.issue(&Wanted::hosts(["localhost"])).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.max_fragment_size = Some(40);
    let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
    let client = Process::with(&mut authority, None);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = HostPort::new("localhost", listener.local_addr().unwrap().port());
    let endpoint =
        Endpoint { connector: Connector::Tls(client.connector()), ..Endpoint::new(Address::Tcp(place.clone())) };
    let (mut transport, _) = endpoint.begin(listener.local_addr().ok()).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut outgoing, mut is_open) = (Vec::new(), false);
    // Tickets come after the handshake: each in several records, and here byte by byte.
    for _ in 0..1_000_000 {
        if server.read_tls(&mut socket).is_ok() {
            server.process_new_packets().unwrap();
        }
        server.write_tls(&mut outgoing).unwrap();
        if outgoing.is_empty() && is_open {
            break;
        }
        if !outgoing.is_empty() {
            socket.write_all(&[outgoing.remove(0)]).unwrap();
        }
        if !is_open {
            is_open = transport.open().unwrap() == Opening::Done;
            continue;
        }
        transport.receive_into(&mut [0; 64]).unwrap();
        assert_eq!(transport.send(b"x").unwrap(), 1);
    }
    server.writer().write_all(b"done").unwrap();
    server.write_tls(&mut socket).unwrap();
    let mut heard = Vec::with_capacity(64);
    while heard.len() < 4 {
        wait(&transport);
        transport.receive(&mut heard).unwrap();
    }
    assert_eq!(heard, b"done");
}

/// Waits for an event of bytes.
fn wait(transport: &Transport) {
    let fd = transport.as_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
}
