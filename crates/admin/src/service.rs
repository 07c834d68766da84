//! The admin side's socket: accepts connections, bounds what a client can hold, and begins anew after a failure.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
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
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::answer::{self, Missing};
use crate::connection::{self, Opened};
use crate::handshakes::Handshakes;
use crate::hosts::{self, Hosts};
use crate::limits::{Limits, Places};
use crate::places::{Hall, Seat};
use crate::right::{AccessRequest, Certificate, ClientAddress, Guard, Principal};
use crate::route::{ALIVE, Found, Index, Page, Pages};
use crate::stall::Stall;
use crate::stream;
use crate::tally::Tally;

/// How long readers of streams may take to take their end.
const STREAMS_END: Duration = Duration::from_secs(1);
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
    /// What protects connections.
    pub(crate) tls: Option<Handshakes>,
    /// What is answered where there is no page.
    pub(crate) missing: Missing,
    /// What a client may hold.
    pub(crate) limits: Limits,
    /// What is counted.
    pub(crate) tally: Arc<Tally>,
    /// Whether answers that go on are to end. Each connection with one has a receiver.
    pub(crate) are_ended: watch::Sender<bool>,
}

impl Service {
    /// Serves until it is told to stop; begins anew after failures and panics. At the end streams end, and requests in progress are
    /// dropped.
    pub(crate) async fn run(self, task: Run) {
        let service = Arc::new(self);
        let are_ended = &service.common.are_ended;
        let last = async {
            are_ended.send_replace(true);
            let _ = timeout(STREAMS_END, are_ended.closed()).await;
        };
        keep_up(&task, || tokio::spawn(Arc::clone(&service).serve()), last).await;
    }

