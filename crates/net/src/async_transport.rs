//! A transport for tokio: what is read and written on its runtime.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::certificate_names::CertificateNames;
use crate::opening::Opening;
use crate::received::Received;
use crate::transport::Transport;
use crate::transport_error::TransportError;

/// Most bytes that are taken to be written before the socket has taken those of before.
const TAKEN: usize = 16 << 10;

/// A transport whose socket does not block, on tokio's runtime.
#[derive(Debug)]
pub struct AsyncTransport {
    transport: AsyncFd<Transport>,
    /// Taken to be written, from `sent` on. What a transport was offered has to be offered again as it was, which writers need not
    /// do.
    taken: Vec<u8>,
    sent: usize,
}

impl AsyncTransport {
    /// Puts a transport on the runtime that runs the caller.
    ///
    /// # Errors
    /// If the system does not watch it.
    pub fn new(transport: Transport) -> io::Result<Self> {
        // A transport keeps its socket, and nothing here puts another one in its place.
        #[allow(deprecated, reason = "what takes its place is unsafe, and of newer versions only")]
        let transport = AsyncFd::new(transport)?;
        Ok(Self { transport, taken: Vec::new(), sent: 0 })
    }

    /// Waits until it is open: the caller bounds the time.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn open(&mut self) -> Result<(), TransportError> {
        loop {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let mut guard = self.transport.ready_mut(interest).await.map_err(|_| rustix::io::Errno::IO)?;
            if guard.get_inner_mut().open()? == Opening::Done {
                return Ok(());
            }
            guard.clear_ready();
        }
    }

    /// The same, where `step` computes on another thread: it calls [`AsyncTransport::go_on_opening`] and gives back what it was
    /// given.
    ///
    /// # Errors
    /// If the handshake or `step` fails.
    pub async fn open_by<F>(mut self, step: impl Fn(Self) -> F) -> io::Result<Self>
    where
        F: Future<Output = io::Result<(Self, Opening)>>,
    {
        loop {
            let interest = Interest::READABLE | Interest::WRITABLE;
            // Taken before the bytes are: what comes from here on raises another event.
            self.transport.ready_mut(interest).await?.clear_ready();
            let opening;
            (self, opening) = step(self).await?;
            if opening == Opening::Done {
                // The handshake may have left bytes in the socket whose event is taken: here they raise another.
                return Self::new(self.transport.into_inner());
            }
        }
    }

    /// Goes on with the handshake as far as the socket lets it.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn go_on_opening(&mut self) -> Result<Opening, TransportError> {
        self.transport.get_mut().open()
    }

    /// The names in the certificate that the other side has shown and that was verified.
    pub fn certificate_names(&self) -> Option<&Arc<CertificateNames>> {
        self.transport.get_ref().certificate_names()
    }

    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.taken.len() {
            let mut guard = ready!(self.transport.poll_write_ready_mut(context))?;
            match guard.get_inner_mut().send(&self.taken[self.sent..])? {
                sent if sent == self.taken.len() - self.sent => self.sent = self.taken.len(),
                sent => {
                    self.sent += sent;
                    guard.clear_ready();
                }
            }
        }
        (self.taken, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for AsyncTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // What came with the end of the handshake, or was more than the reader had room for: no event tells of it, since the kernel
        // has nothing left.
        if self.transport.get_ref().holds_received() {
            let received = self.transport.get_mut().receive_into(buffer.initialize_unfilled())?;
            if let Received::Some { bytes, .. } = received {
                buffer.advance(bytes);
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut guard = ready!(self.transport.poll_read_ready_mut(context))?;
            match guard.get_inner_mut().receive_into(buffer.initialize_unfilled())? {
                Received::Nothing => guard.clear_ready(),
                Received::End => return Poll::Ready(Ok(())),
                Received::Some { bytes, drained } => {
                    // What it holds beyond these no event tells of: it stays ready.
                    if drained {
                        guard.clear_ready();
                    }
                    if bytes > 0 {
                        buffer.advance(bytes);
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl AsyncWrite for AsyncTransport {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(context))?;
        let bytes = &bytes[..bytes.len().min(TAKEN)];
        self.taken.extend_from_slice(bytes);
        // It is taken, whatever comes of this; an error shows at the next call.
        let _ = self.poll_sent(context);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(context))?;
        self.transport.get_mut().shut_down();
        Poll::Ready(Ok(()))
    }
}

/// An accepted connection, which does not block.
impl From<std::net::TcpStream> for Transport {
    fn from(accepted: std::net::TcpStream) -> Self {
        Self::Plain(crate::socket::Socket::new(accepted.into()))
    }
}
