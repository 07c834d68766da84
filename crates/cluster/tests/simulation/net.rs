//! The links between proxies and nodes: they delay, lose and cut off, and may leave a guard out.

use std::collections::{HashMap, HashSet};
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
    Calls, Cursor, Cx, Deleted, ErrorKind, ItemRef, Key, KeyHash, Op, Outcome, OwnedKey, OwnedOp, Pending, Put,
    Reactors, ReadSeveral, Step, Store, StoreError, Version, Visit, Walked, Walking, Written, steps,
};
use parking_lot::Mutex;

use crate::clients::{SHARED, keys};
use crate::common::SEED;
use crate::trouble::{LATE, Trouble, lie, newer_than};

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
    /// What was sent nowhere is answered as what may have been taken.
    Unsent,
    /// Proxies believe versions however far ahead they are.
    Ahead,
    /// A listener that allows no client to name versions lets them through.
    Named,
    /// What is refused for something newer does not tell the version of that, but an older one.
    Seen,
    /// What a copy has taken is answered as refused if something newer has come there since.
    Taken,
    /// Changes whose home has died are never settled.
    Settled,
    /// What a node shows that lies is under versions as new as any.
    Told,
    /// A proxy believes advice: it asks no node of which something is said.
    Advice,
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
    /// A node that is bad, and how.
    pub bad: Option<(String, Trouble)>,
    /// A node that takes no connection, as all have found.
    pub dead: Option<String>,
    /// No connection comes up where a link is cut.
    pub refuses: bool,
    /// Values of [`SHARED`] that reached the key's home late, after a set that had begun after they were answered: that set is
    /// answered as stored and is gone, as if they had come after it (docs/reliability.md).
    pub overtaking: HashSet<String>,
    /// What nodes are told of this key, and what they say, is printed.
    pub traced: Option<String>,
    /// Nodes that a proxy does not ask since it believes advice, by proxy and node.
    pub shunned: HashSet<(usize, String)>,
    /// What bad nodes do later, and the steps at which they do.
    pub late: Vec<(u64, Box<dyn FnOnce() + Send>)>,
}

impl Net {
    /// How this node is bad.
    fn trouble(&self, name: &str) -> Trouble {
        self.bad.as_ref().filter(|(bad, _)| bad == name).map_or(Trouble::None, |(_, trouble)| *trouble)
    }
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
        if net.shunned.contains(&(proxy, name.to_owned())) {
            return false;
        }
        net.cut.get(&(proxy, name.to_owned())).is_none_or(|until| *until <= step) && net.rng.u32(0..1000) >= loss
    }

    fn is_cut(net: &Arc<Mutex<Net>>, proxy: usize, name: &str) -> bool {
        let net = net.lock();
        net.cut.get(&(proxy, name.to_owned())).is_some_and(|until| *until > net.step)
    }

    /// Whether a bad node does what it is told now only after the proxy has given up.
    fn is_late(net: &Arc<Mutex<Net>>, name: &str) -> bool {
        let mut net = net.lock();
        net.trouble(name) == Trouble::Late && net.rng.u8(0..4) == 0
    }

    /// Has the node act, and brings the proxy what it then tells of that.
    fn exchange<T: 'static>(
        &self,
        act: impl FnOnce(&Memory) -> Result<T, StoreError> + Send + 'static,
        told: impl FnOnce(&Memory, Result<T, StoreError>) -> Result<T, StoreError> + 'static,
    ) -> Pending<T> {
        let (net, proxy, name, node) = (Arc::clone(&self.net), self.proxy, self.name.clone(), Arc::clone(&self.node));
        let process = Arc::clone(&node.lock());
        Box::pin(async move {
            travel(&net).await;
            if !Self::passes(&net, proxy, &name) {
                travel(&net).await;
                // Where a link is cut, no connection may come up.
                let is_unsent = Self::is_cut(&net, proxy, &name) && {
                    let mut net = net.lock();
                    net.guard != Guard::Unsent && (net.rng.bool() || net.refuses)
                };
                return Err(if is_unsent { lost().not_sent() } else { lost() });
            }
            // A connection ends with the process that it was made to.
            if !Arc::ptr_eq(&process, &node.lock()) {
                return Err(lost());
            }
            if Self::is_late(&net, &name) {
                let mut net = net.lock();
                let due = net.step + net.rng.u64(1..LATE);
                net.late.push((due, Box::new(move || drop(act(&process)))));
                return Err(lost());
            }
            let outcome = act(&process);
            travel(&net).await;
            if Self::passes(&net, proxy, &name) { told(&process, outcome) } else { Err(lost()) }
        })
    }
}

