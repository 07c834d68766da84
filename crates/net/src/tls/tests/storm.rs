//! Many connections to one server that are lost and made anew at once.

use super::*;
use crate::opening::Opening;

/// Connections begun at the same moment, each with what it takes to go on with a session; returns how many did.
fn resumed(acceptor: &TlsAcceptor, endpoint: &Endpoint, listener: &TcpListener, count: usize) -> usize {
    let number = listener.local_addr().unwrap();
    let begun: Vec<Transport> = (0..count).map(|_| endpoint.begin(Some(number)).unwrap().0).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let mut transport = acceptor.protect(accepted(listener)).unwrap();
                transport.open_within(Some(PATIENCE)).unwrap();
                Stream::new(transport, Some(PATIENCE), None).write_all(b"!").unwrap();
            }
        });
        let open = |mut transport: Transport| {
            transport.open_within(Some(PATIENCE)).unwrap();
            assert_eq!(transport.open(), Ok(Opening::Done));
            let is_resumed = transport.tls().unwrap().is_resumed;
            // The ticket comes before it.
            Stream::new(transport, Some(PATIENCE), None).read_exact(&mut [0]).unwrap();
            is_resumed
        };
        begun.into_iter().map(open).filter(|is_resumed| *is_resumed).count()
    })
}

#[test]
fn as_many_connections_go_on_with_a_session_as_there_were() {
    let mut authority = Authority::new("test").unwrap();
    let (server, client) = (Process::new(&mut authority), Process::with(&mut authority, None));
    let acceptor = server.acceptor(ClientCertificates::None);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = HostPort::from(listener.local_addr().unwrap());
    let connector = Connector::Tls(client.connector());
    let endpoint = Endpoint { connector, ..Endpoint::new(Address::Tcp(place)) };
    assert_eq!(resumed(&acceptor, &endpoint, &listener, 100), 0, "they are the first");
    assert_eq!(resumed(&acceptor, &endpoint, &listener, 100), 100);
}