    async fn serve(self: Arc<Self>) -> io::Result<Infallible> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        // They end with this.
        let mut exchanges = JoinSet::new();
        loop {
            while exchanges.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((socket, from)) => {
                    let seat = self.hall.arrive(from.ip());
                    let (id, common) = (seat.id(), Arc::clone(&self.common));
                    self.hall.attach(id, exchanges.spawn(serve_connection(socket, from.ip(), common, seat)));
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

/// A connection from its accept on.
async fn serve_connection(socket: TcpStream, from: IpAddr, common: Arc<Common>, seat: Seat) {
    match timeout(common.limits.head_within, connection::open(socket, common.tls.as_ref())).await {
        Ok(Ok(Opened { stream, certificate })) => exchange(stream, Desk::new(common, from, certificate, seat)).await,
        Ok(Err(error)) => tracing::debug!(%error, "an admin connection cannot be opened"),
        Err(_) => tracing::debug!("an admin connection was closed: it took too long to open"),
    }
}

/// What a connection is answered by.
struct Desk {
    common: Arc<Common>,
    from: IpAddr,
    certificate: Option<Certificate>,
    seat: Seat,
    pages: Pages,
    /// Set when the request is for a page that goes on: what tells that all of these end.
    goes_on: OnceLock<watch::Receiver<bool>>,
}

impl Desk {
    fn new(common: Arc<Common>, from: IpAddr, certificate: Option<Certificate>, seat: Seat) -> Self {
        let pages = common.pages.read().clone();
        Self { common, from, certificate, seat, pages, goes_on: OnceLock::new() }
    }

    /// The answer to a request.
    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut head, body) = request.into_parts();
        let found = self.pages.find(head.uri.path(), &head.method);
        let is_there = found.is_some();
        let Found { page, parameters } = found.unwrap_or_default();
        match self.admit(&head, page, &parameters).await {
            Ok(principal) => principal.map(|principal| head.extensions.insert(principal)),
            Err(refusal) => return *refusal,
        };
        if !is_there {
            return self.common.missing.answer();
        }
        if page.places != Places::Arriving && !self.seat.take(page.places) {
            return answer::unavailable(BUSY);
        }
        let ending = (page.places == Places::Streams).then(|| self.common.are_ended.subscribe());
        if let Some(ending) = &ending {
            if *ending.borrow() {
                return answer::unavailable(ENDING);
            }
            let _ = self.goes_on.set(ending.clone());
        }
        head.extensions.insert(Index(self.pages.clone()));
        head.extensions.insert(ClientAddress(self.from));
        let body = Body::new(Limited::new(body, page.body_max.unwrap_or(self.common.limits.body_bytes)));
        let request = Request::from_parts(head, body);
        let answer = TowerToHyperService::new(self.pages.router.clone()).call(request).await;
        let answer = answer.unwrap_or_else(|never| match never {});
        match ending {
            Some(ending) => stream::until_end(answer, ending),
            None => answer,
        }
    }

    /// Who sends a request for `page`, or why it is not answered.
    async fn admit(
        &self,
        head: &Parts,
        page: Page,
        parameters: &[(String, String)],
    ) -> Result<Option<Principal>, Box<Response<Body>>> {
        let path = head.uri.path();
        let Common { hosts, guard, tally, .. } = &*self.common;
        if path != ALIVE && !hosts.admit(&head.uri, &head.headers) {
            tally.count_foreign_host();
            return Err(Box::new((StatusCode::MISDIRECTED_REQUEST, FOREIGN).into_response()));
        }
        // A browser sends what a page of elsewhere has it send, with all that it has of this origin.
        if !head.method.is_safe() && !hosts::is_own_origin(&head.headers) {
            tally.count_foreign_host();
            return Err(Box::new((StatusCode::FORBIDDEN, FOREIGN_PAGE).into_response()));
        }
        let right = page.right(&head.uri);
        let asked = AccessRequest {
            method: &head.method,
            path,
            right,
            authorization: head.headers.get(header::AUTHORIZATION),
            cookie: head.headers.get(header::COOKIE),
            certificate: self.certificate.as_ref(),
            from: self.from,
            parameters,
        };
        guard.admit(&asked).await.map_err(|denial| {
            tally.count_unauthorized();
            Box::new(denial.answer(right))
        })
    }
}

/// The answer to a request for a host that is not this one.
const FOREIGN: &str = "the request's Host is none of this process: an address, localhost, this machine's name, or a name given by --admin-hosts\n";
/// The answer to a change that a page of another origin asks for.
const FOREIGN_PAGE: &str = "a page of another origin may change nothing here\n";
/// The answer where all places for a page are taken.
const BUSY: &str = "too many connections ask for this page";
/// The answer where a page that goes on is asked for when all of these have ended.
const ENDING: &str = "stopping";

/// One request and its answer.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, desk: Desk) {
    let limits = desk.common.limits.clone();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(limits.head_bytes)
        .keep_alive(false);
    let answer = service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(desk.answer(request).await));
    let connection = http.serve_connection(TokioIo::new(Stall::new(stream, limits.stalled_within)), answer);
    let mut connection = std::pin::pin!(connection);
    let mut ended = timeout(limits.exchange_within, connection.as_mut()).await;
    if ended.is_err() && desk.goes_on.get().is_some() {
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
    let pages = RwLock::new(Pages::new(routes.into_iter().collect()));
    let head_bytes = limits.head_bytes;
    let hall = Hall::new(limits.clone(), Arc::clone(&tally));
    let (hosts, guard, missing) = (Hosts::new(&[]), Guard::default(), Missing::default());
    let common =
        Common { pages, hosts, guard, tls: None, missing, limits, tally, are_ended: watch::Sender::new(false) };
    let from = [127, 0, 0, 1].into();
    let desk = Desk::new(Arc::new(common), from, None, hall.arrive(from));
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

/// Begins what `serve` starts again whenever it fails or panics, until the task is to stop; `last` runs before it ends.
async fn keep_up(
    task: &Run,
    mut serve: impl FnMut() -> JoinHandle<io::Result<Infallible>>,
    last: impl Future<Output = ()>,
) {
    while !task.is_stopped() {
        let mut serving = serve();
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = task.stopped() => {
                last.await;
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
            keep_up(&task, serve, async {}).await;
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
