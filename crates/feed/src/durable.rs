//! What nodes still have after a crash of what they were given: what their SSD tiers have brought to the devices.
//!
//! A node on SSD that is killed loses what it took last, and goes on as if nothing were missing. So how far a reader has come is
//! noted here once the nodes have answered, and counts once it is on their devices:
//!
//! ```text
//!  note(place) ──▶ waits ── a node's appends of then are on its device ──▶ Durable(place): may be kept
//!                    └───── another process answers for a node ─────────▶ Lost(node, places): to be told again
//! ```
//!
//! Where no node has an SSD tier, or none tells this, a place counts at once.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Request, Verb};
use moneta_net::{Address, Endpoint};
use serde::{Deserialize, Serialize};

/// How long nodes may take at the end to bring to their devices what they were given: the longest flush interval, and half of that.
pub const DURABLE_WITHIN: Duration = Duration::from_secs(90);
/// How often nodes are asked while something waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often they are asked while nothing does.
const IDLE_EVERY: Duration = Duration::from_secs(5);
/// How often at the end.
const END_EVERY: Duration = Duration::from_millis(50);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which process serves a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: u64,
    /// When it began, in Unix seconds by its own clock.
    since: u64,
    /// When it opened its SSD tier, in Unix milliseconds; `None`: it has none, or does not tell.
    opened: Option<u64>,
}

impl Process {
    /// As statistics tell it; `None`: they do not.
    pub fn of(statistics: &[(String, String)]) -> Option<Self> {
        Some(Self {
            pid: number(statistics, "pid")?,
            since: number(statistics, "time")?.saturating_sub(number(statistics, "uptime")?),
            opened: number(statistics, "flash_opened"),
        })
    }

    /// Whether both are the same one. In a container all have one number, and both times are in whole seconds.
    pub fn is(self, other: Self) -> bool {
        self.pid == other.pid && self.since.abs_diff(other.since) <= 1 && self.opened == other.opened
    }
}

fn number(statistics: &[(String, String)], wanted: &str) -> Option<u64> {
    statistics.iter().find(|(name, _)| name == wanted)?.1.parse().ok()
}

/// What became of places that were noted.
#[derive(Debug, PartialEq, Eq)]
pub enum Word<T> {
    /// The nodes have on their devices what came before these, in this order; there may be none.
    Durable(Vec<T>),
    /// The node at this address was started anew, and may lack what came before these and after the last that was durable.
    Lost(Address, Vec<T>),
}

/// Places up to which nodes were given something, until that is durable.
#[derive(Debug)]
pub struct Durable<T> {
    nodes: Vec<Node>,
    looked: Instant,
    /// Not asked for yet.
    noted: Vec<T>,
    /// With how many appends each node had made by then.
    waiting: Vec<(Vec<u64>, Vec<T>)>,
}

#[derive(Debug)]
struct Node {
    endpoint: Endpoint,
    dialogue: Option<Dialogue>,
    process: Option<Process>,
}

/// What a node tells.
struct Told {
    process: Option<Process>,
    /// Records appended to its tier, and how many of these are on the device.
    appended: u64,
    durable: u64,
}

impl<T> Durable<T> {
    /// Of these nodes, before they are given something.
    pub fn of(nodes: impl IntoIterator<Item = Endpoint>) -> Self {
        let node = |endpoint: Endpoint| {
            let mut node = Node { endpoint: endpoint.patient(PATIENCE), dialogue: None, process: None };
            node.process = node.ask().and_then(|told| told.process);
            node
        };
        let nodes = nodes.into_iter().map(node).collect();
        Self { nodes, looked: Instant::now(), noted: Vec::new(), waiting: Vec::new() }
    }

    /// The processes that serve the nodes, by their addresses, as far as they tell.
    pub fn processes(&self) -> BTreeMap<String, Process> {
        self.nodes.iter().filter_map(|node| Some((node.endpoint.address.to_string(), node.process?))).collect()
    }

