//! Asks all servers again and again, some at a time, and keeps what each told last.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moneta_net::{Address, Outward};
use parking_lot::Mutex;

use crate::error::TopError;
use crate::figures::Figures;
use crate::scrape::Scrape;
use crate::target::{Hot, Target, Told};

/// Most servers that are looked at.
pub const HOSTS_MAX: usize = 4096;
/// Servers that are asked at a time: one that is silent holds one of these for two seconds.
const AT_ONCE: usize = 32;
/// How often a thread without a server to ask looks for one.
const IDLE: Duration = Duration::from_millis(20);

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Config {
    /// Admin addresses, or addresses of any memcached; of a proxy its nodes are looked at, too.
    pub hosts: Vec<String>,
    /// How often.
    pub interval: Duration,
    /// How they are reached.
    pub outward: Outward,
}

/// A server, as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// As it was given, or as its proxy has it.
    pub(crate) name: String,
    pub(crate) address: Address,
    /// Its zone and state as its proxy sees them, where it was found through one.
    pub(crate) by_proxy: Option<(String, String)>,
    before: Option<Scrape>,
    /// What it does; `None`: it was not asked twice yet.
    pub(crate) figures: Option<Figures>,
    pub(crate) hot: Option<Hot>,
    /// Since when it does not answer, and why.
    pub(crate) failure: Option<(Instant, String)>,
    pub(crate) has_admin: bool,
}

impl Known {
    pub(crate) fn new(name: String, address: Address) -> Self {
        let (by_proxy, before, figures, hot, failure) = (None, None, None, None, None);
        Self { name, address, by_proxy, before, figures, hot, failure, has_admin: false }
    }

    fn take(&mut self, told: Result<Told, String>) {
        match told {
            Ok(Told { scrape, hot, .. }) => {
                self.failure = None;
                self.figures = self.before.as_ref().map(|before| Figures::of(before, &scrape));
                self.hot = hot;
                self.before = Some(scrape);
            }
            Err(why) => {
                let since = self.failure.take().map_or_else(Instant::now, |(since, _)| since);
                self.failure = Some((since, crate::target::plain(&why)));
                // What it did is no longer what it does.
                (self.before, self.figures, self.hot) = (None, None, None);
            }
        }
    }
}

/// Servers to be asked: when, which of the known, how.
type Queue = VecDeque<(Instant, usize, Target)>;

struct Shared {
    interval: Duration,
    outward: Outward,
    known: Mutex<Vec<Known>>,
    queue: Mutex<Queue>,
    ends: AtomicBool,
}

/// What asks. Its threads end soon after it is dropped.
pub(crate) struct Poller(Arc<Shared>);

impl Poller {
    /// Begins to ask.
    ///
    /// # Errors
    /// If one of the hosts is none, or the system has no threads.
    pub(crate) fn start(config: Config) -> Result<Self, TopError> {
        let Config { hosts, interval, outward } = config;
        let mut known = Vec::new();
        for host in hosts.into_iter().take(HOSTS_MAX) {
            let address: Address = match host.parse() {
                Ok(address) => address,
                Err(why) => return Err(TopError::Host { why: format!("{why}"), host }),
            };
            known.push(Known::new(host, address));
        }
        let now = Instant::now();
        let target =
            |(place, known): (usize, &Known)| (now, place, Target::new(known.address.clone(), outward.clone()));
        let queue = known.iter().enumerate().map(target).collect();
        let (known, queue, ends) = (Mutex::new(known), Mutex::new(queue), AtomicBool::new(false));
        let shared = Arc::new(Shared { interval, outward, known, queue, ends });
        for number in 0..AT_ONCE {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("ask-{number}")).spawn(move || shared.work())?;
        }
        Ok(Self(shared))
    }

    /// All servers as they are known now; their places stay theirs.
    pub(crate) fn known(&self) -> Vec<Known> {
        self.0.known.lock().clone()
    }

    /// How they are reached.
    pub(crate) fn outward(&self) -> &Outward {
        &self.0.outward
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn work(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            let due = {
                let mut queue = self.queue.lock();
                if queue.front().is_some_and(|(at, ..)| *at <= Instant::now()) { queue.pop_front() } else { None }
            };
            let Some((_, place, mut target)) = due else {
                thread::sleep(IDLE);
                continue;
            };
            let began = Instant::now();
            let told = target.ask();
            if let Ok(told) = &told {
                self.add_nodes(told);
            }
            let mut known = self.known.lock();
            known[place].has_admin |= target.has_admin();
            known[place].take(told);
            drop(known);
            self.queue.lock().push_back((began + self.interval, place, target));
        }
    }

    /// Looks at the nodes of a proxy, too.
    fn add_nodes(&self, told: &Told) {
        for node in &told.nodes {
            let Ok(address) = node.address.parse::<Address>() else { continue };
            let by_proxy = Some((node.zone.clone(), node.state.clone()));
            let mut known = self.known.lock();
            if let Some(there) = known.iter_mut().find(|known| known.address == address) {
                there.by_proxy = by_proxy;
            } else if known.len() < HOSTS_MAX {
                known.push(Known { by_proxy, ..Known::new(node.address.clone(), address.clone()) });
                let place = known.len() - 1;
                drop(known);
                // Before what waits for its turn: it is due at once.
                self.queue.lock().push_front((Instant::now(), place, Target::new(address, self.outward.clone())));
            }
        }
    }
}
