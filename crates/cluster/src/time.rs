//! Cluster time: what most nodes' clocks say.
//!
//! Nodes refuse versions that are far ahead of their clocks, and write anew what is far behind. So a process whose clock is wrong goes by theirs: it asks
//! each node now and then, and moves its clock by the median of the differences.

use std::sync::Arc;
use std::time::Duration;

use crate::apart::APART;
use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::shared::Shared;

/// How often nodes are asked.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How often it is looked whether the store is closed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What is that far ahead, in milliseconds, was refused by nodes with that default.
const REFUSED: i64 = APART.cast_signed();
/// Differences below this are left, in milliseconds: an answer takes a while, and versions allow for more.
const LEFT: i64 = 50;

impl Cluster {
    /// Starts the thread that keeps to cluster time. It ends when the store is closed or dropped.
    pub(crate) fn keep_time(&self) -> Result<(), ClusterError> {
        let shared = Arc::downgrade(self.shared());
        let run = move || {
            let mut waited = ASK_EVERY;
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) {
                if waited >= ASK_EVERY {
                    waited = Duration::ZERO;
                    shared.ask_time();
                }
                drop(shared);
                std::thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
        };
        std::thread::Builder::new().name("cluster-time".into()).spawn(run).map_err(ClusterError::Thread)?;
        Ok(())
    }

    /// Asks all nodes once, for callers that have no thread for it.
    pub fn ask_time(&self) {
        self.shared().ask_time();
    }
}

impl Shared {
    /// Asks the nodes for their time, and moves this process's clock to theirs if it is wrong.
    fn ask_time(&self) {
        let layout = self.layout();
        let nodes = layout.nodes.iter().filter(|node| !node.health.is_ejected());
        let differences = nodes.filter_map(|node| {
            self.clock.refresh();
            let before = self.clock.millis();
            let told = self.connect.time(&node.place)?;
            self.clock.refresh();
            // Half of the way is behind the answer.
            let asked = before + self.clock.millis().saturating_sub(before) / 2;
            Some(told.wrapping_sub(asked).cast_signed())
        });
        let Some(difference) = median(differences.collect()) else { return };
        if difference.abs() < LEFT {
            return;
        }
        let app = &self.config.app;
        tracing::warn!(
            app,
            milliseconds = difference,
            "this process's clock differs from the nodes': it goes by theirs"
        );
        self.clock.correct(difference);
        if difference <= -REFUSED {
            self.stamps.begin_again();
        }
    }
}

/// The one in the middle; of two, the smaller move.
fn median(mut all: Vec<i64>) -> Option<i64> {
    all.sort_unstable();
    let middle = all.len() / 2;
    match all.len() {
        0 => None,
        len if len % 2 == 1 => Some(all[middle]),
        _ => Some([all[middle - 1], all[middle]].into_iter().min_by_key(|difference| difference.abs())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_what_most_say() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![7]), Some(7));
        assert_eq!(median(vec![3_600_000, 2, 1]), Some(2));
        assert_eq!(median(vec![-3_600_000, 0]), Some(0));
        assert_eq!(median(vec![-5, 9, 3_600_000, 3_600_000]), Some(9));
    }
}
