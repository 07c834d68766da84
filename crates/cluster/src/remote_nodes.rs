//! Nodes that are servers of memcached's protocol: how their stores, clocks and boards are reached.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::board::News;
use moneta_feed::{Buckets, COPY_READER, NodeSource, Request, Source, Wanted};
use moneta_net::{Address, Outward};
use moneta_remote::{Remote, RemoteConfig, RequestTimeout};
use moneta_store::Clock;
use parking_lot::Mutex;

use crate::node::{Connect, Heard, Opened};
use crate::pace::Answered;
use crate::topology::Node;

/// How long a node may take to tell its time.
const TIME_PATIENCE: Duration = Duration::from_secs(1);
/// How long a wait for an answer of a node's board may be: others wait meanwhile.
const BOARD_PATIENCE: Duration = Duration::from_millis(250);
/// How long a wait for more of a node's feed may be.
const FEED_PATIENCE: Duration = Duration::from_secs(5);
/// Longest value of such an answer, bytes.
const VALUE_MAX: usize = 1024;

/// What is said of the store of the node at an address.
pub type Configure = Box<dyn Fn(Address) -> RemoteConfig + Send + Sync>;

/// Makes the stores of nodes.
pub struct RemoteNodes {
    configure: Configure,
    /// How long a request may take, to all nodes.
    timeout: RequestTimeout,
    outward: Outward,
    clock: Arc<Clock>,
    /// Connections to the nodes' boards, which tell the time, too. `None`: boards are not used.
    boards: Option<Mutex<HashMap<Address, Dialogue>>>,
}

impl RemoteNodes {
    /// Nodes reached by `outward`; stores are made as `configure` says, all with this timeout of requests.
    pub fn new(configure: Configure, timeout: RequestTimeout, outward: Outward, clock: Arc<Clock>) -> Self {
        Self { configure, timeout, outward, clock, boards: Some(Mutex::default()) }
    }

    /// The same nodes, on whose boards nothing is posted or read.
    pub fn without_boards(self) -> Self {
        Self { boards: None, ..self }
    }

    /// A conversation with a node, each step of which takes at most `patience`; the one that is kept for its board, if that is not
    /// in use.
    fn dialogue(&self, node: &Node, patience: Duration) -> Option<Dialogue> {
        let kept = self.boards.as_ref().and_then(|boards| boards.lock().remove(&node.address));
        kept.or_else(|| {
            let endpoint = self.outward.to(node.address.clone()).patient(patience);
            Dialogue::open(&endpoint, None, VALUE_MAX).ok()
        })
    }

    /// Keeps a conversation that went well. One that failed is made anew with the next question.
    fn keep(&self, node: &Node, dialogue: Dialogue) {
        if let Some(boards) = &self.boards {
            boards.lock().insert(node.address.clone(), dialogue);
        }
    }
}

impl Connect for RemoteNodes {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let config = (self.configure)(node.address.clone());
        let config = RemoteConfig {
            endpoint: self.outward.over(config.endpoint.patient(self.timeout.get())),
            request_timeout: self.timeout.clone(),
            ..config
        };
        let remote = Remote::new(config, Arc::clone(&self.clock))?;
        let counting = remote.clone();
        let answers = move || {
            let (requests, time) = counting.answered();
            let (carried, is_carrying) = counting.carried();
            Answered { requests, time, carried, is_carrying }
        };
        Ok(Opened { store: Arc::new(remote), answers: Some(Box::new(answers)) })
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    fn time(&self, node: &Node) -> Option<u64> {
        // Over a connection that is open where there is one: a clock that has gone wrong takes good certificates for bad ones.
        let mut dialogue = self.dialogue(node, TIME_PATIENCE)?;
        let time = dialogue.server_time().ok()?;
        self.keep(node, dialogue);
        time
    }

    fn exchange(&self, node: &Node, cursor: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        self.boards.as_ref()?;
        let mut dialogue = self.dialogue(node, BOARD_PATIENCE)?;
        // A server that has no board would take a post for something else, so this is asked first.
        let news = dialogue.read_board(cursor).ok()?;
        let heard = match (news, post) {
            (None, _) => None,
            (Some(news), None) => Some((news, false)),
            (Some(news), Some((author, text))) => Some((news, dialogue.post(author, text).ok()?)),
        };
        self.keep(node, dialogue);
        let (News { cursor, since, posts }, is_posted) = heard?;
        Some(Heard { cursor, since, posts, is_posted })
    }

    fn feed(&self, node: &Node, buckets: Option<Buckets>) -> Option<Box<dyn Source>> {
        let endpoint = self.outward.to(node.address.clone()).patient(FEED_PATIENCE);
        let wanted = Wanted { buckets, ..Wanted::default() };
        let request = Request { wanted, name: Some(format!("{COPY_READER}:proxy")), ..Request::default() };
        Some(Box::new(NodeSource::new(endpoint, request, VALUE_MAX)))
    }
}
