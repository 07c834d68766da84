//! The thread that has a client's connections: an event loop that begins what is asked, turns the store's reactor and ends
//! what is done.

use std::future::poll_fn;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, Stream};
use moneta_background::Run;
use moneta_cluster::Cluster;
use moneta_store::{Clock, Cx, Policy, Reactors, component};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use crate::error::ConnectError;

/// Something under way.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()>>>;
/// Begins something on the thread that has the connections.
pub(crate) type Request = Box<dyn FnOnce(&Cluster, &Cx) -> Running + Send>;

/// Descriptor of a reactor, which outlives it.
struct Watched(RawFd);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// A thread that has been started.
pub(crate) struct Started {
    /// Where it takes requests.
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) cluster: Cluster,
    /// Told when it has ended.
    pub(crate) ended: oneshot::Receiver<()>,
}

/// Starts a thread with the cluster that `open` makes there; at most `in_flight` requests are under way at once.
pub(crate) async fn start(
    in_flight: usize,
    open: impl FnOnce() -> Result<(Cluster, Arc<Clock>), ConnectError> + Send + 'static,
) -> Result<Started, ConnectError> {
    let (requests, queue) = mpsc::channel(in_flight);
    let (opened, is_open) = oneshot::channel();
    let (ended, has_ended) = oneshot::channel();
    let run = move |_: &Run| {
        let made = open().and_then(|(cluster, clock)| Ok((Worker::new(&cluster, clock, queue, in_flight)?, cluster)));
        match made {
            // The caller may have stopped waiting: then there are no requests, and the loop ends at once.
            Ok((worker, cluster)) => {
                let _ = opened.send(Ok(cluster));
                worker.run();
                let _ = ended.send(());
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    };
    let failed = |source| ConnectError::System { what: "no thread", source };
    moneta_background::start("cluster-client", run).map_err(failed)?;
    let gone = |_| ConnectError::System { what: "the thread has ended", source: std::io::ErrorKind::BrokenPipe.into() };
    let cluster = is_open.await.map_err(gone)??;
    Ok(Started { requests, cluster, ended: has_ended })
}

struct Worker {
    cluster: Cluster,
    clock: Arc<Clock>,
    runtime: tokio::runtime::Runtime,
    reactors: Rc<Reactors>,
    queue: mpsc::Receiver<Request>,
    in_flight: usize,
}

impl Worker {
    fn new(
        cluster: &Cluster,
        clock: Arc<Clock>,
        queue: mpsc::Receiver<Request>,
        in_flight: usize,
    ) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::System { what: "no event loop", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let mut reactors = Reactors::default();
        component::attach(cluster, &mut reactors);
        Ok(Self { cluster: cluster.clone(), clock, runtime, reactors: Rc::new(reactors), queue, in_flight })
    }

    /// Serves until there are no handles left and nothing is under way; then brings the store to rest.
    fn run(self) {
        let Self { cluster, clock, runtime, reactors, mut queue, in_flight } = self;
        let cx = Cx::of_worker(Policy::Online, &reactors);
        runtime.block_on(async {
            let watched: Vec<AsyncFd<Watched>> = reactors
                .descriptors()
                // SAFETY: the descriptors are open while `reactors` lives, which is longer than `watched`.
                .filter_map(|fd| unsafe { AsyncFd::register_with_interest(Watched(fd), Interest::READABLE) }.ok())
                .collect();
            let mut running = FuturesUnordered::new();
            poll_fn(|context| {
                let mut is_closed = false;
                loop {
                    clock.refresh();
                    while running.len() < in_flight {
                        match queue.poll_recv(context) {
                            Poll::Ready(Some(request)) => running.push(request(&cluster, &cx)),
                            Poll::Ready(None) => {
                                is_closed = true;
                                break;
                            }
                            Poll::Pending => break,
                        }
                    }
                    end(&mut running, context);
                    // What was begun goes out, and what has come ends requests, which may begin others.
                    reactors.turn();
                    if end(&mut running, context) {
                        continue;
                    }
                    if !has_come(&watched, context) {
                        break;
                    }
                }
                if is_closed && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        reactors.close();
        component::close(&cluster);
    }
}

/// Polls what may go on. Whether something ended.
fn end(running: &mut FuturesUnordered<Running>, context: &mut Context<'_>) -> bool {
    let mut some = false;
    while let Poll::Ready(Some(())) = pin!(&mut *running).poll_next(context) {
        some = true;
    }
    some
}

/// Whether a reactor has something to end; if none has, `context` is woken when one does.
fn has_come(watched: &[AsyncFd<Watched>], context: &mut Context<'_>) -> bool {
    let mut some = false;
    for watched in watched {
        if let Poll::Ready(Ok(mut ready)) = watched.poll_read_ready(context) {
            ready.clear_ready();
            some = true;
        }
    }
    some
}
