//! Tells other processes of the app, once a second, which writes nodes lack by what this one knows, and takes what they tell: so
//! that none of them shows what another one knows to be old. It goes by way of the nodes' boards; a node of an older build has
//! none, and then nothing is told by way of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_store::board::{LIFE, POST_MAX};

use crate::board::{Lacks, encode};
use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::layout::Layout;
use crate::shared::Shared;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(900);
/// How often it is looked whether the store is closed.
const LOOK: Duration = Duration::from_millis(100);
/// A post is repeated after so long, in milliseconds: else it expires.
const REPEAT: u64 = LIFE / 10;
/// Marks of each kind and node in a post: as many of these as it has room for.
const MARKS: [usize; 3] = [1024, 256, 1];

impl Cluster {
    /// Starts the thread that tells and hears. It ends when the store is closed or dropped.
    pub(crate) fn keep_telling(&self) -> Result<(), ClusterError> {
        let shared = Arc::downgrade(self.shared());
        let run = move || {
            let (mut waited, mut round) = (PAUSE, 0);
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) {
                if waited >= PAUSE {
                    shared.exchange(round);
                    (waited, round) = (Duration::ZERO, round + 1);
                }
                drop(shared);
                std::thread::sleep(LOOK);
                waited += LOOK;
            }
        };
        std::thread::Builder::new().name("cluster-board".into()).spawn(run).map_err(ClusterError::Thread)?;
        Ok(())
    }

    /// Tells and hears once, for callers that have no thread for it; `round` is one more each time.
    pub fn exchange(&self, round: usize) {
        self.shared().exchange(round);
    }
}

impl Shared {
    fn exchange(&self, round: usize) {
        let layout = self.layout();
        let now = self.clock.millis();
        self.make_post(&layout, now);
        let (author, number, own) = {
            let board = self.board.lock();
            (board.author, board.number, encode(board.number, &self.config.app, &board.own))
        };
        for replica in &layout.replicas {
            let nodes = &layout.nodes[replica.first..replica.first + replica.count];
            // One of each copy is asked in turn; all are told.
            let mut is_heard = false;
            for at in 0..nodes.len() {
                let node = &nodes[(round + at) % nodes.len()];
                if node.health.is_ejected() {
                    continue;
                }
                let (cursor, posted) = {
                    let place = node.board.lock();
                    (place.cursor, place.posted)
                };
                let wants_post = posted != number && number > 0;
                if is_heard && !wants_post {
                    continue;
                }
                let post = wants_post.then_some((author, &own[..]));
                let Some(heard) = self.connect.exchange(&node.place, cursor, post) else { continue };
                is_heard = true;
                if heard.since > 0 {
                    node.since.store(heard.since, Ordering::Relaxed);
                }
                let mut place = node.board.lock();
                place.cursor = heard.cursor;
                if heard.is_posted && wants_post {
                    place.posted = number;
                }
                drop(place);
                self.board.lock().hear(&self.config.app, heard.posts, now);
            }
        }
        if let Some(all) = self.board.lock().changed(now) {
            for node in &layout.nodes {
                node.hints.tell(all.get(node.name.as_str()).cloned().unwrap_or_default());
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
