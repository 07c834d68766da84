//! A cluster's I/O on one worker: the connections to all nodes, and the tasks that outlive the requests they began with.

use std::cell::RefCell;
use std::future::Future;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, Stream};
use moneta_store::{Cx, Policy, Reactor, Reactors, component};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::layout::Layout;
use crate::node::Node;

/// What goes on after a request was answered.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A layout with this worker's connections to its nodes.
pub(crate) struct Attached {
    pub(crate) layout: Arc<Layout>,
    /// In the order of [`Layout::nodes`].
    reactors: Vec<Rc<Reactors>>,
}

impl Attached {
    /// The context of an operation on a node.
    pub(crate) fn cx(&self, node: usize, policy: Policy) -> Cx {
        Cx::of_worker(policy, &self.reactors[node])
    }
}

/// A cluster's reactor on one worker.
pub(crate) struct ClusterReactor {
    /// Watches the nodes' descriptors. Never polled itself: a turn gives every node its turn.
    queue: OwnedFd,
    attached: RefCell<Rc<Attached>>,
    /// Connections to nodes that have left, until the requests on them have ended.
    leaving: RefCell<Vec<Rc<Reactors>>>,
    tasks: RefCell<FuturesUnordered<Task>>,
    /// Tasks that were added while the others were polled.
    added: RefCell<Vec<Task>>,
}

impl ClusterReactor {
    /// # Errors
    /// When the system has no descriptor for it.
    pub(crate) fn new(layout: &Arc<Layout>) -> Result<Self, Errno> {
        let queue = epoll::create(CreateFlags::CLOEXEC)?;
        let reactors = layout.nodes.iter().map(|node| attach(node, &queue)).collect();
        Ok(Self {
            queue,
            attached: RefCell::new(Rc::new(Attached { layout: Arc::clone(layout), reactors })),
            leaving: RefCell::default(),
            tasks: RefCell::default(),
            added: RefCell::default(),
        })
    }

    /// The connections to the nodes of `layout`, which is the current one.
    #[inline]
    pub(crate) fn attached(&self, layout: impl FnOnce() -> Arc<Layout>, generation: u64) -> Rc<Attached> {
        let attached = Rc::clone(&self.attached.borrow());
        if attached.layout.generation == generation { attached } else { self.change(&attached, &layout()) }
    }

    /// Keeps the connections to nodes that stay, and connects to those that are new.
    #[cold]
    fn change(&self, old: &Attached, layout: &Arc<Layout>) -> Rc<Attached> {
        let known = |node: &Arc<Node>| old.layout.nodes.iter().position(|other| Arc::ptr_eq(node, other));
        let reactors = layout.nodes.iter().map(|node| match known(node) {
            Some(at) => Rc::clone(&old.reactors[at]),
            None => attach(node, &self.queue),
        });
        let attached = Rc::new(Attached { layout: Arc::clone(layout), reactors: reactors.collect() });
        let stays = |reactors: &Rc<Reactors>| attached.reactors.iter().any(|other| Rc::ptr_eq(other, reactors));
        let leaving = old.reactors.iter().filter(|reactors| !stays(reactors)).map(Rc::clone);
        self.leaving.borrow_mut().extend(leaving);
        *self.attached.borrow_mut() = Rc::clone(&attached);
        attached
    }

    /// Goes on with `task` in the turns to come.
    pub(crate) fn spawn(&self, task: Task) {
        self.added.borrow_mut().push(task);
    }

    fn turn_tasks(&self) {
        // A task that is polled may add others and may begin requests, but never turns the reactor.
        let Ok(mut tasks) = self.tasks.try_borrow_mut() else { return };
        loop {
            tasks.extend(self.added.borrow_mut().drain(..));
            let mut tasks = pin!(&mut *tasks);
            while let Poll::Ready(Some(())) = tasks.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {}
            if self.added.borrow().is_empty() {
                return;
            }
        }
    }
}

/// Connects this worker to a node. Without a descriptor for it, requests use threads.
fn attach(node: &Node, queue: &OwnedFd) -> Rc<Reactors> {
    let mut reactors = Reactors::default();
    component::attach(&*node.store, &mut reactors);
    let watched = reactors.descriptors().all(|descriptor| {
        // SAFETY: the descriptor is open for as long as its reactor lives, which `reactors` holds.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        epoll::add(queue, descriptor, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).is_ok()
    });
    if !watched {
        tracing::warn!(node = node.name, "the node's connections cannot be waited for: requests use threads");
        reactors.close();
    }
    Rc::new(reactors)
}

impl Reactor for ClusterReactor {
    fn descriptor(&self) -> RawFd {
        self.queue.as_raw_fd()
    }

    fn turn(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        attached.reactors.iter().for_each(|reactors| reactors.turn());
        if !self.leaving.borrow().is_empty() {
            self.leaving.borrow_mut().retain(|reactors| {
                reactors.turn();
                Rc::strong_count(reactors) > 1
            });
        }
        if !self.tasks.borrow().is_empty() || !self.added.borrow().is_empty() {
            self.turn_tasks();
            // What they began is to be sent now.
            attached.reactors.iter().for_each(|reactors| reactors.turn());
        }
    }

    fn close(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        attached.reactors.iter().for_each(|reactors| reactors.close());
        self.leaving.borrow_mut().drain(..).for_each(|reactors| reactors.close());
        // They see that their requests have failed, and keep note of it.
        self.turn_tasks();
        self.tasks.borrow_mut().clear();
    }
}
