//! Clients that all lose their connections and come back at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use moneta_net::{Address, Connector, Endpoint, HostPort, Opening, Received, Tls, Transport, TransportError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::files::{Files, PATIENCE, ask, connect, metric};
use crate::floods::connect_at_last;

/// As when a switch comes back: whole handshakes at first, with tickets the second time, by far more clients than have a place.
#[test]
fn clients_that_reconnect_at_once_are_all_served() {
    const CLIENTS: usize = 200;
    const CONNECTIONS: usize = 4;
    let mut files = Files::new();
    let node = files.node(&["-c", "2000", "--tls-handshakes", "16", "-t", "2"]);
    let tls: Vec<_> = (0..CLIENTS).map(|_| files.client(None)).collect();
    let resumed = || metric(&node, "tls_handshakes_total{result=\"resumed\"}");
    for wave in 0..2 {
        let open: Vec<_> = thread::scope(|scope| {
            let client = |tls| {
                let node = &node;
                scope.spawn(move || {
                    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect_at_last(tls, node.address())).collect();
                    streams.iter_mut().for_each(|stream| ask(stream, b"mn\r\n", b"MN\r\n"));
                    streams
                })
            };
            let clients: Vec<_> = tls.iter().map(client).collect();
            clients.into_iter().flat_map(|client| client.join().expect("each is served")).collect()
        });
        assert_eq!(metric(&node, "tls_connections"), (CLIENTS * CONNECTIONS) as f64);
        assert!(metric(&node, "tls_handshakes_under_way") <= 16.0);
        assert!(wave == 0 || resumed() > 0.0, "tickets are of use");
        drop(open);
        node.wait_for(|| metric(&node, "tls_connections") == 0.0, "closed connections are counted");
    }
}

/// How long clients of a crowd wait for any of their sockets, before they look whether they get on.
const PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A connection that comes up, is asked, and stays.
struct Client {
    transport: Transport,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connects,
    Opens,
    Asked,
    Answered,
}

impl Client {
    /// What its socket is waited for: once it is connected, it has room for all that a client says.
    fn waits_for(&self) -> PollFd<'_> {
        let events = if self.state == State::Connects { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&self.transport, events)
    }

    /// Goes as far as its socket lets it.
    fn go_on(&mut self) -> Result<(), TransportError> {
        if matches!(self.state, State::Connects | State::Opens) {
            self.state = State::Opens;
            if self.transport.open()? == Opening::UnderWay {
                return Ok(());
            }
            assert_eq!(self.transport.send(b"mn\r\n")?, 4);
            self.state = State::Asked;
        }
        let mut answer = Vec::with_capacity(64);
        match self.transport.receive(&mut answer)? {
            Received::End => return Err(TransportError::Truncated),
            _ if answer.is_empty() => {}
            _ => {
                assert_eq!(answer, b"MN\r\n");
                self.state = State::Answered;
            }
        }
        Ok(())
    }
}

/// `count` connections that are begun at the same moment, each of which is answered.
fn connected_at_once(endpoint: &Endpoint, number: SocketAddr, count: usize) -> Vec<Client> {
    let begin = || {
        let (transport, _) = endpoint.begin(Some(number)).expect("it begins");
        Client { transport, state: State::Connects }
    };
    let (mut under_way, mut answered): (Vec<Client>, _) = ((0..count).map(|_| begin()).collect(), Vec::new());
    let mut progress = Instant::now();
    while !under_way.is_empty() {
        let mut waited: Vec<_> = under_way.iter().map(Client::waits_for).collect();
        poll(&mut waited, Some(&PAUSE)).expect("it waits");
        let are_ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
        for (mut client, is_ready) in std::mem::take(&mut under_way).into_iter().zip(are_ready) {
            match if is_ready { client.go_on() } else { Ok(()) } {
                Ok(()) if client.state == State::Answered => {
                    answered.push(client);
                    progress = Instant::now();
                }
                Ok(()) => under_way.push(client),
                // One that a busy machine has kept from its handshake may have to make room.
                Err(error) => {
                    assert!(progress.elapsed() < PATIENCE, "{error}");
                    under_way.push(begin());
                }
            }
        }
        assert!(progress.elapsed() < PATIENCE, "{} of {count} are not answered", under_way.len());
    }
    answered
}

/// All that a crowded proxy has is lost in a moment and comes back in a moment.
#[test]
#[ignore = "some ten seconds: make test-tls"]
fn ten_thousand_clients_reconnect_at_once() {
    const PROCESSES: usize = 10;
    const OF_EACH: usize = 1_000;
    const ALL: usize = PROCESSES * OF_EACH;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let needed = ALL as u64 + 500;
    assert!(needed <= hard, "{needed} files have to be open at once, and `ulimit -Hn` is {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard).expect("up to the hard limit");
    let mut files = Files::new();
    let node = files.node(&["-c", "10050", "--tls-handshakes", "256", "-t", "2"]);
    let tls: Vec<_> = (0..PROCESSES).map(|_| files.client(None)).collect();
    let mut open = connect(&tls[0], node.address()).expect("a connection");
    let resumed = || metric(&node, "tls_handshakes_total{result=\"resumed\"}");
    let mut crowd = Vec::new();
    for wave in 0..2 {
        // Those of before are gone in the moment in which these come.
        drop(std::mem::take(&mut crowd));
        let before = resumed();
        crowd = thread::scope(|scope| {
            let process = |tls: &Arc<Tls>| {
                let connector = Connector::Tls(tls.connector().expect("it believes somebody"));
                let number = node.address();
                let endpoint = Endpoint { connector, ..Endpoint::new(Address::Tcp(HostPort::from(number))) };
                scope.spawn(move || connected_at_once(&endpoint, number, OF_EACH))
            };
            let processes: Vec<_> = tls.iter().map(process).collect();
            while !processes.iter().all(thread::ScopedJoinHandle::is_finished) {
                ask(&mut open, b"mn\r\n", b"MN\r\n");
                assert!(metric(&node, "tls_handshakes_under_way") <= 256.0);
            }
            processes.into_iter().flat_map(|process| process.join().expect("all are answered")).collect()
        });
        assert_eq!(crowd.len(), ALL);
        node.wait_for(|| metric(&node, "tls_connections") == (ALL + 1) as f64, "those of before are counted");
        let resumed = resumed() - before;
        println!("wave {wave}: {resumed} of {ALL} went on with a session");
        // A ticket is gone with each that is made again.
        assert!(wave == 0 || resumed >= ALL as f64 * 0.5, "{resumed} went on with a session");
    }
}
