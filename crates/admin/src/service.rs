//! The admin side's socket: accepts connections, bounds what a client can hold, and begins anew after a failure.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use moneta_background::Run;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::guard::{Asked, Guard};
use crate::hosts::Hosts;
use crate::limits::{Limits, Places};
use crate::places::{Hall, Seat};
use crate::route::{ALIVE, Page, Pages};
use crate::stall::Stall;
use crate::tally::Tally;

/// Pause after a failed accept, and before what failed begins anew.
const REST: Duration = Duration::from_millis(100);

/// What the admin side serves.
pub(crate) struct Service {
    /// The listening socket, non-blocking.
    pub(crate) listener: TcpListener,
    /// What all connections share.
    pub(crate) common: Arc<Common>,
    /// Places for connections.
    pub(crate) hall: Hall,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Common {
    /// The pages; a request takes those of its beginning.
    pub(crate) pages: RwLock<Pages>,
    /// The hosts that requests may be for.
    pub(crate) hosts: Hosts,
    /// Who may ask for what.
    pub(crate) guard: Guard,
    /// What a client may hold.
    pub(crate) limits: Limits,
    /// What is counted.
    pub(crate) tally: Arc<Tally>,
}

impl Service {
    /// Serves until it is told to stop; begins anew after failures and panics. Requests in progress are dropped at the end.
    pub(crate) async fn run(self, task: Run) {
        let service = Arc::new(self);
        keep_up(&task, || tokio::spawn(Arc::clone(&service).serve())).await;
    }

    async fn serve(self: Arc<Self>) -> io::Result<Infallible> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        // They end with this.
        let mut exchanges = JoinSet::new();
        loop {
            while exchanges.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, from)) => {
                    let seat = self.hall.arrive(from.ip());
                    let id = seat.id();
                    let desk = Desk { common: Arc::clone(&self.common), from: from.ip(), seat };
                    self.hall.attach(id, exchanges.spawn(exchange(stream, desk)));
                    // A request that has come with its connection is read before more connections are accepted, or a burst of
                    // these would take its place.
                    yield_now().await;
                }
                Err(error) => {
                    self.common.tally.count_accept_error();
                    tracing::warn!(%error, "the admin side cannot accept connections for now");
                    sleep(REST).await;
                }
            }
        }
    }
}

/// What a connection is answered by.
struct Desk {
    common: Arc<Common>,
    from: IpAddr,
    seat: Seat,
}

impl Desk {
    /// Why a request is not answered, if it is not; else its connection has the place that its page needs.
    fn refusal(&self, request: &Request<Incoming>, page: Option<&Page>) -> Option<Response<Body>> {
        let path = request.uri().path();
        let Common { hosts, guard, tally, .. } = &*self.common;
        if path != ALIVE && !hosts.admit(request.uri(), request.headers()) {
            tally.count_foreign_host();
            return Some((StatusCode::MISDIRECTED_REQUEST, FOREIGN).into_response());
        }
        let page = page?;
        let asked = Asked { method: request.method(), path, headers: request.headers(), from: self.from };
        if let Err(refusal) = guard.admit(page.access, &asked) {
            tally.count_unauthorized();
            return Some(*refusal);
        }
        let placed = page.places == Places::Arriving || self.seat.take(page.places);
        (!placed).then(|| (StatusCode::SERVICE_UNAVAILABLE, BUSY).into_response())
    }
}

/// The answer to a request for a host that is not this one.
const FOREIGN: &str = "the request's Host is none of this process: an address, localhost, this machine's name, or a name given by --admin-hosts\n";
/// The answer where all places for a page are taken.
const BUSY: &str = "too many connections ask for this page\n";

