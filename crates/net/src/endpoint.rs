//! How a server is reached.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::address::Address;
use crate::log_in::LogIn;
use crate::opening::Opening;
use crate::socket::Socket;
use crate::stream::Stream;
use crate::tls::TlsConnector;
use crate::transport::Transport;
use crate::transport_error::TransportError;

/// A server, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: Address,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// Silence after which the kernel asks whether the other side is still there; `None`: the system's two hours. TCP only.
    pub keep_alive: Option<Duration>,
    /// What protects connections to it.
    pub connector: Connector,
    /// What a connection says of itself before its first request.
    pub log_in: LogIn,
}

/// How long the steps of a connection may take; `None` is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Looking up a host's name, and connecting to one of its addresses, each.
    pub connect: Option<Duration>,
    /// One wait of a [`Stream`] for bytes, or for room to send. Event loops have clocks of their own.
    pub idle: Option<Duration>,
    /// All that a [`Stream`] does from its first attempt to connect on, until [`Stream::set_deadline`] says otherwise.
    pub total: Option<Duration>,
}

/// What protects connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connector {
    /// Nothing.
    #[default]
    Plain,
    /// TLS, over TCP. Unix sockets, which do not leave the machine, stay plain.
    Tls(TlsConnector),
    /// Nothing, but TLS for addresses that ask for it (`tls:`).
    TlsWhereAsked(TlsConnector),
}

impl Endpoint {
    /// A server that is waited for as long as it takes, unprotected, without a log-in.
    pub fn new(address: Address) -> Self {
        let (connector, log_in) = (Connector::default(), LogIn::default());
        Self { address, timeouts: Timeouts::default(), keep_alive: None, connector, log_in }
    }

    /// The same, where connecting and each later wait take at most `timeout`.
    #[must_use]
    pub fn patient(self, timeout: Duration) -> Self {
        let timeouts = Timeouts { connect: Some(timeout), idle: Some(timeout), total: self.timeouts.total };
        Self { timeouts, ..self }
    }

    /// Begins to connect without a wait. `number`: which of the addresses of its host to take ([`crate::Names`]); of no
    /// meaning for a Unix socket.
    ///
    /// # Errors
    /// When the system refuses at once, or TCP has no `number`.
    pub fn begin(&self, number: Option<SocketAddr>) -> Result<(Transport, Opening), TransportError> {
        let (socket, opening) = match (&self.address, number) {
            (Address::Unix(path), _) => (Socket::unix(path)?, Opening::Done),
            (Address::Tcp(_), Some(number)) => Socket::begin_tcp(&number, self.keep_alive)?,
            (Address::Tcp(_), None) => return Err(Errno::ADDRNOTAVAIL.into()),
        };
        let transport = self.protected(socket)?;
        // A handshake is to come: the socket has room for its first message as soon as it is connected.
        let opening = if transport.is_protected() { Opening::UnderWay } else { opening };
        Ok((transport, opening))
    }

    /// Connects and waits for it: to the first of its addresses that takes the connection.
    ///
    /// # Errors
    /// When its host has no address, none takes the connection, or that takes too long.
    pub fn connect(&self) -> io::Result<Stream> {
        let begun = Instant::now();
        let deadline = self.timeouts.total.map(|total| begun + total);
        let socket = match &self.address {
            Address::Unix(path) => Socket::connect_unix(path, self.patience(deadline))?,
            Address::Tcp(place) => {
                let connect = |number| Socket::connect_tcp(&number, self.keep_alive, self.patience(deadline));
                let numbers = match self.patience(deadline) {
                    Some(patience) => place.resolve_within(patience)?,
                    None => place.resolve()?,
                };
                first(numbers, connect)?
            }
        };
        let mut transport = self.protected(socket)?;
        transport.open_within(self.patience(deadline))?;
        Ok(Stream::new(transport, self.timeouts.idle, deadline))
    }

    /// How long connecting may take that begins now.
    fn patience(&self, deadline: Option<Instant>) -> Option<Duration> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        [left, self.timeouts.connect].into_iter().flatten().min()
    }

    /// A connection just made, as all else in the process sees it: the one place where connections out are protected.
    fn protected(&self, socket: Socket) -> Result<Transport, TransportError> {
        match (&self.connector, &self.address) {
            (Connector::Tls(connector), Address::Tcp(place)) if place.tls != Some(false) => {
                Ok(Transport::Tls(Box::new(connector.protect(socket, place)?)))
            }
            (Connector::TlsWhereAsked(connector), Address::Tcp(place)) if place.tls == Some(true) => {
                Ok(Transport::Tls(Box::new(connector.protect(socket, place)?)))
            }
            (Connector::Plain, Address::Tcp(place)) if place.tls == Some(true) => Err(TransportError::NoTls),
            _ => Ok(Transport::Plain(socket)),
        }
    }
}

impl From<Address> for Endpoint {
    fn from(address: Address) -> Self {
        Self::new(address)
    }
}

/// The first success, or the last failure.
fn first<T>(numbers: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for number in numbers {
        match connect(number) {
            Ok(connected) => return Ok(connected),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn bytes_go_both_ways_over_tcp_and_unix_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (tcp, unix) = (TcpListener::bind(("127.0.0.1", 0)).unwrap(), UnixListener::bind(&path).unwrap());
        let serve = |mut peer: Box<dyn ReadWrite>| {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            peer.write_all(&[byte[0] + 1]).unwrap();
        };
        let endpoints = [tcp.local_addr().unwrap().into(), Address::Unix(path)].map(Endpoint::new);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(Box::new(tcp.accept().unwrap().0)));
            scope.spawn(|| serve(Box::new(unix.accept().unwrap().0)));
            for endpoint in endpoints {
                let mut stream = endpoint.connect().unwrap();
                stream.write_all(b"a").unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                assert_eq!(answer, b"b", "{}", endpoint.address);
            }
        });
    }

    trait ReadWrite: Read + Write {}
    impl<T: Read + Write> ReadWrite for T {}

    #[test]
    fn a_server_that_is_silent_is_waited_for_as_long_as_was_said() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = Endpoint::from(Address::from(listener.local_addr().unwrap())).patient(SHORT);
        let mut stream = endpoint.connect().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let total = Timeouts { total: Some(SHORT), ..Timeouts::default() };
        let mut stream = Endpoint { timeouts: total, ..endpoint }.connect().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let full = std::iter::repeat_with(|| stream.write(&[0; 65536])).find_map(Result::err);
        assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_server_that_takes_no_connection_is_given_up_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let endpoint = Endpoint::new(Address::Unix(path)).patient(SHORT);
        let mut taken = Vec::new();
        let refused = loop {
            match endpoint.connect() {
                Ok(stream) => taken.push(stream),
                Err(error) => break error,
            }
            assert!(taken.len() < 100, "the backlog has no end");
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn nobody_listens_where_no_server_is() {
        let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let refused = Endpoint::new(address.into()).connect().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_next_address_is_tried_when_one_fails() {
        let numbers = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let connect = |number: SocketAddr| if number.port() == 2 { Ok(2) } else { Err(io::ErrorKind::NotFound.into()) };
        assert_eq!(first(numbers.to_vec(), connect).ok(), Some(2));
        assert!(first(vec![numbers[0]], connect).is_err());
        assert_eq!(first(Vec::new(), connect).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
