//! The admin side's socket and thread: accepts connections, bounds what a client can hold, and restarts after a failure.

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::hosts::Hosts;
use crate::places::{Hall, Places, Seat};
use crate::route::{ALIVE, Pages};
use crate::tally::Tally;

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
    pub(crate) pages: Arc<RwLock<Pages>>,
    /// The hosts that requests may be for.
    pub(crate) hosts: Arc<Hosts>,
    /// Places for connections.
    pub(crate) hall: Hall,
    /// What it counts.
    pub(crate) tally: Arc<Tally>,
    /// Most threads for questions that may hang.
    pub(crate) helpers: usize,
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
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let seat = self.hall.arrive(from.ip());
                    let id = seat.id();
                    let desk = Desk {
                        pages: self.pages.read().clone(),
                        hosts: Arc::clone(&self.hosts),
                        tally: Arc::clone(&self.tally),
                        seat,
                    };
                    self.hall.attach(id, tokio::spawn(exchange(stream, desk)).abort_handle());
                    // A request that has come with its connection is read before more connections are accepted, or a burst of
                    // these would take its place.
                    yield_now().await;
                }
                Err(error) => {
                    self.tally.count_accept_error();
                    tracing::warn!(%error, "the admin side cannot accept connections for now");
                    sleep(REST).await;
                }
            }
        }
    }
}

/// What a connection is answered by.
struct Desk {
    pages: Pages,
    hosts: Arc<Hosts>,
    tally: Arc<Tally>,
    seat: Seat,
}

impl Desk {
    /// Why a request is not answered, if it is not; else its connection has the place that its page needs.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let path = request.uri().path();
        if path != ALIVE && !self.hosts.admit(request.uri(), request.headers()) {
            self.tally.count_foreign_host();
            return Some((StatusCode::MISDIRECTED_REQUEST, FOREIGN).into_response());
        }
        let places = self.pages.places(path);
        let placed = places == Places::Arriving || self.seat.take(places);
        (!placed).then(|| (StatusCode::SERVICE_UNAVAILABLE, BUSY).into_response())
    }
}

/// The answer to a request for a host that is not this one.
const FOREIGN: &str = "the request's Host is none of this process: an address, localhost, this machine's name, or a name given by --admin-hosts\n";
/// The answer where all places for a page are taken.
const BUSY: &str = "too many connections ask for this page\n";

/// One request and its answer.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, desk: Desk) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_MAX).max_buf_size(REQUEST_BYTES).keep_alive(false);
    let router = TowerToHyperService::new(desk.pages.router.clone());
    let answer = service_fn(async |request: Request<Incoming>| match desk.refusal(&request) {
        Some(refusal) => Ok(refusal),
        None => router.call(request).await,
    });
    let connection = http.serve_connection(TokioIo::new(stream), answer);
    match timeout(EXCHANGE_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin request was not answered"),
        Err(_) => tracing::debug!("an admin connection was closed: it took too long"),
    }
}

/// Answers `request`, which comes in pieces of `piece` bytes, as an admin side with `routes` does; for fuzzing.
#[cfg(feature = "testing")]
pub fn answer(request: &[u8], piece: usize, routes: impl IntoIterator<Item = crate::route::Route>) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    let tally = Arc::<Tally>::default();
    let desk = Desk {
        pages: routes.into_iter().fold(Pages::default(), Pages::with),
        hosts: Arc::new(Hosts::new(&[])),
        seat: Hall::new(Arc::clone(&tally)).arrive([127, 0, 0, 1].into()),
        tally,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be had");
    runtime.block_on(async {
        let (mut client, server) = duplex(REQUEST_BYTES);
        let answering = tokio::spawn(exchange(server, desk));
        for piece in request.chunks(piece.max(1)) {
            if client.write_all(piece).await.is_err() {
                break;
            }
            yield_now().await;
        }
        let _ = client.shutdown().await;
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        let _ = answering.await;
        answer
    })
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
