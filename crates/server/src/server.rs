//! Assembles a server (sockets, threads), and shuts it down.

use std::sync::Arc;
use std::thread::JoinHandle;

use mio::{Poll, Waker};
use moneta_background::Task;
use moneta_process::part::{Ending, Part};
use moneta_process::phases::{Phase, Phases, StopOnPanic};
use moneta_process::{Desk, supervisor};
use moneta_store::{Door, Store};

use crate::acceptor::Acceptor;
use crate::admin::{self, observed::Observed};
use crate::auth::AuthMode;
use crate::client_addresses::ClientAddresses;
use crate::config::{HandshakeLimits, ListenAddress, Listener, ServerConfig};
use crate::connection_registry::ConnectionRegistry;
use crate::counters::WorkerCounters;
use crate::descriptors;
use crate::error::ServerError;
use crate::handshakes::{HandshakeThread, Handshakes};
use crate::late;
use crate::listener::Bound;
use crate::listener_state::{ListenerState, reserved};
use crate::mailbox::Mailbox;
use crate::node::Node;
use crate::pulse::Pulse;
use crate::reactors::WorkerReactors;
use crate::spread::Spread;
use crate::wake::WAKE;
use crate::wake::wake;
use crate::worker::{EventLoop, Limits, workers};

/// Starts servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Listens and serves `store` until the phases of `node` say that it is to stop.
    ///
    /// # Errors
    /// If the configuration is invalid, an address cannot be listened on, or the system cannot create threads or event queues.
    /// Nothing is left behind then.
    pub fn start(config: &ServerConfig, store: Arc<dyn Store>, node: Arc<Node>) -> Result<RunningServer, ServerError> {
        check(config)?;
        let reserved: usize = config.listeners.iter().map(|listener| reserved(&listener.limits, config)).sum();
        descriptors::allow(config.max_connections + reserved);
        let phases = Arc::clone(&node.phases);
        phases.set_lame_duck(config.lame_duck);
        node.live.set_max_connections(config.max_connections);
        node.live.set_idle_timeout(config.idle_timeout.unwrap_or_default());
        node.live.set_dump_timeout(config.dump_timeout);
        node.live.set_output_limit(config.output_limit);
        node.live.addresses.set(config.address);
        node.live.set_drain_timeout(config.drain_timeout);
        let registry = Arc::clone(&node.connection_registry);
        let listeners: Vec<_> =
            config.listeners.iter().map(|listener| Bound::new(listener, config)).collect::<Result<_, _>>()?;
        let addresses: Vec<_> = listeners.iter().map(|bound| bound.address.clone()).collect();
        let listeners = with_states(listeners, config, &node);
        let must_log_in = node.authenticator.mode() != AuthMode::Off || node.users.is_some();
        let closes_idle = must_log_in || listeners.iter().any(|(_, listener_state)| listener_state.closes_idle());
        let listener_states = listeners.iter().map(|(_, listener_state)| Arc::clone(listener_state)).collect();
        let limits = Limits { closes_idle, busy_poll: config.busy_poll };

        let mut threads = Threads { phases: Arc::clone(&phases), running: Vec::new(), late: None };
        let (mailboxes, counters): (Vec<_>, Vec<_>) =
            start_workers(config, &limits, &store, &node, &registry, &mut threads)?.into_iter().unzip();
        let watched = mailboxes.iter().cloned().zip(counters).collect();
        let failed = |source| ServerError::Start { what: "a thread", source };
        threads.late = Some(late::watch(watched, Arc::clone(&node.clock)).map_err(failed)?);
        let observed = Arc::new(Observed::new(store, Arc::clone(&node), addresses.clone(), listener_states));
        let pulse = Arc::new(Pulse::new(mailboxes.clone()));
        let (poll, waker) = event_queue(&phases)?;
        let spread = Arc::new(Spread::over(mailboxes));
        let handshakes = start_handshakes(config, &spread, &waker, &node, &mut threads)?;
        start_acceptor(poll, listeners, handshakes, spread, &node, &mut threads)?;
        for address in &addresses {
            tracing::info!(%address, workers = config.workers, "listening");
        }
        Ok(RunningServer { addresses, threads, observed, pulse })
    }
}

