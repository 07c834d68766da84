//! The admin side's socket and thread: accepts connections, bounds what a client can hold, and restarts after a failure.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Most connections at once. One more closes the oldest: a well-behaved client is done within milliseconds.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send its request.
const HEADER_MAX: Duration = Duration::from_secs(5);
/// How long a connection, which carries one request, may live.
const EXCHANGE_MAX: Duration = Duration::from_secs(30);
/// Most bytes of a request.
const REQUEST_BYTES: usize = 16 * 1024;
/// Pause after a failed accept, and before a failed thread restarts.
const REST: Duration = Duration::from_millis(100);

/// What the admin thread serves.
pub(crate) struct Service {
    /// The listening socket, non-blocking.
    pub(crate) listener: TcpListener,
    /// The pages; a request takes those of its beginning.
    pub(crate) routes: Arc<RwLock<Router>>,
    /// Most threads for questions that may hang.
    pub(crate) helpers: usize,
    /// Failed accepts.
    pub(crate) accept_errors: Arc<AtomicU64>,
    /// Changes, or loses its sender, when the thread has to end.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Service {
    /// Serves until told to stop; restarts after failures and panics.
    pub(crate) fn run(&self) {
        keep_up(|| self.serve(), || self.is_stopped());
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    fn serve(&self) -> io::Result<()> {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(self.helpers)
            .build();
        let runtime = Unhurried(Some(built?));
        let listener = self.listener.try_clone()?;
        let mut stop = self.stop.clone();
        let serve = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::select! {
                never = self.accept(&listener) => match never {},
                // Requests in progress are dropped: the node has stopped.
                _ = stop.wait_for(|stop| *stop) => Ok(()),
            }
        };
        match &runtime.0 {
            Some(runtime) => runtime.block_on(serve),
            None => Ok(()),
        }
    }

    async fn accept(&self, listener: &tokio::net::TcpListener) -> std::convert::Infallible {
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    open.retain(|connection| !connection.is_finished());
                    if open.len() >= CONNECTIONS_MAX
                        && let Some(oldest) = open.pop_front()
                    {
                        oldest.abort();
                    }
                    let routes = self.routes.read().clone();
                    open.push_back(tokio::spawn(exchange(stream, routes)).abort_handle());
                }
                Err(error) => {
                    self.accept_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "the admin side cannot accept connections for now");
                    sleep(REST).await;
                }
            }
        }
    }
}

/// One request and its answer.
async fn exchange(stream: TcpStream, routes: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_MAX).max_buf_size(REQUEST_BYTES).keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    match timeout(EXCHANGE_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin request was not answered"),
        Err(_) => tracing::debug!("an admin connection was closed: it took too long"),
    }
}

/// A runtime whose shutdown does not wait for threads that hang.
struct Unhurried(Option<Runtime>);

impl Drop for Unhurried {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Calls `serve` again whenever it fails or panics, until it returns normally or `is_stopped`.
fn keep_up(mut serve: impl FnMut() -> io::Result<()>, is_stopped: impl Fn() -> bool) {
    loop {
        match catch_unwind(AssertUnwindSafe(&mut serve)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(%error, "the admin side failed and begins anew"),
            Err(_) => tracing::error!("the admin side panicked and begins anew"),
        }
        if is_stopped() {
            return;
        }
        std::thread::sleep(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_or_panics_begins_anew_and_what_is_stopped_does_not() {
        let mut calls = 0;
        let serve = || {
            calls += 1;
            match calls {
                1 => panic!("as a defect would"),
                2 => Err(io::ErrorKind::OutOfMemory.into()),
                _ => Ok(()),
            }
        };
        keep_up(serve, || false);
        assert_eq!(calls, 3);
        let mut calls = 0;
        let serve = || {
            calls += 1;
            Err(io::ErrorKind::OutOfMemory.into())
        };
        keep_up(serve, || true);
        assert_eq!(calls, 1);
    }
}
