//! The server's own statistics, as far as every store has them.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use moneta_client::wire::{Answer, Verb};
use moneta_store::{Key, StoreStats};
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::connection::Outcome;
use crate::promise::Promise;

/// How old an answer may be to be given again.
const FRESH: Duration = Duration::from_millis(500);

/// What the server said last. A thread that turns an event loop is given that, and has the next caller given the newest;
/// others wait for the newest.
#[derive(Debug, Default)]
pub(crate) struct Snapshot(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    stats: StoreStats,
    at: Option<Instant>,
    asked: Option<Arc<Promise>>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn stats(remote: &Caller, snapshot: &Snapshot) -> StoreStats {
    let may_wait = !remote.is_worker();
    let asked = {
        let mut said = snapshot.0.lock();
        said.look(&mut Context::from_waker(Waker::noop()));
        let fresh = !may_wait && said.at.is_some_and(|at| at.elapsed() < FRESH);
        if said.asked.is_none() && !fresh {
            let key = Key { bytes: &[], hash: 0 };
            said.asked = remote.begin_for(Verb::Statistics, &key, &[]).ok();
        }
        if may_wait { said.asked.clone() } else { None }
    };
    let Some(asked) = asked else { return snapshot.0.lock().stats };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // The request has a separate deadline; another waiter may take the answer.
    loop {
        {
            let mut said = snapshot.0.lock();
            said.look(&mut Context::from_waker(&waker));
            if !said.asked.as_ref().is_some_and(|now| Arc::ptr_eq(now, &asked)) {
                return said.stats;
            }
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

impl Said {
    /// Takes what was asked for, if it is there.
    fn look(&mut self, context: &mut Context<'_>) {
        let Some(promise) = &self.asked else { return };
        if let Poll::Ready(outcome) = promise.poll(context) {
            self.asked = None;
            self.note(outcome);
        }
    }

    fn note(&mut self, outcome: Outcome) {
        if let Ok(Answer::Statistics(list)) = outcome {
            self.at = Some(Instant::now());
            self.stats = StoreStats::default();
            list.iter().for_each(|(name, value)| set(&mut self.stats, name, value));
        }
    }
}

fn set(stats: &mut StoreStats, name: &str, value: &str) {
    let field = match name {
        "curr_items" => &mut stats.items,
        "total_items" => &mut stats.total_items,
        "bytes" => &mut stats.bytes,
        "limit_maxbytes" => &mut stats.limit,
        "evictions" => &mut stats.evictions,
        "evicted_unfetched" => &mut stats.evicted_unfetched,
        "reclaimed" => &mut stats.reclaimed,
        "expired_unfetched" => &mut stats.expired_unfetched,
        _ => return,
    };
    *field = value.parse().unwrap_or(*field);
}
