//! A connection for code that waits.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::Timeout;

use crate::certificate_names::CertificateNames;
use crate::received::Received;
use crate::tls::TlsSummary;
use crate::transport::Transport;
use crate::transport_error::TransportError;

/// A connection that waits for bytes and for room to send: each time as long as its idle time-out, and over all until its
/// deadline. A wait that is too long fails with [`io::ErrorKind::TimedOut`].
#[derive(Debug)]
pub struct Stream {
    transport: Transport,
    idle: Option<Duration>,
    deadline: Option<Instant>,
    /// As the kernel was told last, for receiving.
    receives_for: Option<Duration>,
    /// The same for sending.
    sends_for: Option<Duration>,
    blocks: bool,
}

impl Stream {
    /// A stream over a blocking transport.
    pub(crate) fn new(transport: Transport, idle: Option<Duration>, deadline: Option<Instant>) -> Self {
        // Connecting may have set the latter.
        let unlike = Some(Duration::MAX);
        Self { transport, idle, deadline, receives_for: None, sends_for: unlike, blocks: true }
    }

    /// The longest wait from now on; `None` is for ever.
    pub fn set_idle(&mut self, idle: Option<Duration>) {
        self.idle = idle;
    }

    /// Until when waits may last; `None` is for ever.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Whether the system has bytes for a read, or an end or an error: a read may wait all the same, for the rest of what protects
    /// them.
    pub fn is_readable(&self) -> bool {
        let mut waited = [PollFd::new(&self.transport, PollFlags::IN)];
        rustix::event::poll(&mut waited, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Reads once into the spare room of `buffer`, which has some and need not be zeroed for that. 0 bytes: the end.
    ///
    /// # Errors
    /// As of [`Read::read`].
    pub fn read_more(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.receive(|transport| transport.receive(buffer))
    }

    fn receive(
        &mut self,
        mut once: impl FnMut(&mut Transport) -> Result<Received, TransportError>,
    ) -> io::Result<usize> {
        loop {
            self.prepare(Timeout::Recv)?;
            match once(&mut self.transport)? {
                Received::Some { bytes: 0, .. } => {}
                Received::Some { bytes, .. } => return Ok(bytes),
                Received::End => return Ok(0),
                Received::Nothing => return Err(self.waited()),
            }
        }
    }

    /// Whether reads and writes wait. Where they do not, they fail with [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
        self.transport.set_blocking(!nonblocking)?;
        self.blocks = !nonblocking;
        Ok(())
    }

    /// The names in the certificate that the other side has shown and that was verified.
    pub fn certificate_names(&self) -> Option<&Arc<CertificateNames>> {
        self.transport.certificate_names()
    }

    /// How it is protected.
    pub fn tls(&self) -> Option<TlsSummary> {
        self.transport.tls()
    }

    /// The connection for an event loop, not blocking.
    ///
    /// # Errors
    /// Those of the system.
    pub fn into_transport(self) -> io::Result<Transport> {
        self.transport.set_blocking(false)?;
        Ok(self.transport)
    }

    /// How long the next call may wait.
    fn wait(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(self.idle) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(self.idle.map_or(left, |idle| idle.min(left))))
    }

    fn prepare(&mut self, of: Timeout) -> io::Result<()> {
        if !self.blocks {
            return Ok(());
        }
        let wait = self.wait()?;
        let told = if matches!(of, Timeout::Recv) { &mut self.receives_for } else { &mut self.sends_for };
        if *told != wait {
            self.transport.set_wait(of, wait)?;
            *told = wait;
        }
        Ok(())
    }

    fn waited(&self) -> io::Error {
        if self.blocks { io::ErrorKind::TimedOut.into() } else { io::ErrorKind::WouldBlock.into() }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.receive(|transport| transport.receive_into(buffer))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.prepare(Timeout::Send)?;
        match self.transport.send(bytes)? {
            0 => Err(self.waited()),
            sent => Ok(sent),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.transport.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    fn stream(idle: Option<Duration>, deadline: Option<Instant>) -> (UnixStream, Stream) {
        let (peer, own) = UnixStream::pair().unwrap();
        (peer, Stream::new(own.into(), idle, deadline))
    }

    fn refusal<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn waits_end_after_the_idle_timeout_and_at_the_deadline() {
        let (_peer, mut idle) = stream(Some(SHORT), None);
        assert_eq!(refusal(idle.read(&mut [0])), Some(io::ErrorKind::TimedOut));
        let (mut peer, mut late) = stream(None, Some(Instant::now() + SHORT));
        assert_eq!(refusal(late.read(&mut [0])), Some(io::ErrorKind::TimedOut));
        peer.write_all(b"a").unwrap();
        assert_eq!(refusal(late.read(&mut [0])), Some(io::ErrorKind::TimedOut), "bytes after the deadline are late");
        late.set_deadline(None);
        assert_eq!(late.read(&mut [0]).unwrap(), 1);
    }

    #[test]
    fn what_can_be_read_is_seen_without_reading_it() {
        let (mut peer, mut stream) = stream(Some(SHORT), None);
        assert!(!stream.is_readable());
        peer.write_all(b"a").unwrap();
        assert!(stream.is_readable());
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        assert!(!stream.is_readable());
        drop(peer);
        assert!(stream.is_readable(), "an end");
    }

    #[test]
    fn without_waits_what_is_not_there_would_block() {
        let (mut peer, mut stream) = stream(Some(SHORT), None);
        stream.set_nonblocking(true).unwrap();
        assert_eq!(refusal(stream.read(&mut [0])), Some(io::ErrorKind::WouldBlock));
        peer.write_all(b"a").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);
        let full = std::iter::repeat_with(|| stream.write(&[0; 65536])).find_map(Result::err);
        assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
