//! Nodes, proxies and what happens to them, step by step.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use moneta_cluster::sources::{Advice, Advised};
use moneta_cluster::{Ack, Cluster, ClusterConfig, NodeStatus, Topology, Writer};
use moneta_memory::Memory;
use moneta_store::board::Board;
use moneta_store::versions::Floor;
use moneta_store::{Calls, Clock, Cx, ItemRef, Key, Origin, Reactors, Version, component, steps};
use parking_lot::Mutex;

use crate::clients::{Books, CLIENTS, COUNTER, SHARED, SKEW, client, flusher, key_of, keys, sharer};
use crate::common::{SEED, memory, topology};
use crate::net::{Boards, Guard, Links, Net, Process};
use crate::others::{
    FLOOD, LOCK, NAMED, SETTLED, SETTLED_IN_DOUBT, flood_key, flooder, forger, locker, mourner, namer,
};
use crate::trouble::{CUT, DIES, FOUND, Trouble};

pub const START: u64 = 1_790_000_000_000;
const PROXIES: usize = 2;
const NODES: usize = 2;
/// Clients that set one key.
const SHARERS: usize = 4;
/// One of so many sets of a key that others set all the time may be outrun by them, at most: whose proxy's clock is behind those
/// of others gives up after some tries.
const OUTRUN: u64 = 50;
/// Clients that take one lock.
const LOCKERS: usize = 4;
/// Clients that name versions.
const NAMERS: usize = 3;
const STEPS: u64 = 3000;
/// Steps after these in which everything comes to rest; and at most, while keys are in doubt: the pauses between two passes
/// through them double while some cannot be decided.
const REST: u64 = 5_000;
const REST_IN_DOUBT: u64 = 60_000;
/// How long nodes keep what was written, in milliseconds: longer than a message travels or a hint waits.
const KEPT: u64 = 1200;
/// How long a node that was killed is away, in steps, and how many steps pass between two kills, about.
const AWAY: u64 = 200;
const KILLED_EVERY: u32 = 600;
/// Steps between two words of the adviser.
const ADVISED_EVERY: u64 = 50;
/// Bytes of hints for a node where they overflow: one of them.
const FEW_HINTS: u64 = 130;
/// The same where nodes restart at once.
const KILLED_OFTEN: u32 = 100;

pub struct Proxy {
    pub cluster: Cluster,
    pub clock: Arc<Clock>,
    pub reactors: Rc<Reactors>,
}

pub struct World {
    pub net: Arc<Mutex<Net>>,
    pub nodes: Vec<(String, Process, Arc<Clock>)>,
    pub proxies: Vec<Rc<Proxy>>,
    /// Whether links are cut: then proxies may disagree about a key's home for a while.
    pub cuts: bool,
    /// Whether nodes evict items.
    pub evicts: bool,
    /// The zone whose nodes are killed and come back empty.
    pub restarts: Option<usize>,
    /// The node that is bad, or dies.
    bad: usize,
    pub extras: Extras,
    pub boards: Boards,
    /// Proxies and nodes whose overflow was seen, and the share of keys in doubt then, for [`Guard::Doubt`].
    overflowed: RefCell<HashMap<(usize, usize), f64>>,
    pub books: Rc<RefCell<Books>>,
}

/// What goes on beside the clients with a key each.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// Proxies flush all nodes now and then.
    pub flushes: bool,
    /// Clients of all proxies set and read one key.
    pub shares: bool,
    /// Nodes of one zone are killed often, and restart at once.
    pub restarts: bool,
    /// Proxies have room for few hints.
    pub overflows: bool,
    /// Clients take a lock.
    pub locks: bool,
    /// Clients name versions.
    pub names: Names,
    /// Proxies are advised on the nodes' states, and the advice is late, false, and another one for each.
    pub advice: bool,
    /// What goes wrong; then nothing else does.
    pub trouble: Trouble,
}

/// Whether clients name versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    None,
    /// Their listener allows it.
    Allowed,
    /// Their listener refuses it.
    Refused,
}

