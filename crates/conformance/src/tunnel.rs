//! A tunnel for clients that know no TLS: what connects to its port speaks with a server over TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use anyhow::{Result, ensure};
use moneta_net::Endpoint;

/// Most bytes that are on their way in one direction.
const ROOM: usize = 64 << 10;

/// Opens a tunnel to `server` on a free port of 127.0.0.1; it ends with the process.
///
/// # Errors
/// Those of the system.
pub fn open(server: Endpoint) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("tunnel".into()).spawn(move || {
        for client in listener.incoming().flatten() {
            let server = server.clone();
            // Either end of a connection ends both directions.
            thread::spawn(move || drop(carry(client, &server)));
        }
    })?;
    Ok(address)
}

/// Bytes on their way in one direction.
#[derive(Default)]
struct Direction {
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Direction {
    /// Moves what can be moved. Returns whether anything was.
    fn go_on(&mut self, from: &mut impl Read, to: &mut impl Write) -> Result<bool> {
        let mut moved = false;
        if self.bytes.is_empty() && !self.has_ended {
            let mut room = vec![0; ROOM];
            match from.read(&mut room) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.bytes.extend_from_slice(&room[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            moved = self.has_ended || !self.bytes.is_empty();
        }
        if !self.bytes.is_empty() {
            match to.write(&self.bytes) {
                Ok(written) => {
                    self.bytes.drain(..written);
                    moved |= written > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(moved)
    }

    fn is_over(&self) -> bool {
        self.has_ended && self.bytes.is_empty()
    }
}

/// Carries bytes both ways until one side ends.
fn carry(mut client: TcpStream, server: &Endpoint) -> Result<()> {
    client.set_nonblocking(true)?;
    client.set_nodelay(true)?;
    let mut server = server.connect()?;
    server.set_nonblocking(true)?;
    let (mut there, mut back) = (Direction::default(), Direction::default());
    while !there.is_over() && !back.is_over() {
        let moved = there.go_on(&mut client, &mut server)? | back.go_on(&mut server, &mut client)?;
        if !moved {
            wait([(client.as_raw_fd(), &there, &back), (server.as_raw_fd(), &back, &there)])?;
        }
    }
    Ok(())
}

/// Waits until a side has bytes, or room for those that it lacks room for. Each is given with what it sends and what it is sent.
fn wait(sides: [(RawFd, &Direction, &Direction); 2]) -> Result<()> {
    let mut waited = sides.map(|(fd, sends, is_sent)| {
        let reads = if sends.bytes.is_empty() && !sends.has_ended { libc::POLLIN } else { 0 };
        let writes = if is_sent.bytes.is_empty() { 0 } else { libc::POLLOUT };
        libc::pollfd { fd, events: reads | writes, revents: 0 }
    });
    // SAFETY: the array has as many elements as are told, and both descriptors are open.
    let ready = unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, -1) };
    let is_interrupted = std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
    ensure!(ready > 0 || is_interrupted, "the tunnel cannot wait");
    Ok(())
}
