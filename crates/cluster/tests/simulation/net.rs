//! The links between proxies and nodes: they delay, lose and cut off, and may leave a guard out.

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use fastrand::Rng;
use moneta_cluster::{Connect, Heard, Node, Opened};
use moneta_memory::Memory;
use moneta_store::board::{Board, Part};
use moneta_store::component::{self, Component, Flush, Health, Parts, Report, Walk};
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Cursor, Cx, Deleted, ErrorKind, Key, KeyHash, Op, Outcome, OwnedKey, OwnedOp, Pending, Put, Reactors, Step,
    Store, StoreError, Version, Visit, Walked, Walking, Written, steps,
};
use parking_lot::Mutex;

use crate::clients::keys;
use crate::common::SEED;

/// What the simulated links leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing: all guards are there.
    None,
    /// Writes arrive without the version that they were made from.
    Base,
    /// Writes that a node has missed are not delivered.
    Hints,
    /// Deletes arrive without leaving a tombstone: as of an ordinary memcached.
    Tombstones,
    /// What is refused for something newer is answered as stored: the proxy does not stamp it anew.
    Stamps,
    /// Flushes arrive without staying a floor: what was written before and arrives later lives.
    Floors,
    /// A node drops everything where a proxy's hints for it overflow.
    Doubt,
    /// What is in doubt is never compared.
    Sweeps,
}

/// The links between all proxies and nodes.
pub struct Net {
    pub rng: Rng,
    pub step: u64,
    /// Futures that go on at a step.
    pub timers: Vec<(u64, Waker)>,
    /// Until which step a link is cut, by proxy and node.
    pub cut: HashMap<(usize, String), u64>,
    /// In a thousand messages, how many are lost on the way there, and how many answers.
    pub loss: u32,
    pub delay: u64,
    pub guard: Guard,
}

/// A node's process: a restart puts an empty one in its place.
pub type Process = Arc<Mutex<Arc<Memory>>>;

/// The boards of nodes, and when their processes began, by the node's clock.
pub type Boards = Arc<Mutex<HashMap<String, (Board, u64)>>>;

pub struct Link {
    pub net: Arc<Mutex<Net>>,
    pub proxy: usize,
    pub name: String,
    pub node: Process,
}

pub fn lost() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "no answer in time")
}

/// Ends at a later step.
pub async fn travel(net: &Arc<Mutex<Net>>) {
    let due = {
        let mut net = net.lock();
        let delay = 1 + net.delay;
        let delay = if net.rng.u8(0..50) == 0 { delay * 20 } else { delay };
        net.step + net.rng.u64(0..delay)
    };
    poll_fn(|context| {
        let mut net = net.lock();
        if net.step >= due {
            return Poll::Ready(());
        }
        net.timers.push((due, context.waker().clone()));
        Poll::Pending
    })
    .await;
}

impl Link {
    /// Whether a message gets through now.
    fn passes(net: &Arc<Mutex<Net>>, proxy: usize, name: &str) -> bool {
        let mut net = net.lock();
        let (step, loss) = (net.step, net.loss);
        net.cut.get(&(proxy, name.to_owned())).is_none_or(|until| *until <= step) && net.rng.u32(0..1000) >= loss
    }

    fn is_cut(net: &Arc<Mutex<Net>>, proxy: usize, name: &str) -> bool {
        let net = net.lock();
        net.cut.get(&(proxy, name.to_owned())).is_some_and(|until| *until > net.step)
    }

    fn exchange<T: 'static>(&self, act: impl FnOnce(&Memory) -> Result<T, StoreError> + 'static) -> Pending<T> {
        let (net, proxy, name, node) = (Arc::clone(&self.net), self.proxy, self.name.clone(), Arc::clone(&self.node));
        let process = Arc::clone(&node.lock());
        Box::pin(async move {
            travel(&net).await;
            if !Self::passes(&net, proxy, &name) {
                travel(&net).await;
                // Where a link is cut, no connection may come up.
                let is_unsent = Self::is_cut(&net, proxy, &name) && net.lock().rng.bool();
                return Err(if is_unsent { lost().not_sent() } else { lost() });
            }
            // A connection ends with the process that it was made to.
            if !Arc::ptr_eq(&process, &node.lock()) {
                return Err(lost());
            }
            let outcome = act(&process);
            travel(&net).await;
            if Self::passes(&net, proxy, &name) { outcome } else { Err(lost()) }
        })
    }
}

impl Store for Link {
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let guard = self.net.lock().guard;
        let (key, mut op) = (OwnedKey::of(key), OwnedOp::of(op));
        match (&mut op, guard) {
            (OwnedOp::Put(_, Put::Newer { base, .. }), Guard::Base) => *base = None,
            (OwnedOp::Bury(_), Guard::Tombstones) => op = OwnedOp::Drop,
            _ => {}
        }
        let buries = matches!(op, OwnedOp::Drop);
        let stores = guard == Guard::Stamps && matches!(op, OwnedOp::Put(_, Put::Newer { base: None, .. }));
        Step::Wait(self.exchange(move |node| {
            let ended = op.with(|op| steps::read_owned(node, &Cx::outside(), &key.key(), op)).now();
            if stores && let Ok(Outcome::Written(Written::Superseded { .. })) = ended {
                return Ok(Outcome::Written(Written::Stored { cas: 0 }));
            }
            if buries { ended.map(|_| Outcome::Deleted(Deleted::Deleted)) } else { ended }
        }))
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        SEED
    }
}

impl Component for Link {
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        Report::default()
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

impl Walk for Link {
    /// All at once: keys may change at any step of a walk anyway.
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if !Self::passes(&self.net, self.proxy, &self.name) {
            return Walking::Wait(Box::pin(async { Err(lost()) }));
        }
        let process = Arc::clone(&self.node.lock());
        Walk::walk(&*process, &Cx::outside(), cursor, show)
    }
}

impl Flush for Link {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        Step::Wait(self.exchange(move |node| component::flush(node, &Cx::outside(), delay).now()))
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        let keeps = self.net.lock().guard != Guard::Floors;
        Step::Wait(self.exchange(move |node| match keeps {
            true => component::floor(node, &Cx::outside(), floor).now(),
            false => {
                keys().for_each(|key| node.forget(&Key::new(key.as_bytes(), SEED)));
                Ok(())
            }
        }))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::Wait(self.exchange(move |node| component::newest(node, &Cx::outside()).now()))
    }

    fn lag(&self) -> u32 {
        0
    }
}

pub struct Links {
    pub net: Arc<Mutex<Net>>,
    pub proxy: usize,
    pub nodes: HashMap<String, Process>,
    pub boards: Boards,
}

impl Connect for Links {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let name = node.address.to_string();
        let node = Arc::clone(self.nodes.get(&name).ok_or("no such node")?);
        let link: Arc<dyn Store> = Arc::new(Link { net: Arc::clone(&self.net), proxy: self.proxy, name, node });
        Ok(link.into())
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }

    fn exchange(&self, node: &Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        let name = node.address.to_string();
        if !Link::passes(&self.net, self.proxy, &name) {
            return None;
        }
        let boards = self.boards.lock();
        let (board, since) = &boards[&name];
        let now = self.net.lock().step;
        let news = board.read(cursor, now);
        let part = post.map(|(author, text)| Part { author, number: 0, count: 1, text });
        let is_posted = part.is_some_and(|part| board.post(part, now));
        let posts = news.posts.into_iter().map(|(author, text)| (author, text.to_vec())).collect();
        Some(Heard { cursor: news.cursor, since: *since, posts, is_posted })
    }
}
