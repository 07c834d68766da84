//! Handshakes of TLS compute, for a stranger's sake too: on a thread of their own, which lets others go first, so that what shares the
//! runtime goes on. Each connection has at most one step in the queue, so that places for connections bound it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use moneta_background::{Run, Task};
use moneta_net::{AsyncTransport, Opening, TlsAcceptor, Transport, TransportError};
use tokio::sync::oneshot;

/// How much nicer the thread is than others: a tenth of their share of a CPU that both want.
const NICER: i32 = 10;

/// What protects connections, and the thread that opens them. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshakes {
    acceptor: TlsAcceptor,
    steps: Sender<Step>,
    _thread: Task,
}

/// A step of a handshake, and who waits for what comes of it.
struct Step {
    transport: AsyncTransport,
    done: oneshot::Sender<Stepped>,
}

type Stepped = (AsyncTransport, Result<Opening, TransportError>);

impl Handshakes {
    /// # Errors
    /// If the system has no thread.
    pub(crate) fn start(acceptor: TlsAcceptor) -> io::Result<Self> {
        let (steps, of_thread) = channel();
        let thread = moneta_background::start("admin-handshakes", move |_: &Run| run(&of_thread))?;
        Ok(Self { acceptor, steps, _thread: thread })
    }

    /// Opens a connection that was just accepted.
    ///
    /// # Errors
    /// If the client does not do its part.
    pub(crate) async fn open(&self, accepted: Transport) -> io::Result<AsyncTransport> {
        let transport = AsyncTransport::new(self.acceptor.protect(accepted)?)?;
        let step = async |transport| {
            let (done, stepped) = oneshot::channel();
            self.steps.send(Step { transport, done }).map_err(|_| io::ErrorKind::BrokenPipe)?;
            let (transport, opening) = stepped.await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok((transport, opening?))
        };
        transport.open_by(step).await
    }
}

fn run(steps: &Receiver<Step>) {
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "no lower priority for a thread");
    }
    for Step { mut transport, done } in steps {
        // Another has its place by now.
        if done.is_closed() {
            continue;
        }
        let opening = transport.go_on_opening();
        let _ = done.send((transport, opening));
    }
}