/// The value that a node holds of a key.
fn value(node: &Memory, key: &Key<'_>) -> Option<String> {
    let mut value = None;
    let mut see = |item: &ItemRef<'_>| value = Some(String::from_utf8_lossy(&item.value.to_vec()).into_owned());
    let _ = node.peek(key, &mut see).now();
    value
}

/// What a node has told arrives as it was told.
fn as_it_is<T>(_: &Memory, told: Result<T, StoreError>) -> Result<T, StoreError> {
    told
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
        let (net, proxy, name) = (Arc::clone(&self.net), self.proxy, self.name.clone());
        let sent = OwnedOp::clone(&op);
        let told = {
            let (key, net) = (key.clone(), Arc::clone(&net));
            move |node: &Memory, ended: Result<Outcome, StoreError>| match ended {
                Ok(Outcome::Written(Written::Superseded { .. })) if net.lock().guard == Guard::Seen => {
                    Ok(Written::Superseded { by: Version(1) }.into())
                }
                ended if net.lock().guard == Guard::Taken => match newer_than(node, &key.key(), &sent) {
                    Some(by) if matches!(sent, OwnedOp::Put(..)) => Ok(Written::Superseded { by }.into()),
                    Some(by) => Ok(Deleted::Superseded { by }.into()),
                    None => ended,
                },
                ended => ended,
            }
        };
        let act = move |node: &Memory| {
            let lie = {
                let net = &mut *net.lock();
                lie(net.trouble(&name), net, node, &key, &op)
            };
            if let Some(lie) = lie {
                if net.lock().traced.as_deref().is_some_and(|traced| traced.as_bytes() == key.key().bytes) {
                    eprintln!("{} proxy {proxy} {name}: {op:?} => LIE {lie:?}", net.lock().step);
                }
                return lie;
            }
            let ended = op.with(|op| steps::read_owned(node, &Cx::outside(), &key.key(), op)).now();
            if stores && let Ok(Outcome::Written(Written::Superseded { .. })) = ended {
                return Ok(Outcome::Written(Written::Stored { cas: 0 }));
            }
            let net = &mut *net.lock();
            if net.traced.as_deref().is_some_and(|traced| traced.as_bytes() == key.key().bytes) {
                eprintln!("{} proxy {proxy} {name}: {op:?} => {ended:?}", net.step);
            }
            if let (OwnedOp::Put(_, Put::Newer { base: Some(_), .. }), Ok(Outcome::Written(Written::Superseded { .. }))) =
                (&op, &ended)
                && key.key().bytes == SHARED.as_bytes()
            {
                net.overtaking.extend(value(node, &key.key()));
            }
            if buries { ended.map(|_| Outcome::Deleted(Deleted::Deleted)) } else { ended }
        };
        Step::Wait(self.exchange(act, told))
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
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
        Health { unready: self.net.lock().dead.as_ref() == Some(&self.name), ..Health::default() }
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
        Step::Wait(self.exchange(move |node| component::flush(node, &Cx::outside(), delay).now(), as_it_is))
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        let keeps = self.net.lock().guard != Guard::Floors;
        let act = move |node: &Memory| match keeps {
            true => component::floor(node, &Cx::outside(), floor).now(),
            false => {
                keys().for_each(|key| node.forget(&Key::new(key.as_bytes(), SEED)));
                Ok(())
            }
        };
        Step::Wait(self.exchange(act, as_it_is))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        let (net, name) = (Arc::clone(&self.net), self.name.clone());
        let act = move |node: &Memory| match net.lock().trouble(&name) {
            Trouble::Future => Ok(Version(u64::MAX)),
            _ => component::newest(node, &Cx::outside()).now(),
        };
        Step::Wait(self.exchange(act, as_it_is))
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