impl World {
    pub fn new(seed: u64, guard: Guard, extras: Extras) -> Self {
        let mut rng = Rng::with_seed(seed);
        let topology: Topology = topology(NODES);
        let (loss, delay) = (if rng.bool() { 0 } else { rng.u32(0..40) }, rng.u64(0..12));
        let (trouble, is_alone) = (extras.trouble, extras.trouble != Trouble::None);
        let net = Net {
            rng: rng.fork(),
            step: 0,
            timers: Vec::new(),
            cut: HashMap::new(),
            loss: if is_alone || extras.locks || extras.names != Names::None { 0 } else { loss },
            delay,
            guard,
            bad: None,
            refuses: trouble == Trouble::Refused,
            dead: None,
            overtaking: HashSet::new(),
            shunned: HashSet::new(),
            traced: std::env::var("MONETA_TRACE").ok(),
            late: Vec::new(),
        };
        let net = Arc::new(Mutex::new(net));
        let skew = |rng: &mut Rng| START + rng.u64(0..SKEW);
        let clock = |rng: &mut Rng| {
            let clock = Arc::new(Clock::manual(0));
            clock.set_millis(skew(rng));
            clock
        };
        let mut nodes = Vec::new();
        for node in topology.replicas.iter().flat_map(|replica| &replica.nodes) {
            let clock = clock(&mut rng);
            let store = Arc::new(Mutex::new(Arc::new(memory(&clock, nodes.len() as u8, 64 << 20, 1 << 20))));
            // So that each can tell what was deleted.
            clock.advance_millis(1000);
            nodes.push((node.address.to_string(), store, clock));
        }
        let boards: Boards = Arc::default();
        for (name, _, clock) in &nodes {
            boards.lock().insert(name.clone(), (Board::default(), clock.millis() - 1000));
        }
        let proxy = |number: usize, rng: &mut Rng| {
            let clock = clock(rng);
            clock.advance_millis(1000);
            let nodes = nodes.iter().map(|(name, store, _)| (name.clone(), Arc::clone(store))).collect();
            let links = Links { net: Arc::clone(&net), proxy: number, nodes, boards: Arc::clone(&boards) };
            let config = ClusterConfig {
                // Where all are wanted, one that is bad fails all.
                ack: [Ack::Quorum, if is_alone { Ack::Quorum } else { Ack::All }][rng.usize(0..2)],
                zone: Some(["a", "b", "c"][number].into()),
                probe_min: Duration::from_millis(50),
                retry_budget: 100,
                allow_flush: true,
                hint_bytes: if extras.overflows || trouble == Trouble::Silent { FEW_HINTS } else { 16 << 20 },
                clock_skew_max: match guard {
                    Guard::Ahead => Duration::from_secs(10 * 365 * 86_400),
                    _ => ClusterConfig::new("app").clock_skew_max,
                },
                ..ClusterConfig::new("app")
            };
            let writer = Writer { origin: Origin::new(1, number as u8), salt: seed ^ number as u64, seed: SEED };
            let cluster = Cluster::new(config, &topology, Box::new(links), writer, 1 << 20, Arc::clone(&clock))
                .expect("a cluster");
            let mut reactors = Reactors::default();
            component::attach(&cluster, &mut reactors);
            Rc::new(Proxy { cluster, clock, reactors: Rc::new(reactors) })
        };
        let proxies = (0..PROXIES).map(|number| proxy(number, &mut rng)).collect();
        let (cuts, evicts) = (rng.bool() || extras.overflows, rng.u8(0..3) == 0);
        let restarts = (rng.u8(0..3) == 0 || extras.restarts).then(|| rng.usize(0..3));
        let is_quiet = is_alone || extras.locks || extras.names != Names::None;
        let (cuts, evicts) = if is_quiet { (false, false) } else { (cuts, evicts) };
        let restarts = if is_quiet { None } else { restarts };
        let bad = Rng::with_seed(seed ^ 0xbad).usize(0..nodes.len());
        if matches!(trouble, Trouble::Late | Trouble::False | Trouble::Future) {
            net.lock().bad = Some((nodes[bad].0.clone(), trouble));
        }
        let books = Books {
            is_quiet: !cuts
                && restarts.is_none()
                && net.lock().loss == 0
                && matches!(trouble, Trouble::None | Trouble::False | Trouble::Future),
            ..Books::default()
        };
        Self {
            bad,
            net,
            nodes,
            proxies,
            cuts,
            evicts,
            restarts,
            extras,
            boards,
            overflowed: RefCell::default(),
            books: Rc::new(RefCell::new(books)),
        }
    }
}

/// Wakes by a flag.
pub struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub type Running = (Pin<Box<dyn Future<Output = ()>>>, Arc<Flag>);

