//! Cluster time: what most nodes' clocks say.
//!
//! Nodes refuse versions that are far ahead of their clocks, and write anew what is far behind. So a process whose clock is wrong
//! goes by theirs: it asks each node now and then, and moves its clock by the median of the differences. All clusters of a
//! process that share a clock have one keeper, which asks the nodes of all of them: or each would move the clock by the whole
//! difference.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use moneta_background::Run;
use moneta_store::Clock;
use parking_lot::{Condvar, Mutex};

use crate::apart::APART;
use crate::layout::Layout;
use crate::node::Node;

/// How often nodes are asked.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// The same while a node tells of versions from the future: its clock may be wrong, or this one.
const ASK_IN_DOUBT: Duration = Duration::from_secs(1);
/// How long it is waited for the first answers before a process goes by its own clock.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);
/// How often it is looked whether the stores are closed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What is that far ahead, in milliseconds, was refused by nodes with that default.
const REFUSED: i64 = APART.cast_signed();
/// Differences below this are left, in milliseconds: an answer takes a while, and versions allow for more.
const LEFT: i64 = 50;

/// The keepers of this process.
static KEEPERS: Mutex<Vec<Weak<TimeKeeper>>> = Mutex::new(Vec::new());

/// What goes by a clock that is kept to cluster time.
pub(crate) trait Timekept: Send + Sync {
    fn is_closed(&self) -> bool;

    fn layout(&self) -> Arc<Layout>;

    /// What a node's clock says, in milliseconds since the Unix epoch.
    fn time(&self, node: &Node) -> Option<u64>;

    /// Whether a node has told of versions from the future since the last question.
    fn take_doubt(&self) -> bool;

    /// The clock has gone back so far that nodes have refused what was stamped.
    fn stamp_anew(&self);
}

/// Keeps one clock to cluster time, for all clusters that go by it.
pub(crate) struct TimeKeeper {
    clock: Arc<Clock>,
    clusters: Mutex<Vec<Weak<dyn Timekept>>>,
    has_thread: AtomicBool,
    /// One asks at a time.
    asking: Mutex<()>,
    /// Nodes have been asked once.
    was_asked: Mutex<bool>,
    first_answers: Condvar,
}

impl TimeKeeper {
    /// The one of this clock.
    pub(crate) fn of(clock: &Arc<Clock>) -> Arc<Self> {
        let keepers = &mut *KEEPERS.lock();
        keepers.retain(|keeper| keeper.strong_count() > 0);
        let mut known = keepers.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|keeper| Arc::ptr_eq(&keeper.clock, clock)) {
            return known;
        }
        let keeper = Arc::new(Self {
            clock: Arc::clone(clock),
            clusters: Mutex::default(),
            has_thread: AtomicBool::new(false),
            asking: Mutex::new(()),
            was_asked: Mutex::new(false),
            first_answers: Condvar::new(),
        });
        keepers.push(Arc::downgrade(&keeper));
        keeper
    }

    pub(crate) fn join(&self, cluster: Weak<dyn Timekept>) {
        self.clusters.lock().push(cluster);
    }

    /// The clusters that are not closed.
    fn open(&self) -> Vec<Arc<dyn Timekept>> {
        let clusters = &mut *self.clusters.lock();
        clusters.retain(|cluster| cluster.upgrade().is_some_and(|cluster| !cluster.is_closed()));
        clusters.iter().filter_map(Weak::upgrade).collect()
    }

    /// Asks the nodes of all clusters for their time, and moves this process's clock to theirs if it is wrong.
    pub(crate) fn ask(&self) {
        let _asking = self.asking.lock();
        let clusters = self.open();
        let (mut asked, mut differences) = (Vec::new(), Vec::new());
        for cluster in &clusters {
            for node in cluster.layout().nodes.iter().filter(|node| !node.health.is_ejected()) {
                // Apps may share nodes.
                let place = node.place.address.place();
                if !asked.contains(&place) {
                    asked.push(place);
                    differences.extend(self.difference(|| cluster.time(node)));
                }
            }
        }
        let Some(difference) = median(differences) else { return };
        if difference.abs() < LEFT {
            return;
        }
        tracing::warn!(milliseconds = difference, "this process's clock differs from the nodes': it goes by theirs");
        self.clock.correct(difference);
        if difference <= -REFUSED {
            clusters.iter().for_each(|cluster| cluster.stamp_anew());
        }
    }

    /// By how much a node's clock is ahead.
    fn difference(&self, ask: impl FnOnce() -> Option<u64>) -> Option<i64> {
        self.clock.refresh();
        let before = self.clock.millis();
        let told = ask()?;
        self.clock.refresh();
        // Half of the way is behind the answer.
        let asked = before + self.clock.millis().saturating_sub(before) / 2;
        Some(told.wrapping_sub(asked).cast_signed())
    }

    /// Starts the thread that asks, if there is none, and waits for the first answers: what is written before goes by a clock that
    /// may be wrong. The thread ends when the stores are closed or dropped.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        if !self.has_thread.swap(true, Ordering::AcqRel) {
            let keeper = Arc::clone(self);
            moneta_background::start("cluster-time", move |task| keeper.run(task))?;
        }
        let mut was_asked = self.was_asked.lock();
        self.first_answers.wait_while_for(&mut was_asked, |was_asked| !*was_asked, FIRST_ANSWERS);
        Ok(())
    }

    /// Asks now and then until all clusters are closed or dropped.
    fn run(&self, task: &Run) {
        let mut waited = ASK_EVERY;
        loop {
            let clusters = self.open();
            if clusters.is_empty() || task.is_stopped() {
                return self.has_thread.store(false, Ordering::Release);
            }
            let mut is_doubted = false;
            if waited >= ASK_IN_DOUBT {
                // Each is reset: one question answers all of them.
                for one in &clusters {
                    is_doubted |= one.take_doubt();
                }
            }
            drop(clusters);
            if waited >= ASK_EVERY || is_doubted {
                waited = Duration::ZERO;
                self.ask();
                *self.was_asked.lock() = true;
                self.first_answers.notify_all();
            }
            task.sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
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
