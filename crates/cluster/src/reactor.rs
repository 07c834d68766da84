//! A cluster's I/O on one worker: the connections to all nodes, and the tasks that outlive the requests they began with.

use std::cell::RefCell;
use std::future::Future;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, Stream};
use moneta_store::{Cx, Policy, Reactor, Reactors, component};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::counters::Reads;
use crate::layout::Layout;
use crate::node::Node;

/// What goes on after a request was answered.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A layout with this worker's connections to its nodes.
pub(crate) struct Attached {
    pub(crate) layout: Arc<Layout>,
    /// In the order of [`Layout::nodes`].
    reactors: Vec<Rc<Reactors>>,
    /// Nodes on which something was begun since their last turn.
    begun: RefCell<SmallVec<[usize; 16]>>,
}

impl Attached {
    /// The context of an operation on a node, whose connections get a turn for it.
    #[inline]
    pub(crate) fn cx(&self, node: usize, policy: Policy) -> Cx {
        let mut begun = self.begun.borrow_mut();
        if !begun.contains(&node) {
            begun.push(node);
        }
        Cx::of_worker(policy, &self.reactors[node])
    }

    fn turn(&self, node: usize) {
        if let Some(reactors) = self.reactors.get(node) {
            reactors.turn();
        }
    }

    /// Sends what was begun.
    fn send(&self) {
        let begun = std::mem::take(&mut *self.begun.borrow_mut());
        begun.into_iter().for_each(|node| self.turn(node));
    }

    /// Whether something was begun and not sent.
    fn has_begun(&self) -> bool {
        !self.begun.borrow().is_empty()
    }

    /// A turn of a node from which something has come. What was begun on it is sent later if `reap` says so.
    fn receive(&self, node: usize, reap: bool) {
        match self.reactors.get(node) {
            Some(reactors) if reap && self.begun.borrow().contains(&node) => reactors.reap(),
            _ => self.turn(node),
        }
    }
}

/// A cluster's reactor on one worker.
pub(crate) struct ClusterReactor {
    /// Watches the nodes' descriptors, each with its index.
    queue: OwnedFd,
    attached: RefCell<Rc<Attached>>,
    /// Those of before that requests under way go on with.
    former: RefCell<Vec<Rc<Attached>>>,
    /// Connections to nodes that have left, until the requests on them have ended.
    leaving: RefCell<Vec<Rc<Reactors>>>,
    tasks: RefCell<FuturesUnordered<Task>>,
    /// Tasks that were added while the others were polled.
    added: RefCell<Vec<Task>>,
    /// How this worker's reads ended.
    pub(crate) reads: Arc<Reads>,
}