fn check(config: &ServerConfig) -> Result<(), ServerError> {
    let wrong = |what: &str| Err(ServerError::Config(what.into()));
    if config.listeners.is_empty() {
        return wrong("a server needs at least one address to listen on");
    }
    if config.workers == 0 || config.max_connections == 0 || config.backlog == 0 || config.output_limit == 0 {
        return wrong("workers, connections, backlog and output limit must be at least 1");
    }
    if config.handshakes.threads == 0 || config.handshakes.most == 0 {
        return wrong("handshakes and their threads must be at least 1");
    }
    let zero = |limit: Option<usize>| limit == Some(0);
    if config.listeners.iter().any(|Listener { limits, .. }| zero(limits.max_connections) || zero(limits.output_limit))
    {
        return wrong("a listener's connections and output limit must be at least 1");
    }
    Ok(())
}

/// Each listener with its state.
fn with_states(listeners: Vec<Bound>, config: &ServerConfig, node: &Node) -> Vec<(Bound, Arc<ListenerState>)> {
    let pair = |bound: Bound| {
        let door = node.live.door(bound.door);
        bound.limits.door_connections.into_iter().for_each(|most| door.set_most(most));
        let guarded_as = (bound.users && node.users.is_some()).then(|| Arc::clone(&bound.name));
        let name = bound.address.to_string();
        let listener_state = ListenerState::new(&name, guarded_as, &bound.limits, door, config, Arc::clone(&node.live));
        (bound, listener_state)
    };
    listeners.into_iter().map(pair).collect()
}

/// A poll with a waker that is called at changes of phase.
fn event_queue(phases: &Phases) -> Result<(Poll, Arc<Waker>), ServerError> {
    let failed = |source| ServerError::Start { what: "an event queue", source };
    let poll = Poll::new().map_err(failed)?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE).map_err(failed)?);
    let woken = Arc::clone(&waker);
    phases.notify(move || wake(&woken));
    Ok((poll, waker))
}

/// What others have of a worker that was started.
type StartedWorker = (Arc<Mailbox>, Arc<WorkerCounters>);

fn start_workers(
    config: &ServerConfig,
    limits: &Limits,
    store: &Arc<dyn Store>,
    node: &Arc<Node>,
    registry: &Arc<ConnectionRegistry>,
    threads: &mut Threads,
) -> Result<Vec<StartedWorker>, ServerError> {
    let mut started = Vec::new();
    let doors = config.listeners.iter().map(|listener| listener.door.0).max().unwrap_or(0);
    for index in 0..config.workers {
        let (poll, waker) = event_queue(&threads.phases)?;
        let mailbox = Arc::new(Mailbox::new(waker));
        let counters = node.registry.register();
        started.push((Arc::clone(&mailbox), Arc::clone(&counters)));
        let (store, node) = (Arc::clone(store), Arc::clone(node));
        let (registry, phases, limits) = (Arc::clone(registry), Arc::clone(&threads.phases), limits.clone());
        threads.start(format!("worker-{index}"), move || {
            let reactors = WorkerReactors::new(&*store, poll.registry());
            let of = |door| workers(&store, &node, &counters, &reactors, Door(door));
            let (common, others) = (of(0), (1..=doors).map(of).collect());
            EventLoop::new(poll, reactors, common, others, mailbox, registry, phases, limits).run();
        })?;
    }
    Ok(started)
}

