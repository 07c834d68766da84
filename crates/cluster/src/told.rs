//! Tells other processes of the app, once a second, which writes nodes lack by what this one knows, and takes what they tell: so
//! that none of them shows what another one knows to be old. It goes by way of the nodes' boards; a node of an older build has
//! none, and then nothing is told by way of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_store::Version;
use moneta_store::board::POST_MAX;

use crate::board::{Lacks, REPEAT, encode};
use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::layout::Layout;
use crate::living::{Living, Process};
use crate::node::Node;
use crate::notice::{FULL_LIFE, Notice};
use crate::shared::ClusterShared;
use crate::topologies::Topologies;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(900);
/// How often it is looked whether the store is closed.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process that ends tells nodes so, at most; others compare its last writes where they do not hear it.
const FAREWELL: Duration = Duration::from_millis(500);
/// Marks of each kind and node in a post: as many of these as it has room for.
const MARKS: [usize; 3] = [1024, 256, 1];

impl Cluster {
    /// Starts the thread that tells and hears. It ends when the store is closed or dropped.
    pub(crate) fn keep_telling(&self) -> Result<(), ClusterError> {
        let weak = Arc::downgrade(self.shared());
        self.shared().listening.begin();
        let run = move |task: &Run| {
            let (mut waited, mut round) = (PAUSE, 0);
            while let Some(shared) = weak.upgrade() {
                if shared.is_closed() {
                    shared.say_done();
                    shared.listening.end();
                    break;
                }
                let is_due = waited >= PAUSE || shared.wants_to_tell();
                if is_due {
                    shared.exchange(round);
                    shared.listening.end();
                    (waited, round) = (Duration::ZERO, round + 1);
                }
                drop(shared);
                if !task.sleep(LOOK) {
                    // The process ends.
                    if let Some(shared) = weak.upgrade().filter(|shared| shared.is_closed()) {
                        shared.say_done();
                    }
                    break;
                }
                waited += LOOK;
            }
        };
        moneta_background::start("cluster-board", run).map_err(ClusterError::Thread)?;
        Ok(())
    }

    /// Tells and hears once, for callers that have no thread for it; `round` is one more each time.
    pub fn exchange(&self, round: usize) {
        self.shared().exchange(round);
    }
}

impl ClusterShared {
    fn exchange(&self, round: usize) {
        let layout = self.layout();
        let now = self.clock.millis();
        self.tell_now.store(false, Ordering::Relaxed);
        self.take_over(&layout, now);
        self.make_post(&layout, now);
        let (mine, ours, taken_over) = {
            let own = self.own_notice(&layout, now);
            let said = own.topologies.0.clone();
            let mut standing = self.standing.lock();
            said.iter().for_each(|said| standing.has_said(said));
            drop(standing);
            let mut board = self.board.lock();
            board.announce(&self.config.app, own, now);
            let mine = encode(board.number, &self.config.app, &board.own);
            let ours = (board.together, board.notice_number, board.notice_post.clone());
            ((board.author, board.number, mine), ours, std::mem::take(&mut board.taken_over))
        };
        for replica in &layout.replicas {
            let nodes = &layout.nodes[replica.first..replica.first + replica.count];
            // One of each copy is asked in turn, at first each: another app may have some of them. All are told.
            let mut is_heard = false;
            for at in 0..nodes.len() {
                let node = &nodes[(round + at) % nodes.len()];
                if node.health.is_ejected() {
                    continue;
                }
                let (posted, noticed) = {
                    let place = node.board.lock();
                    (place.posted, place.noticed)
                };
                let wants_mine = posted != mine.1 && mine.1 > 0;
                if wants_mine || !is_heard || round == 0 {
                    let post = wants_mine.then_some((mine.0, &mine.2[..]));
                    let Some(is_posted) = self.exchange_with(node, post, now) else { continue };
                    is_heard = true;
                    if is_posted {
                        node.board.lock().posted = mine.1;
                    }
                }
                // Behind this process's own post, which has the same.
                for (author, post) in &taken_over {
                    self.exchange_with(node, Some((*author, post)), now);
                }
                if noticed != ours.1 && self.exchange_with(node, Some((ours.0, &ours.2)), now) == Some(true) {
                    node.board.lock().noticed = ours.1;
                }
            }
            if is_heard {
                self.heard_at.fetch_max(now, Ordering::Relaxed);
            }
        }
        self.take_notice(&layout, now);
        self.judge_topology(now);
        if let Some(all) = self.board.lock().changed(now) {
            for node in &layout.nodes {
                node.hints.tell(all.get(node.name.as_str()).cloned().unwrap_or_default());
            }
        }
    }

