//! Flushes: all nodes take a floor, side by side.

use std::sync::Arc;

use futures_util::future::join_all;
use moneta_store::component::{self, Flush};
use moneta_store::request::Exptime;
use moneta_store::steps::{finish, start};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{Cx, ErrorKind, Expiry, Step, StoreError, Version};

use crate::call::Call;
use crate::cluster::Cluster;
use crate::node::{is_busy, is_unwell};
use crate::writes::too_few;

impl Flush for Cluster {
    /// Refused where another app has nodes of this one: a flush takes all that a node has, whichever app's it is.
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let (cluster, cx) = (self.clone(), cx.clone());
        start(async move {
            cluster.is_alone().await?;
            finish(cluster.flush_whole(&cx, delay)).await
        })
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    /// Every node takes it. One that does not gets it when it is back. Refused as [`Flush::flush`].
    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let (cluster, cx) = (self.clone(), cx.clone());
        start(async move {
            cluster.is_alone().await?;
            finish(cluster.floor_whole(&cx, floor)).await
        })
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    /// The nodes know it.
    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl Cluster {
    /// Flushes nodes with all that they have.
    pub(crate) fn flush_whole(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let call = Call::new(self.shared(), cx);
        start(async move { call.flush_all(delay).await })
    }

    /// The same by a floor that was made elsewhere.
    pub(crate) fn floor_whole(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let call = Call::new(self.shared(), cx);
        start(async move { call.flush(floor).await })
    }

    /// Fails if an app of another process has nodes of this one, as far as these were heard. Not before the boards were read
    /// once.
    async fn is_alone(&self) -> Result<(), StoreError> {
        self.heard().await;
        match self.other_apps().first() {
            Some(other) => Err(StoreError::new(ErrorKind::Refused, self.shared_with(other)).not_sent()),
            None => Ok(()),
        }
    }

    /// What is answered to a flush where another app has nodes of this one.
    pub(crate) fn shared_with(&self, other: &str) -> String {
        let app = &self.config().app;
        format!("the nodes of the app {app} have {other}, too, an app of another proxy, which a flush would empty")
    }
}

impl Call {
    /// A flush that takes what is on the nodes by now, whatever clocks say: it is stamped above that, as a set is.
    async fn flush_all(&self, delay: Exptime) -> Result<(), StoreError> {
        let (clock, stamps) = (&self.shared.clock, &self.shared.stamps);
        let now = clock.now();
        let layout = Arc::clone(self.layout());
        let asked = (0..layout.nodes.len()).filter(|&node| !layout.nodes[node].health.is_ejected());
        let told = join_all(asked.map(|node| self.newest(node))).await;
        // What is further ahead is no version that others would take.
        let newest = told.into_iter().flatten().filter(|version| !stamps.is_ahead(*version, clock.millis())).max();
        let version = stamps.next_of_all(clock, newest.unwrap_or_default());
        self.flush(Floor::new(version, Expiry::resolve(delay, now), now)).await
    }

    /// The newest version that a node has made or seen. One that does not tell may keep what it took in the last moments.
    async fn newest(&self, node: usize) -> Option<Version> {
        if self.node(node).versions.has_none() {
            return None;
        }
        let ended = finish(self.begin_on(node, |store, cx| component::newest(store, cx))).await;
        self.note(node, &ended);
        ended.ok()
    }

    /// Ends well if all nodes of more than half of the copies took it; of two, if those of one did and the other's nodes are away.
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
        let is_away = ended.iter().filter_map(|ended| ended.as_ref().err()).all(is_unwell);
        let away = if is_away { layout.copies() - whole } else { 0 };
        match ended.into_iter().find_map(Result::err) {
            Some(error) if whole < self.shared.rules.ack().deciding(layout.copies(), away) => {
                Err(too_few(whole, layout.copies(), Some(error)))
            }
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