/// One request and its answer.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, desk: Desk) {
    let limits = desk.common.limits.clone();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(limits.head_bytes)
        .keep_alive(false);
    let pages = desk.common.pages.read().clone();
    // Set when the request is for a page that goes on.
    let (goes_on, is_stream) = watch::channel(false);
    let answer = service_fn(async |request: Request<Incoming>| {
        let page = pages.find(request.uri().path());
        if let Some(refusal) = desk.refusal(&request, page) {
            return Ok(refusal);
        }
        if page.is_some_and(|page| page.places == Places::Streams) {
            let _ = goes_on.send(true);
        }
        let body_max = page.and_then(|page| page.body_max).unwrap_or(limits.body_bytes);
        let request = request.map(|body| Body::new(Limited::new(body, body_max)));
        TowerToHyperService::new(pages.router.clone()).call(request).await
    });
    let connection = http.serve_connection(TokioIo::new(Stall::new(stream, limits.stalled_within)), answer);
    let mut connection = std::pin::pin!(connection);
    let mut ended = timeout(limits.exchange_within, connection.as_mut()).await;
    if ended.is_err() && *is_stream.borrow() {
        ended = Ok(connection.await);
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin request was not answered"),
        Err(_) => tracing::debug!("an admin connection was closed: it took too long"),
    }
}

/// Answers `request`, which comes in pieces of `piece` bytes, as an admin side with `routes` does; for fuzzing.
#[cfg(feature = "testing")]
pub fn answer(request: &[u8], piece: usize, routes: impl IntoIterator<Item = crate::route::Route>) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    let (tally, limits) = (Arc::<Tally>::default(), Limits::default());
    let pages = routes.into_iter().fold(Pages::default(), Pages::with);
    let head_bytes = limits.head_bytes;
    let hall = Hall::new(limits.clone(), Arc::clone(&tally));
    let common = Common { pages: RwLock::new(pages), hosts: Hosts::new(&[]), guard: Guard::default(), limits, tally };
    let from = [127, 0, 0, 1].into();
    let desk = Desk { common: Arc::new(common), from, seat: hall.arrive(from) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be had");
    runtime.block_on(async {
        let (mut client, server) = duplex(head_bytes);
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

/// Begins what `serve` starts again whenever it fails or panics, until the task is to stop.
async fn keep_up(task: &Run, mut serve: impl FnMut() -> JoinHandle<io::Result<Infallible>>) {
    while !task.is_stopped() {
        let mut serving = serve();
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = task.stopped() => {
                serving.abort();
                // Its sockets are closed then.
                let _ = serving.await;
                return;
            }
        };
        match ended {
            Ok(Ok(never)) => match never {},
            Ok(Err(error)) => {
                task.failed(&error);
                tracing::error!(%error, "the admin side failed and begins anew");
            }
            Err(error) => {
                task.failed(&error);
                tracing::error!(%error, "the admin side panicked and begins anew");
            }
        }
        tokio::select! {
            () = sleep(REST) => {}
            () = task.stopped() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use moneta_background::{Joined, list, runtime};

    use super::*;

    #[test]
    fn what_fails_or_panics_begins_anew_until_it_is_to_stop() {
        let (calls, begun) = (Arc::new(AtomicU32::new(0)), std::sync::mpsc::channel());
        let counted = Arc::clone(&calls);
        let task = runtime::spawn("test-keep-up", move |task| async move {
            let serve = || match counted.fetch_add(1, Ordering::Relaxed) {
                0 => tokio::spawn(async { panic!("as a defect would") }),
                1 => tokio::spawn(async { Err(io::ErrorKind::OutOfMemory.into()) }),
                _ => {
                    let _ = begun.0.send(());
                    tokio::spawn(std::future::pending())
                }
            };
            keep_up(&task, serve).await;
        });
        let task = task.expect("a runtime");
        begun.1.recv().expect("it begins a third time");
        task.stop();
        assert_eq!(task.join_within(Duration::from_secs(60)), Joined::Ended);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        let listed = list().into_iter().find(|listed| listed.name == "test-keep-up").expect("it is listed");
        assert_eq!((listed.failures, listed.panics), (2, 0));
    }
}
