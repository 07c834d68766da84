//! Whether nodes are there. What clients ask never decides that alone: a node that takes no connection is found by its own
//! connections, which ask it every two seconds where no request does, and one that failed too often is asked by this process
//! before it is left out.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use moneta_store::{Cx, Key, Op, Outcome, Pending, Step, StoreError, steps};

use crate::layout::Layout;
use crate::node::{Node, is_busy, is_unwell, takes_no_connection};
use crate::shared::ClusterShared;
use crate::slow::PROBE_KEY;

/// Nodes that failed too often in a row, and were asked whether they are there. Rounds do not wait for their answers.
#[derive(Default)]
pub(crate) struct Suspects(Vec<(Arc<Node>, Pending)>);

impl Suspects {
    /// Waits for those that are asked.
    pub(crate) async fn settle(self, shared: &ClusterShared, layout: &Layout) {
        for (node, pending) in self.0 {
            let ended = pending.await;
            shared.judge_presence(layout, &node, ended);
        }
    }
}

impl ClusterShared {
    /// Leaves out nodes that take no connection, probes those that take one again, and asks those that failed too often in a row.
    pub(crate) fn look_after(&self, layout: &Layout, suspects: &mut Suspects) {
        for node in &layout.nodes {
            match node.is_away() {
                true => self.eject_away(node),
                false => node.health.note_connected(self.clock.millis()),
            }
            // What it has missed is given to it once it has answered.
            if node.health.failures() > 0 && !node.health.is_ejected() && !node.hints.is_delivered() {
                node.health.suspect();
            }
            let is_asked = |suspects: &Suspects| suspects.0.iter().any(|(asked, _)| Arc::ptr_eq(asked, node));
            if node.health.is_suspected() && !node.health.is_ejected() && !is_asked(suspects) {
                let key = Key::new(PROBE_KEY, self.seed);
                match steps::read_owned(&*node.store, &Cx::outside(), &key, Op::Peek) {
                    Step::Done(ended) => self.judge_presence(layout, node, ended),
                    Step::Wait(pending) => suspects.0.push((Arc::clone(node), pending)),
                }
            }
        }
        suspects.0.retain_mut(|(node, pending)| match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => {
                self.judge_presence(layout, node, ended);
                false
            }
            Poll::Pending => true,
        });
    }

    /// What a node that was suspected has said.
    fn judge_presence(&self, layout: &Layout, node: &Arc<Node>, said: Result<Outcome, StoreError>) {
        let Some(index) = layout.nodes.iter().position(|other| Arc::ptr_eq(other, node)) else { return };
        match said {
            Err(error) if takes_no_connection(&error) => self.eject_away(node),
            // It was not asked: again in the next round.
            Err(error) if is_busy(&error) => {}
            Err(error) if is_unwell(&error) => {
                let fails = node.health.note_failure() >= self.rules.eject_after() && !node.health.is_ejected();
                let may_eject = fails && self.may_eject(layout, node) && layout.can_lose(index);
                if may_eject && node.health.eject(self.clock.millis(), self.probes()) {
                    tracing::warn!(
                        app = self.config.app,
                        node = node.name,
                        %error,
                        "the node fails: it is not asked until it answers a probe"
                    );
                }
            }
            _ => node.health.clear(),
        }
    }
}
