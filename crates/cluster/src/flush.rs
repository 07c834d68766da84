//! Flushes: all nodes take a floor, side by side.

use std::sync::Arc;

use futures_util::future::join_all;
use moneta_store::component::{self, Flush};
use moneta_store::request::Exptime;
use moneta_store::steps::{finish, start};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{Cx, ErrorKind, Expiry, Step, StoreError};

use crate::call::Call;
use crate::cluster::Cluster;
use crate::config::majority;
use crate::node::{is_busy, is_unwell};
use crate::writes::too_few;

impl Flush for Cluster {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let shared = self.shared();
        let now = shared.clock.now();
        let floor = Floor::new(shared.stamps.next(&shared.clock), Expiry::resolve(delay, now), now);
        self.floor(cx, floor)
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    /// Every node takes it. One that does not gets it when it is back.
    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let call = Call::new(self.shared(), cx);
        start(async move { call.flush(floor).await })
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl Call {
    /// Ends well if all nodes of more than half of the copies took it.
    async fn flush(&self, floor: Floor) -> Result<(), StoreError> {
        let layout = Arc::clone(self.layout());
        let ended = join_all((0..layout.nodes.len()).map(|node| self.flush_one(node, floor))).await;
        // One that no node took, nor may have taken, never was.
        if ended.iter().any(|ended| ended.as_ref().err().is_none_or(|error| is_unwell(error) && !error.is_unsent())) {
            let lacks = |error: &StoreError| is_unwell(error) || is_busy(error);
            for (node, ended) in layout.nodes.iter().zip(&ended) {
                if ended.as_ref().is_err_and(lacks) {
                    node.hints.note_floor(floor);
                }
            }
        }
        let took = |node: usize| ended[node].is_ok();
        let copies = layout.replicas.iter().filter(|replica| !replica.write_only);
        let whole = copies.filter(|replica| (replica.first..replica.first + replica.count).all(took)).count();
        match ended.into_iter().find_map(Result::err) {
            Some(error) if whole < majority(layout.copies()) => Err(too_few(whole, layout.copies(), Some(error))),
            _ => Ok(()),
        }
    }

    async fn flush_one(&self, node: usize, floor: Floor) -> Result<(), StoreError> {
        if self.node(node).health.is_ejected() {
            return Err(StoreError::new(ErrorKind::Unreachable, "the node is not asked: it failed").not_sent());
        }
        let ended = finish(self.begin_on(node, |store, cx| component::floor(store, cx, floor))).await;
        self.note(node, &ended);
        ended
    }
}