impl ClusterReactor {
    /// # Errors
    /// When the system has no descriptor for it.
    pub(crate) fn new(layout: &Arc<Layout>, reads: Arc<Reads>) -> Result<Self, Errno> {
        let queue = epoll::create(CreateFlags::CLOEXEC)?;
        let reactors = layout.nodes.iter().enumerate().map(|(index, node)| attach(node, index, &queue)).collect();
        Ok(Self {
            queue,
            attached: RefCell::new(Rc::new(Attached {
                layout: Arc::clone(layout),
                reactors,
                begun: RefCell::default(),
            })),
            former: RefCell::default(),
            leaving: RefCell::default(),
            tasks: RefCell::default(),
            added: RefCell::default(),
            reads,
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
    fn change(&self, old: &Rc<Attached>, layout: &Arc<Layout>) -> Rc<Attached> {
        let known = |node: &Arc<Node>| old.layout.nodes.iter().position(|other| Arc::ptr_eq(node, other));
        let reactors = layout.nodes.iter().enumerate().map(|(index, node)| match known(node) {
            Some(at) => {
                let reactors = Rc::clone(&old.reactors[at]);
                watch(&reactors, index, |descriptor, data| epoll::modify(&self.queue, descriptor, data, EVENTS));
                reactors
            }
            None => attach(node, index, &self.queue),
        });
        let reactors = reactors.collect();
        // What was begun before is sent, and what has come is taken, whatever the numbers of its node are.
        old.reactors.iter().for_each(|reactors| reactors.turn());
        let attached = Rc::new(Attached { layout: Arc::clone(layout), reactors, begun: RefCell::default() });
        let stays = |reactors: &Rc<Reactors>| attached.reactors.iter().any(|other| Rc::ptr_eq(other, reactors));
        let leaving = old.reactors.iter().filter(|reactors| !stays(reactors)).map(Rc::clone);
        self.leaving.borrow_mut().extend(leaving);
        self.former.borrow_mut().push(Rc::clone(old));
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

/// What is watched for: that something has come since the last turn.
const EVENTS: EventFlags = EventFlags::IN.union(EventFlags::ET);
/// Events taken at once.
const TAKEN: usize = 32;

/// Has the descriptors of a node's reactors watched. False if one cannot be.
fn watch(
    reactors: &Reactors,
    index: usize,
    watch: impl Fn(BorrowedFd<'_>, EventData) -> rustix::io::Result<()>,
) -> bool {
    reactors.descriptors().all(|descriptor| {
        // SAFETY: the descriptor is open for as long as its reactor lives, which `reactors` holds.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        watch(descriptor, EventData::new_u64(index as u64)).is_ok()
    })
}

/// Connects this worker to a node. Without a descriptor for it, requests use threads.
fn attach(node: &Node, index: usize, queue: &OwnedFd) -> Rc<Reactors> {
    let mut reactors = Reactors::default();
    component::attach(&*node.store, &mut reactors);
    if !watch(&reactors, index, |descriptor, data| epoll::add(queue, descriptor, data, EVENTS)) {
        tracing::warn!(node = node.name, "the node's connections cannot be waited for: requests use threads");
        reactors.close();
    }
    Rc::new(reactors)
}

impl ClusterReactor {
    /// Sends what was begun, also by requests that go on with the layout with which they began.
    fn send(&self, attached: &Attached) {
        attached.send();
        self.former.borrow().iter().for_each(|former| former.send());
    }

    fn has_begun(&self, attached: &Attached) -> bool {
        attached.has_begun() || self.former.borrow().iter().any(|former| former.has_begun())
    }

    /// Takes what has come from nodes. What was begun on them is left to be sent if `reap` says so.
    fn receive(&self, attached: &Attached, reap: bool) {
        let mut events = [MaybeUninit::uninit(); TAKEN];
        loop {
            let (some, _) = match epoll::wait(&self.queue, &mut events, Some(&Timespec::default())) {
                Ok(taken) => taken,
                Err(_) => return,
            };
            some.iter().for_each(|event| attached.receive(event.data.u64() as usize, reap));
            if some.len() < TAKEN {
                return;
            }
        }
    }

    /// Takes what has come, and goes on with tasks.
    fn end(&self, attached: &Attached, reap: bool) {
        self.receive(attached, reap);
        if !self.former.borrow().is_empty() {
            self.former.borrow_mut().retain(|former| Rc::strong_count(former) > 1);
        }
        if !self.leaving.borrow().is_empty() {
            self.leaving.borrow_mut().retain(|reactors| {
                reactors.turn();
                Rc::strong_count(reactors) > 1
            });
        }
        if !self.tasks.borrow().is_empty() || !self.added.borrow().is_empty() {
            self.turn_tasks();
        }
    }
}

impl Reactor for ClusterReactor {
    fn descriptor(&self) -> RawFd {
        self.queue.as_raw_fd()
    }

    fn turn(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        self.send(&attached);
        self.end(&attached, false);
        self.send(&attached);
    }

    fn reap(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        self.end(&attached, true);
    }

    /// A send costs as much of the processor as all else that a request needs, and takes any number of requests.
    fn gathers(&self) -> bool {
        self.has_begun(&self.attached.borrow())
    }

    /// The replies to what was begun come later, and the queue tells of them. A node's turn may also take replies that are there,
    /// which the queue does not tell of any more: tasks that wait for them go on before the thread sleeps.
    fn submit(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        loop {
            if !self.added.borrow().is_empty() || !self.tasks.borrow().is_empty() {
                self.turn_tasks();
            }
            if !self.has_begun(&attached) {
                return;
            }
            self.send(&attached);
        }
    }

    fn is_eager(&self) -> bool {
        false
    }

    fn close(&self) {
        let attached = Rc::clone(&self.attached.borrow());
        attached.reactors.iter().for_each(|reactors| reactors.close());
        self.leaving.borrow_mut().drain(..).for_each(|reactors| reactors.close());
        self.former.borrow_mut().clear();
        // They see that their requests have failed, and keep note of it.
        self.turn_tasks();
        self.tasks.borrow_mut().clear();
    }
}