    /// All that comes before `place` was given to the nodes, and answered.
    pub fn note(&mut self, place: T) {
        self.noted.push(place);
    }

    /// Whether something was noted that is not durable, as far as is known.
    pub fn waits(&self) -> bool {
        !self.noted.is_empty() || !self.waiting.is_empty()
    }

    /// Asks the nodes, if it is time for that.
    pub fn look(&mut self) -> Word<T> {
        let has_tier = self.nodes.iter().any(|node| node.process.is_some_and(|process| process.opened.is_some()));
        let every = if has_tier && self.waits() { LOOK_EVERY } else { IDLE_EVERY };
        match self.looked.elapsed() < every {
            true if has_tier => Word::Durable(Vec::new()),
            // What they have they have.
            true => Word::Durable(std::mem::take(&mut self.noted)),
            false => self.look_now(),
        }
    }

    fn look_now(&mut self) -> Word<T> {
        self.looked = Instant::now();
        let (mut appended, mut durable) = (Vec::new(), Vec::new());
        let (mut lost, mut is_away) = (None, false);
        for node in &mut self.nodes {
            // One that does not answer may come back as another process.
            let Some(told) = node.ask() else {
                is_away = true;
                continue;
            };
            let before = node.process;
            node.process = told.process.or(before);
            if before.zip(told.process).is_some_and(|(before, now)| !before.is(now)) {
                lost = Some(node.endpoint.address.clone());
            }
            appended.push(told.appended);
            durable.push(told.durable);
        }
        if let Some(node) = lost {
            let waiting = std::mem::take(&mut self.waiting).into_iter().flat_map(|(_, places)| places);
            return Word::Lost(node, waiting.chain(std::mem::take(&mut self.noted)).collect());
        }
        if is_away {
            return Word::Durable(Vec::new());
        }
        if !self.noted.is_empty() {
            self.waiting.push((appended, std::mem::take(&mut self.noted)));
        }
        let is_there =
            |(appended, _): &(Vec<u64>, Vec<T>)| appended.iter().zip(&durable).all(|(then, now)| then <= now);
        let there = self.waiting.iter().take_while(|waiting| is_there(waiting)).count();
        Word::Durable(self.waiting.drain(..there).flat_map(|(_, places)| places).collect())
    }

    /// Waits until all that was noted is durable, or lost, or `is_over` says so. `None`: it is over, or was neither within
    /// [`DURABLE_WITHIN`].
    pub fn finish(&mut self, is_over: impl Fn() -> bool) -> Option<Word<T>> {
        let (begun, mut all) = (Instant::now(), Vec::new());
        while self.waits() {
            match self.look_now() {
                Word::Durable(places) => all.extend(places),
                Word::Lost(node, places) => return Some(Word::Lost(node, all.into_iter().chain(places).collect())),
            }
            if !self.waits() {
                break;
            }
            if is_over() || begun.elapsed() > DURABLE_WITHIN {
                return None;
            }
            sleep(END_EVERY);
        }
        Some(Word::Durable(all))
    }
}

impl Node {
    fn ask(&mut self) -> Option<Told> {
        let asked = self.try_ask();
        if asked.is_none() {
            self.dialogue = None;
        }
        asked
    }

    fn try_ask(&mut self) -> Option<Told> {
        let dialogue = match &mut self.dialogue {
            Some(dialogue) => dialogue,
            None => self.dialogue.insert(Dialogue::open(&self.endpoint, None, 0).ok()?),
        };
        let nothing = Told { process: None, appended: 0, durable: 0 };
        match dialogue.call(&Request { verb: Verb::Statistics, key: &[], value: &[] }) {
            Ok(Answer::Statistics(list)) => Some(Told {
                process: Process::of(&list),
                appended: number(&list, "flash_appended").unwrap_or(0),
                durable: number(&list, "flash_durable").unwrap_or(0),
            }),
            // It has none for this user.
            Ok(_) | Err(DialogueError::Unsupported(_)) => Some(nothing),
            Err(_) => None,
        }
    }
}