/// Threads for handshakes, if a listener has any.
fn start_handshakes(
    config: &ServerConfig,
    spread: &Arc<Spread>,
    acceptor: &Arc<Waker>,
    node: &Node,
    threads: &mut Threads,
) -> Result<Handshakes, ServerError> {
    let HandshakeLimits { threads: count, most, timeout } = config.handshakes;
    let count = if config.listeners.iter().any(|listener| listener.tls.is_some()) { count } else { 0 };
    let queues = (0..count).map(|_| event_queue(&threads.phases)).collect::<Result<Vec<_>, _>>()?;
    let (polls, wakers): (Vec<_>, Vec<_>) = queues.into_iter().unzip();
    let handshakes = Handshakes::new(wakers, acceptor);
    for (index, (poll, desk)) in polls.into_iter().zip(handshakes.desks()).enumerate() {
        let (desk, spread, counters) = (Arc::clone(desk), Arc::clone(spread), node.registry.register());
        let (phases, most) = (Arc::clone(&threads.phases), most.div_ceil(count));
        let thread = HandshakeThread::new(poll, desk, spread, counters, phases, most, timeout);
        threads.start(format!("handshake-{index}"), move || thread.run())?;
    }
    Ok(handshakes)
}

fn start_acceptor(
    poll: Poll,
    listeners: Vec<(Bound, Arc<ListenerState>)>,
    handshakes: Handshakes,
    spread: Arc<Spread>,
    node: &Node,
    threads: &mut Threads,
) -> Result<(), ServerError> {
    let (counters, phases) = (node.registry.register(), Arc::clone(&threads.phases));
    let addresses = ClientAddresses::new(Arc::clone(&node.live.addresses), Arc::clone(&node.address_refusals));
    let live = Arc::clone(&node.live);
    let acceptor = Acceptor::new(poll, listeners, handshakes, spread, counters, phases, live, addresses)?;
    threads.start("acceptor".into(), move || acceptor.run())
}

/// The server's threads; dropping this stops them at once and waits for them.
#[derive(Debug)]
struct Threads {
    phases: Arc<Phases>,
    running: Vec<(String, JoinHandle<()>)>,
    /// What looks for turns of workers that take long.
    late: Option<Task>,
}

impl Threads {
    fn start(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
        let guard = StopOnPanic(Arc::clone(&self.phases));
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let _guard = guard;
                run();
            })
            .map_err(|source| ServerError::Start { what: "a thread", source })?;
        self.running.push((name, thread));
        Ok(())
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let panicked: Vec<_> =
            self.running.drain(..).filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect();
        if let Some(late) = self.late.take() {
            late.stop();
        }
        match panicked.into_iter().next() {
            Some(name) => Err(ServerError::Panicked(name)),
            None => Ok(()),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.running.is_empty() {
            self.phases.enter(Phase::Stopping);
            let _ = self.join();
        }
    }
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct RunningServer {
    addresses: Vec<ListenAddress>,
    threads: Threads,
    observed: Arc<Observed>,
    pulse: Arc<Pulse>,
}

impl RunningServer {
    /// The addresses it listens on, in the order of the configuration, with the ports that the kernel picked.
    pub fn listen_addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Shows it on the desk of its process.
    pub fn show_on(&self, desk: &Desk) {
        admin::show(&self.observed, desk);
    }

    /// A check that its workers are turning, for a watchdog.
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Asks it to stop and returns at once. Gracefully: requests in flight are finished within the drain timeout.
    pub fn shutdown(&self, graceful: bool) {
        self.threads.phases.request_shutdown(graceful);
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// If it stopped because a thread panicked.
    pub fn join(mut self) -> Result<(), ServerError> {
        let ended = self.threads.join();
        tracing::info!("stopped");
        ended
    }
}

impl Part for RunningServer {
    fn name(&self) -> &'static str {
        "server"
    }

    fn ending(&mut self) -> Option<Ending> {
        let Threads { phases, running, late } = &mut self.threads;
        let mut threads = Threads { phases: Arc::clone(phases), running: std::mem::take(running), late: late.take() };
        Some(Box::new(move || {
            threads.join()?;
            tracing::info!("stopped");
            Ok(())
        }))
    }

    fn pulse(&self) -> Option<Arc<dyn supervisor::Pulse>> {
        Some(Arc::<Pulse>::clone(&self.pulse))
    }

    fn close(self: Box<Self>) {}
}
