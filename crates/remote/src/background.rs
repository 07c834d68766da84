//! The background thread that makes requests for threads without an event loop: tools, dumps, tests.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_background::{Joined, Run, Task};
use moneta_store::{Clock, ErrorKind};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::connection::{OwnedRequest, Target};
use crate::failure::Failure;
use crate::promise::Promise;
use crate::shared::ServerShared;
use crate::worker_client::WorkerClient;

/// The background thread. Dropping it ends the thread and fails its requests.
pub(crate) struct Background {
    mailbox: Arc<Mailbox>,
    thread: Option<Task>,
}

struct Mailbox {
    jobs: Mutex<Vec<Job>>,
    bell: OwnedFd,
    over: AtomicBool,
}

/// A request on its way to the thread.
struct Job {
    request: OwnedRequest,
    hash: u64,
    promise: Option<Arc<Promise>>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(shared: &Arc<ServerShared>, clock: &Arc<Clock>) -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mailbox = Arc::new(Mailbox { jobs: Mutex::default(), bell, over: AtomicBool::new(false) });
        let (shared, clock, theirs) = (Arc::clone(shared), Arc::clone(clock), Arc::clone(&mailbox));
        let run = move |_: &Run| match WorkerClient::new(&shared)
            .and_then(|client| client.watch(&theirs.bell).map(|()| client))
        {
            Ok(client) => serve(&client, &theirs, &clock),
            Err(error) => {
                theirs.over.store(true, Ordering::SeqCst);
                theirs.refuse(&format!("no connections to {} can be made: {error}", shared.config.endpoint.address));
            }
        };
        let thread = moneta_background::start("remote", run)?;
        Ok(Self { mailbox, thread: Some(thread) })
    }

    /// Hands a request over; `promise` is to have the answer.
    pub(crate) fn submit(&self, request: OwnedRequest, hash: u64, promise: Option<Arc<Promise>>) {
        let first = {
            let mut jobs = self.mailbox.jobs.lock();
            jobs.push(Job { request, hash, promise });
            jobs.len() == 1
        };
        if self.mailbox.over.load(Ordering::SeqCst) {
            self.mailbox.refuse("the store is closed");
        } else if first {
            self.mailbox.ring();
        }
    }

    /// Ends the thread and waits for it.
    fn end(&mut self) {
        self.mailbox.over.store(true, Ordering::SeqCst);
        self.mailbox.ring();
        if let Some(thread) = self.thread.take()
            && thread.join() == Joined::Panicked
        {
            tracing::error!("the thread of a remote store panicked");
        }
        self.mailbox.refuse("the store is closed");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

impl Mailbox {
    fn ring(&self) {
        if let Err(error) = rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake the thread of a remote store");
        }
    }

    /// Fails the queued requests without sending them.
    fn refuse(&self, reason: &str) {
        let failure = Failure::new(ErrorKind::Unreachable, reason).not_sent();
        for Job { promise, .. } in std::mem::take(&mut *self.jobs.lock()) {
            promise.into_iter().for_each(|promise| promise.fail(failure.clone()));
        }
    }
}

fn serve(client: &WorkerClient, mailbox: &Mailbox, clock: &Clock) {
    while !mailbox.over.load(Ordering::SeqCst) {
        clock.refresh();
        let jobs = std::mem::take(&mut *mailbox.jobs.lock());
        for Job { request, hash, promise } in jobs {
            let target = promise.as_ref().map_or(Target::Unanswered, |promise| Target::Shared(Arc::clone(promise)));
            if let Err(error) = client.begin_for(&request.as_ref(), hash, target)
                && let Some(promise) = promise
            {
                let failure = Failure::new(error.kind(), error.to_string());
                promise.fail(if error.is_unsent() { failure.not_sent() } else { failure });
            }
        }
        client.exchange();
        if mailbox.jobs.lock().is_empty() {
            client.wait();
        }
    }
}
