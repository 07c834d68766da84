//! Counters of the workers: each worker writes its own, readers sum them.
//!
//! Counters are never reset: `stats reset` keeps the sums of that moment and shows the difference, so that a metrics system sees counters that only grow.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::client_memory::{Holding, Kind, Ledger};
use crate::counter::Counter;
use crate::latency::{Latencies, LatencyTotals};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One worker's counters since the start.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// Service times of commands.
            pub latencies: Latencies,
            /// Memory held by the worker's connections.
            pub ledger: Ledger,
        }

        /// Sums over workers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds one worker's numbers.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// The difference since `base`.
            #[must_use]
            pub fn since(&self, base: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(base.$name),)* }
            }

            /// Every counter with its name, in the order of declaration.
            pub fn each(&self, mut show: impl FnMut(&'static str, u64)) {
                $(show(stringify!($name), self.$name);)*
            }
        }
    };
}

counters! {
    /// Connections open now (a gauge).
    curr_connections,
    /// Connections accepted.
    total_connections,
    /// Connections refused at the connection limit.
    rejected_connections,
    /// Connections that closed after an error on the socket or in the protocol.
    failed_connections,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Times a connection yielded to others after many requests in a row.
    conn_yields,
    /// Times accepting was stopped at the connection limit.
    listen_disabled_num,
    /// Connections closed for being idle too long.
    idle_kicks,
    /// Watchers closed for not reading.
    watcher_kicks,
    /// Connections closed because memory for clients was scarce.
    memory_kicks,
    /// Requests refused because memory for clients was scarce.
    memory_refusals,
    /// Authentication attempts.
    auth_cmds,
    /// Authentication attempts that failed.
    auth_errors,
    /// Connections closed for failing to log in too often.
    login_kicks_failures,
    /// Connections closed for not logging in in time.
    login_kicks_timeout,
    /// Connections closed because their user was removed or has another password.
    login_kicks_removed,
    /// Keys asked for by reads that are not `touch`.
    cmd_get,
    /// Writes.
    cmd_set,
    /// `flush_all`.
    cmd_flush,
    /// `touch`, `gat` and their kin.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Keys read and found.
    get_hits,
    /// Keys read and not found.
    get_misses,
    /// Misses on expired items.
    get_expired,
    /// Misses on items removed by `flush_all`.
    get_flushed,
    /// Touches that found their item.
    touch_hits,
    /// Touches that did not.
    touch_misses,
    /// Deletes that found no item.
    delete_misses,
    /// Writes and deletes by version that met something newer.
    superseded,
    /// Writes and deletes by a version that was too far ahead of this node's clock.
    refused_ahead,
    /// Deletes.
    delete_hits,
    /// `incr` without an item.
    incr_misses,
    /// `incr`.
    incr_hits,
    /// `decr` without an item.
    decr_misses,
    /// `decr`.
    decr_hits,
    /// `cas` without an item.
    cas_misses,
    /// `cas` that stored.
    cas_hits,
    /// `cas` with another value than the item's.
    cas_badval,
    /// Writes refused because the value is over the limit.
    store_too_large,
    /// Writes refused for want of memory.
    store_no_memory,
    /// Requests a store could not answer.
    store_errors,
    /// Requests that could not be decoded.
    protocol_errors,
}

impl Counters {
    /// Counters of a worker that has done nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The counters of all workers.
#[derive(Debug, Default)]
pub struct Registry {
    workers: Mutex<Vec<Arc<Counters>>>,
    base: Mutex<Totals>,
}

impl Registry {
    /// New counters for one more worker (or acceptor), included in every sum from now on.
    pub fn register(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::new());
        self.lock().push(Arc::clone(&counters));
        counters
    }

    /// Sums since start, for metrics.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in self.lock().iter() {
            totals.add(counters);
        }
        totals
    }

    /// Sums since the last `stats reset`; gauges as they are.
    pub fn since_reset(&self) -> Totals {
        let totals = self.totals();
        let base = *self.base.lock();
        totals.since(&base)
    }

    /// Makes this moment the new base of [`Registry::since_reset`].
    pub fn reset(&self) {
        let mut totals = self.totals();
        totals.curr_connections = 0;
        *self.base.lock() = totals;
    }

    /// Histograms of all workers, summed.
    pub fn latencies(&self) -> LatencyTotals {
        let mut totals = LatencyTotals::default();
        for counters in self.lock().iter() {
            totals.add(&counters.latencies);
        }
        totals
    }

    /// Memory held by connections of all workers.
    pub fn holding(&self) -> Holding {
        let mut sum = Holding::default();
        for counters in self.lock().iter() {
            let held = counters.ledger.holding();
            Kind::ALL.iter().for_each(|&kind| sum.add(kind, held.of(kind)));
        }
        sum
    }

    /// Workers registered.
    pub fn workers(&self) -> Vec<Arc<Counters>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Counters>>> {
        self.workers.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_run_over_workers_and_survive_a_reset() {
        let registry = Registry::default();
        let (one, two) = (registry.register(), registry.register());
        one.get_hits.add(3);
        two.get_hits.bump();
        two.curr_connections.add(2);
        assert_eq!(registry.since_reset().get_hits, 4);
        registry.reset();
        one.get_hits.bump();
        two.curr_connections.drop_one();
        let shown = registry.since_reset();
        assert_eq!((shown.get_hits, shown.curr_connections), (1, 1));
        assert_eq!(registry.totals().get_hits, 5);
    }

    #[test]
    fn every_counter_is_listed_by_its_name() {
        let registry = Registry::default();
        registry.register().cmd_set.add(7);
        let mut found = None;
        registry.totals().each(|name, value| {
            if name == "cmd_set" {
                found = Some(value);
            }
        });
        assert_eq!(found, Some(7));
    }
}
