//! One operation's view of the cluster: the current layout, and this worker's connections to its nodes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_store::request::Retrieve;
use moneta_store::{
    Cx, Deleted, ErrorKind, Key, Lookup, Op, Outcome, PendingReads, Step, StoreError, Version, Written, steps,
};

use crate::counters::Reads;
use crate::hints::Missed;
use crate::layout::Layout;
use crate::node::{Node, is_busy, is_unwell};
use crate::reactor::{Attached, ClusterReactor, Task};
use crate::shared::ClusterShared;

/// Who asks, and what the cluster looked like then.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<ClusterShared>,
    cx: Cx,
    at: At,
}

#[derive(Clone)]
enum At {
    Worker(Rc<ClusterReactor>, Rc<Attached>),
    /// A thread that has no connections: the nodes' stores have threads for those.
    Outside(Arc<Layout>),
}

impl Call {
    pub(crate) fn new(shared: &Arc<ClusterShared>, cx: &Cx) -> Self {
        let at = match cx.reactor::<ClusterReactor>(shared.slot) {
            Some(reactor) => {
                let attached = reactor.attached(|| shared.layout(), shared.generation());
                At::Worker(reactor, attached)
            }
            None => At::Outside(shared.layout()),
        };
        Self { shared: Arc::clone(shared), cx: cx.clone(), at }
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        match &self.at {
            At::Worker(_, attached) => &attached.layout,
            At::Outside(layout) => layout,
        }
    }

    pub(crate) fn node(&self, node: usize) -> &Arc<Node> {
        &self.layout().nodes[node]
    }

    /// Takes note of a write of this client that a node lacks.
    pub(crate) fn note_missed(&self, node: usize, key: &[u8], missed: Missed) {
        self.node(node).hints.note_of(self.cx.client(), key, missed);
    }

    /// Where it is counted how reads end.
    #[inline]
    pub(crate) fn reads(&self) -> &Reads {
        match &self.at {
            At::Worker(reactor, _) => &reactor.reads,
            At::Outside(_) => &self.shared.counters.reads.outside,
        }
    }

    /// Begins an operation on a node. What it reads is copied.
    pub(crate) fn begin(&self, node: usize, key: &Key<'_>, op: Op<'_>) -> Step {
        let store = &*self.node(node).store;
        match &self.at {
            At::Worker(_, attached) => steps::read_owned(store, &attached.cx(node, self.cx.policy()), key, op),
            At::Outside(_) => steps::read_owned(store, &Cx::outside().under(self.cx.policy()), key, op),
        }
    }

    /// Begins reads on a node together. `None`: they are to be begun one by one.
    pub(crate) fn begin_several(&self, node: usize, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        match &self.at {
            At::Worker(_, attached) => {
                self.node(node).store.together()?.read_several(&attached.cx(node, self.cx.policy()), keys, request)
            }
            At::Outside(_) => None,
        }
    }

    /// Does something with a node's store.
    pub(crate) fn begin_on<T>(&self, node: usize, begin: impl FnOnce(&dyn moneta_store::Store, &Cx) -> T) -> T {
        let store = &*self.node(node).store;
        match &self.at {
            At::Worker(_, attached) => begin(store, &attached.cx(node, self.cx.policy())),
            At::Outside(_) => begin(store, &Cx::outside().under(self.cx.policy())),
        }
    }

    /// Takes note of how a node ended an operation.
    #[inline]
    pub(crate) fn note<T>(&self, node: usize, ended: &Result<T, StoreError>) {
        match ended {
            Ok(_) => self.node(node).health.note_answer(),
            Err(error) => self.note_error(self.node(node), error),
        }
    }

    #[cold]
    fn note_error(&self, node: &Node, error: &StoreError) {
        if is_unwell(error) {
            return self.shared.note_failure(node, error);
        }
        if is_busy(error) {
            return;
        }
        node.health.note_answer();
        match error.kind() {
            ErrorKind::CatchingUp => node.health.note_behind(self.shared.clock.millis()),
            // Another server has its address now.
            ErrorKind::NoVersions => node.versions.note_none(self.shared.clock.millis()),
            _ => {}
        }
    }

    /// Takes note of how a node ended an operation, and takes it as a failure where it tells of a version from the future.
    #[inline]
    pub(crate) fn heard(&self, node: usize, ended: Result<Outcome, StoreError>) -> Result<Outcome, StoreError> {
        self.note(node, &ended);
        self.shared.believed(self.node(node), ended)
    }

    /// [`ClusterShared::is_from_the_future`].
    #[inline]
    pub(crate) fn is_from_the_future(&self, version: Version, millis: u64) -> bool {
        self.shared.is_from_the_future(version, millis)
    }

    /// [`ClusterShared::doubt`].
    pub(crate) fn doubt(&self, node: usize) -> StoreError {
        self.shared.doubt(self.node(node))
    }

    /// Goes on with `task` after the answer. Threads without connections wait for it.
    pub(crate) async fn behind(&self, task: Task) {
        match &self.at {
            At::Worker(reactor, _) => reactor.spawn(task),
            At::Outside(_) => task.await,
        }
    }

    /// Begins a task that is not waited for. On a thread without connections it is dropped once its requests were begun.
    pub(crate) fn spawn(&self, mut task: Task) {
        match &self.at {
            At::Worker(reactor, _) => reactor.spawn(task),
            At::Outside(_) => {
                let _ = task.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            }
        }
    }
}

impl ClusterShared {
    /// What a node has told, as a failure where it tells of a version from the future: that is not learned, and stands for
    /// nothing that the key holds.
    #[inline]
    pub(crate) fn believed(&self, node: &Node, ended: Result<Outcome, StoreError>) -> Result<Outcome, StoreError> {
        let told = match &ended {
            Ok(Outcome::Read(Lookup::Found(item))) => item.meta.version(),
            Ok(Outcome::Written(Written::Superseded { by }) | Outcome::Deleted(Deleted::Superseded { by })) => *by,
            _ => return ended,
        };
        match self.is_from_the_future(told, self.clock.millis()) {
            true => Err(self.doubt(node)),
            false => ended,
        }
    }

    /// Whether a version is further ahead of cluster time than any clock may be. `millis`: a moment that has passed, since the
    /// Unix epoch.
    #[inline]
    pub(crate) fn is_from_the_future(&self, version: Version, millis: u64) -> bool {
        self.stamps.is_ahead(version, millis) && self.stamps.is_ahead(version, self.clock.millis())
    }

    /// A node has told of a version from the future, or this process's clock is behind: both are looked after.
    #[cold]
    pub(crate) fn doubt(&self, node: &Node) -> StoreError {
        // Reads and changes go by other copies for a while.
        node.health.note_behind(self.clock.millis());
        if node.future.fetch_add(1, Ordering::Relaxed) == 0 {
            let (app, node) = (&self.config.app, &node.name);
            tracing::warn!(app, node, "the node answers with versions from the future: such answers are not believed");
        }
        self.doubts_clock.store(true, Ordering::Relaxed);
        StoreError::new(ErrorKind::ClockAhead, "a copy answers with a version from the future")
    }
}