pub fn running(future: impl Future<Output = ()> + 'static) -> Running {
    (Box::pin(future), Arc::new(Flag(true.into())))
}

impl World {
    /// Polls what was woken; true for each future that has ended.
    fn poll(running: &mut Running) -> bool {
        if !running.1.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&running.1));
        running.0.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn step(&self) {
        let woken: Vec<Waker> = {
            let mut net = self.net.lock();
            net.step += 1;
            let step = net.step;
            let (woken, later) = std::mem::take(&mut net.timers).into_iter().partition(|(due, _)| *due <= step);
            net.timers = later;
            let woken: Vec<(u64, Waker)> = woken;
            woken.into_iter().map(|(_, waker)| waker).collect()
        };
        self.act_late();
        woken.into_iter().for_each(Waker::wake);
        self.proxies.iter().for_each(|proxy| proxy.reactors.turn());
        self.nodes.iter().for_each(|(_, _, clock)| clock.advance_millis(1));
        self.proxies.iter().for_each(|proxy| proxy.clock.advance_millis(1));
    }

    /// A bad node does what it was told before.
    fn act_late(&self) {
        let now = {
            let net = &mut *self.net.lock();
            let late = std::mem::take(&mut net.late);
            let (now, later): (Vec<_>, Vec<_>) = late.into_iter().partition(|(due, _)| *due <= net.step);
            net.late = later;
            now
        };
        now.into_iter().for_each(|(_, act)| act());
    }

    fn maintenance(&self, round: usize) -> Vec<Running> {
        let guard = self.net.lock().guard;
        if guard == Guard::Doubt {
            self.drop_overflowed();
        }
        let each = self.proxies.iter().filter(|_| guard != Guard::Hints).map(|proxy| {
            let proxy = Rc::clone(proxy);
            if round.is_multiple_of(5) {
                proxy.cluster.exchange(round);
            }
            running(async move {
                proxy.cluster.maintain().await;
                if guard != Guard::Settled {
                    proxy.cluster.settle().await;
                }
                if guard != Guard::Sweeps {
                    proxy.cluster.sweep().await;
                }
            })
        });
        each.collect()
    }

    /// A node drops all it has where a proxy that reaches it has missed more there than is kept, as it once was.
    fn drop_overflowed(&self) {
        for (number, proxy) in self.proxies.iter().enumerate() {
            for (index, node) in proxy.cluster.status().nodes.iter().enumerate() {
                let (name, process, _) = &self.nodes[index];
                let mut overflowed = self.overflowed.borrow_mut();
                let is_cut = {
                    let net = self.net.lock();
                    net.cut.get(&(number, name.clone())).is_some_and(|until| *until > net.step)
                };
                let seen = overflowed.entry((number, index)).or_default();
                if node.in_doubt <= *seen {
                    *seen = node.in_doubt;
                } else if !is_cut {
                    *seen = node.in_doubt;
                    let floor = component::floor(&**process.lock(), &Cx::outside(), Floor::local(Version(u64::MAX)));
                    let _ = pollster::block_on(steps::finish(floor));
                }
            }
        }
    }

    /// Runs the clients through a bad time, then lets everything come to rest.
    pub fn run(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        {
            let books = &mut *self.books.borrow_mut();
            books.unjudged = (0..CLIENTS).filter(|number| self.is_on_liar(&key_of(*number))).collect();
            books.sharers_unjudged = self.is_on_liar(SHARED);
        }
        let mut clients: Vec<Running> = (0..CLIENTS)
            .map(|number| {
                let proxy = Rc::clone(&self.proxies[number % PROXIES]);
                running(client(number, self.loses(), proxy, rng.fork(), Arc::clone(&self.net), Rc::clone(&self.books)))
            })
            .collect();
        if self.extras.shares {
            clients.extend((0..SHARERS).map(|number| {
                let (proxy, rng) =
                    (Rc::clone(&self.proxies[number % PROXIES]), Rng::with_seed(seed ^ 0x5a5a ^ number as u64));
                running(sharer(number, proxy, rng, Arc::clone(&self.net), Rc::clone(&self.books)))
            }));
        }
        if self.extras.flushes {
            let rng = Rng::with_seed(seed ^ 0xf1f1);
            let flusher = flusher(self.proxies.clone(), rng, Arc::clone(&self.net), Rc::clone(&self.books));
            clients.push(running(flusher));
        }
        clients.extend(self.others(seed));
        let (away_for, killed_every) = if self.extras.restarts { (0, KILLED_OFTEN) } else { (AWAY, KILLED_EVERY) };
        let (mut adviser, mut late) = (Rng::with_seed(seed ^ 0xad), vec![Vec::new(); PROXIES]);
        let mut round = 0;
        let mut maintenance = self.maintenance(round);
        let (mut until, mut away) = (STEPS, None);
        let mut step = 0;
        while step < until {
            step += 1;
            self.step();
            if let Some((_, number)) = away.take_if(|(until, _)| *until <= step) {
                self.start_empty(number);
            }
            clients.retain_mut(|client| !Self::poll(client));
            if step < STEPS {
                if self.cuts && rng.u8(0..120) == 0 {
                    self.cut_some(&mut rng);
                }
                if self.evicts && rng.u8(0..40) == 0 {
                    self.evict_one(&mut rng);
                }
                if let Some(zone) = self.restarts
                    && away.is_none()
                    && rng.u32(0..killed_every) == 0
                {
                    away = Some((step + away_for, self.kill_one(zone, away_for, &mut rng)));
                }
                self.make_trouble(step);
                if self.extras.advice && step % ADVISED_EVERY == 0 {
                    self.advise(&mut adviser, &mut late);
                }
            } else if step == STEPS {
                self.books.borrow_mut().over = true;
                // A node that was killed is reached again until it is started: then it restarts at once.
                let mut net = self.net.lock();
                (net.loss, net.cut, net.bad) = (0, HashMap::new(), None);
                net.shunned.clear();
                drop(net);
                until += REST;
            } else if step == until && until < STEPS + REST_IN_DOUBT && self.is_in_doubt() {
                until += REST;
            }
            maintenance.retain_mut(|round| !Self::poll(round));
            if maintenance.is_empty() && step % 20 == 0 {
                round += 1;
                maintenance = self.maintenance(round);
            }
        }
    }

    /// Says of nodes to each proxy that they leave or are away, whether that is so or not, or again what was said before.
    fn advise(&self, rng: &mut Rng, late: &mut [Vec<Advised>]) {
        self.net.lock().shunned.clear();
        for (number, (proxy, said)) in self.proxies.iter().zip(late).enumerate() {
            let share = [0, 20, 50, 100][rng.usize(0..4)];
            if rng.u8(0..4) > 0 {
                let nodes = proxy.cluster.status().nodes.into_iter().filter(|_| rng.u8(0..100) < share);
                let nodes: Vec<_> = nodes.collect();
                let of = |node: NodeStatus| {
                    let advice = if rng.bool() { Advice::Leaving } else { Advice::Away };
                    Advised { replica: node.replica, slot: node.slot, advice }
                };
                *said = nodes.into_iter().map(of).collect();
            }
            proxy.cluster.advise(said);
            if self.net.lock().guard == Guard::Advice {
                let nodes = proxy.cluster.status().nodes.into_iter();
                let shunned =
                    nodes.filter(|node| said.iter().any(|one| one.slot == node.slot && one.replica == node.replica));
                let shunned: Vec<_> = shunned.map(|node| (number, node.address)).collect();
                self.net.lock().shunned.extend(shunned);
            }
        }
    }

    /// Whether a proxy has keys to compare still.
    fn is_in_doubt(&self) -> bool {
        let guard = self.net.lock().guard;
        let mut nodes = self.proxies.iter().flat_map(|proxy| proxy.cluster.status().nodes);
        guard == Guard::None && nodes.any(|node| node.in_doubt > 0.0)
    }

    /// The clients with other habits.
    fn others(&self, seed: u64) -> Vec<Running> {
        let mut others = Vec::new();
        let proxy = |number: usize| Rc::clone(&self.proxies[number % PROXIES]);
        let rng = |of: u64, number: usize| Rng::with_seed(seed ^ of << 16 ^ number as u64);
        let (net, books) = (&self.net, &self.books);
        if self.extras.locks {
            others.extend((0..LOCKERS).map(|number| {
                running(locker(number, proxy(number), rng(0x10c4, number), Arc::clone(net), Rc::clone(books)))
            }));
        }
        match self.extras.names {
            Names::None => {}
            Names::Allowed => others.extend((0..NAMERS).map(|number| {
                running(namer(number, proxy(number), rng(0x4a3e, number), Arc::clone(net), Rc::clone(books)))
            })),
            Names::Refused => others.extend([SHARED, COUNTER].into_iter().enumerate().map(|(number, key)| {
                let is_taken = net.lock().guard == Guard::Named;
                let rng = rng(0xf043, number);
                running(forger(key, is_taken, proxy(number), rng, Arc::clone(net), Rc::clone(books)))
            })),
        }
        match self.extras.trouble {
            Trouble::Silent | Trouble::Refused => {
                let settled = if self.extras.trouble == Trouble::Silent { SETTLED_IN_DOUBT } else { SETTLED };
                let cut = CUT.start..CUT.end;
                others.push(running(flooder(proxy(0), cut, settled, Arc::clone(net), Rc::clone(books))));
            }
            Trouble::Dead => others.extend(
                (0..PROXIES)
                    .map(|number| running(mourner(proxy(number), DIES + SETTLED, Arc::clone(net), Rc::clone(books)))),
            ),
            Trouble::None | Trouble::Late | Trouble::False | Trouble::Future => {}
        }
        others
    }

    /// What happens at this step, where something goes wrong by itself.
    fn make_trouble(&self, step: u64) {
        match self.extras.trouble {
            Trouble::Silent | Trouble::Refused if step == CUT.start => {
                let until = step + CUT.end - CUT.start;
                self.net.lock().cut.extend(self.nodes.iter().map(|(name, ..)| ((0, name.clone()), until)));
            }
            Trouble::Dead if step == DIES => {
                let name = &self.nodes[self.bad].0;
                self.net.lock().cut.extend((0..PROXIES).map(|proxy| ((proxy, name.clone()), STEPS)));
            }
            // No process repeats writes that were under way when the node died.
            Trouble::Dead if step == DIES + FOUND => {
                self.net.lock().dead = Some(self.nodes[self.bad].0.clone());
            }
            Trouble::Dead if step == STEPS - 1 => self.net.lock().dead = None,
            Trouble::Dead if step == DIES + 30 => self.books.borrow_mut().over = true,
            _ => {}
        }
    }

    /// Whether a key has a copy on the node that lies.
    fn is_on_liar(&self, key: &str) -> bool {
        let liar = &self.nodes[self.bad].0;
        self.extras.trouble == Trouble::False
            && self.proxies[0].cluster.route(key.as_bytes()).iter().any(|copy| copy.node.address == *liar)
    }

    /// Cuts a link, a node or a proxy off for a while.
    fn cut_some(&self, rng: &mut Rng) {
        let net = &mut *self.net.lock();
        let until = net.step + rng.u64(10..400);
        if self.extras.overflows && rng.u8(0..3) == 0 {
            // One proxy from all nodes.
            let proxy = rng.usize(0..PROXIES);
            net.cut.extend(self.nodes.iter().map(|(name, ..)| ((proxy, name.clone()), until)));
            return;
        }
        let node = self.nodes[rng.usize(0..self.nodes.len())].0.clone();
        let proxies = if rng.bool() {
            0..PROXIES
        } else {
            let one = rng.usize(0..PROXIES);
            one..one + 1
        };
        for proxy in proxies {
            net.cut.insert((proxy, node.clone()), until);
        }
    }

    /// Whether proxies have room for few hints.
    fn overflows(&self) -> bool {
        self.extras.overflows || self.extras.trouble == Trouble::Silent
    }

    /// Whether nodes lose items that no client deleted.
    fn loses(&self) -> bool {
        self.evicts || self.restarts.is_some()
    }

    /// A node loses a client's key, for want of room. What was just written is not what goes.
    fn evict_one(&self, rng: &mut Rng) {
        let (_, process, clock) = &self.nodes[rng.usize(0..self.nodes.len())];
        let (node, key) = (Arc::clone(&process.lock()), key_of(rng.usize(0..CLIENTS)));
        let is_old = |version: u64| Version(version).millis() + KEPT < clock.millis();
        if self.held(&node, &key).is_some_and(|(version, _)| is_old(version)) {
            node.forget(&Key::new(key.as_bytes(), SEED));
        }
    }

    /// A node of the zone is killed. It comes back empty, after so many steps.
    fn kill_one(&self, zone: usize, away_for: u64, rng: &mut Rng) -> usize {
        let number = zone * NODES + rng.usize(0..NODES);
        let net = &mut *self.net.lock();
        for proxy in 0..PROXIES {
            net.cut.insert((proxy, self.nodes[number].0.clone()), net.step + away_for);
        }
        number
    }

    fn start_empty(&self, number: usize) {
        let (_, process, clock) = &self.nodes[number];
        *process.lock() = Arc::new(memory(clock, number as u8, 64 << 20, 1 << 20));
        let name = self.nodes[number].0.clone();
        self.boards.lock().insert(name, (Board::default(), clock.millis()));
    }

    /// What a node holds of a key.
    fn held(&self, node: &Memory, key: &str) -> Option<(u64, String)> {
        let (key, mut seen) = (Key::new(key.as_bytes(), SEED), None);
        let mut see = |item: &ItemRef<'_>| {
            seen = Some((item.meta.cas, String::from_utf8_lossy(&item.value.to_vec()).into_owned()));
        };
        let _ = node.peek(&key, &mut see).now();
        seen
    }

    /// All that is wrong once everything is at rest.
    pub fn check(&self) -> Vec<String> {
        // Cut off, a proxy that has given a node up may decide elsewhere than others: docs/cluster.md says what that costs.
        let mut wrong = if self.cuts { Vec::new() } else { self.books.borrow().failures.clone() };
        let books = self.books.borrow();
        if books.is_quiet && books.outrun * OUTRUN > books.shared.len() as u64 {
            wrong.push(format!("{} sets of {SHARED} were outrun, and {} were not", books.outrun, books.shared.len()));
        }
        for key in keys().chain([LOCK.to_owned(), NAMED.to_owned()]).chain((0..FLOOD).map(flood_key)) {
            let lies = self.is_on_liar(&key);
            let told = self.nodes.iter().enumerate().filter(|(number, _)| !lies || *number != self.bad);
            let held: Vec<_> = told.filter_map(|(_, (_, node, _))| self.held(&node.lock(), &key)).collect();
            if held.iter().any(|one| *one != held[0]) {
                let doubt = self.proxies.iter().map(|proxy| proxy.cluster.status());
                let doubt = doubt.flat_map(|status| status.nodes.into_iter().map(|node| (node.hints, node.in_doubt)));
                let doubt: Vec<_> = doubt.collect();
                wrong.push(format!("{key} differs: {held:?}; hints and doubt: {doubt:?}"));
            }
            // Where its last change was answered, it is known what a key holds, and all copies hold that.
            let client = key.strip_prefix("own").and_then(|number| number.parse::<usize>().ok());
            let flushed = vec![None];
            let possible =
                |client| if books.flushed.contains(&client) { Some(&flushed) } else { books.own.get(&client) };
            let client = client.filter(|client| !books.unsure.contains(client));
            if let Some([possible]) = client.and_then(possible).map(Vec::as_slice) {
                let copies = if possible.is_some() { 3 - usize::from(lies) } else { 0 };
                // What finds no room among the hints comes by reads, but no key is lost.
                let copies_min = if self.overflows() { copies.min(1) } else { copies };
                let lacks = held.len() < copies_min && !self.loses();
                if lacks || held.len() > copies || held.iter().any(|(_, value)| Some(value) != possible.as_ref()) {
                    wrong.push(format!("{key} is {possible:?}, and copies hold {held:?}"));
                }
            }
            if key == NAMED && !books.named.may_be(held.first().map(|(version, _)| Version(*version))) {
                wrong.push(format!("{key} is not the newest that was taken: {held:?}"));
            }
            let is_flooded = key.starts_with("flood") && books.flooded > 0;
            if is_flooded && (held.is_empty() || (!self.overflows() && held.len() < 3)) {
                wrong.push(format!("{key} is gone: {held:?}"));
            }
            let value = held.iter().max().map(|(_, value)| value.clone());
            if key == COUNTER {
                let number: u64 = value.map_or(0, |value| value.trim().parse().expect("a number"));
                let (counted, unknown) = (books.counted, books.unknown);
                if !self.cuts
                    && self.extras.trouble == Trouble::None
                    && self.extras.names != Names::Refused
                    && !self.extras.flushes
                    && self.restarts.is_none()
                    && (number < counted || number > counted + unknown)
                {
                    wrong
                        .push(format!("the counter is {number} after {counted} increments and {unknown} unknown ones"));
                }
            }
        }
        wrong
    }
}