    /// What a process that is gone has told of nodes is in doubt there by what this one knows itself: so it is compared with
    /// other copies, and told to others.
    fn take_over(&self, layout: &Layout, now: u64) {
        // One that was cut off, or stopped, has heard none of them, and hears them first.
        if self.heard_at.load(Ordering::Relaxed).saturating_add(REPEAT) <= now {
            return;
        }
        let lacks = self.board.lock().take_over(&self.config.app, now);
        for (name, marks) in lacks {
            let Some(node) = layout.nodes.iter().find(|node| node.name == name) else { continue };
            tracing::info!(
                app = self.config.app,
                node = name,
                "keys that a process which is gone knew to be lacking are compared"
            );
            // A version from the future would never be settled, and no write has it.
            let limit = Version::at(now);
            marks.iter().for_each(|marks| node.hints.add_doubt(&marks.doubt(limit)));
        }
    }

    /// Hears what is new on a node's board, and posts something there; whether that is there. `None`: it does not answer.
    pub(crate) fn exchange_with(&self, node: &Node, post: Option<(u64, &[u8])>, now: u64) -> Option<bool> {
        let cursor = node.board.lock().cursor;
        let heard = self.connect.exchange(&node.place, cursor, post)?;
        if heard.since > 0 {
            node.since.store(heard.since, Ordering::Relaxed);
        }
        node.board.lock().cursor = heard.cursor;
        self.board.lock().hear(&self.config.app, heard.posts, now);
        Some(heard.is_posted && post.is_some())
    }

    /// What this process has to say to what all say together.
    fn own_notice(&self, layout: &Layout, now: u64) -> Notice {
        let full = layout.nodes.iter().filter(|node| node.pace.is_full(now));
        let full = full.map(|node| (node.name.clone(), now + FULL_LIFE)).collect();
        let mut topologies = Topologies::default();
        let said = self.standing.lock().to_say(&self.board.lock().notice.topologies, now);
        said.into_iter().for_each(|said| topologies.add(said, now));
        Notice { full, topologies, living: self.own_living(now) }
    }

    /// What this process has to say of itself and of those that it has taken up.
    fn own_living(&self, now: u64) -> Living {
        let board = self.board.lock();
        let known = &board.notice.living;
        let own = self.mends_after().and_then(|after| known.to_say(board.author, after, now));
        Living(own.into_iter().chain(board.taken_up.iter().copied()).collect())
    }

    /// Says that no last writes of this process are to be compared, if that is so.
    fn say_done(&self) {
        let layout = self.layout();
        let has_arrived = |node: &Arc<Node>| node.flight.is_empty() && node.hints.is_delivered();
        if self.mends_after().is_none() || !layout.nodes.iter().all(has_arrived) {
            return;
        }
        let now = self.clock.millis();
        let mut board = self.board.lock();
        let done = Process { author: board.author, at: now + 1, taken: Process::DONE };
        let own = Notice { living: Living(vec![done]), ..Notice::default() };
        board.announce(&self.config.app, own, now);
        let (together, post) = (board.together, board.notice_post.clone());
        drop(board);
        let began = Instant::now();
        for node in layout.nodes.iter().filter(|node| !node.health.is_ejected()) {
            if began.elapsed() < FAREWELL {
                self.exchange_with(node, Some((together, &post)), now);
            }
        }
    }

    /// Whether something is to be told or heard before the next round.
    fn wants_to_tell(&self) -> bool {
        let (layout, now) = (self.layout(), self.clock.millis());
        let own = self.own_notice(&layout, now);
        self.tell_now.load(Ordering::Relaxed) || self.board.lock().notice.lacks(&own, now)
    }

    /// Goes by what all say together.
    fn take_notice(&self, layout: &Layout, now: u64) {
        let mut standing = self.standing.lock();
        let mut board = self.board.lock();
        standing.hear(&std::mem::take(&mut board.said), now);
        drop(standing);
        for (name, until) in &board.notice.full {
            if let Some(node) = layout.nodes.iter().find(|node| node.name == *name) {
                node.pace.disturb(*until, now);
            }
        }
    }

    /// Puts down what nodes lack, if that is not what was posted last.
    fn make_post(&self, layout: &Layout, now: u64) {
        let lacking = |marks_max: usize| -> Lacks {
            let nodes = layout.nodes.iter().map(|node| (node.name.clone(), node.hints.lacks(marks_max)));
            nodes.filter(|(_, lacks)| !lacks.is_empty()).collect()
        };
        let fits = |lacks: &Lacks| encode(0, &self.config.app, lacks).len() <= POST_MAX;
        // What is longer still is left out: then others go by what they know themselves.
        let own = MARKS.into_iter().map(lacking).find(fits).unwrap_or_default();
        let mut board = self.board.lock();
        let is_due = board.own != own || (!own.is_empty() && board.at.saturating_add(REPEAT) <= now);
        if is_due {
            (board.own, board.at, board.number) = (own, now, board.number + 1);
        }
    }
}
