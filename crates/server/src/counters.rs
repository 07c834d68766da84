//! WorkerCounters of the workers: each worker writes its own, readers sum them.
//!
//! WorkerCounters are never reset: `stats reset` keeps the sums of that moment and shows the difference, so that a metrics system sees
//! counters that only grow.

use std::sync::Arc;

use moneta_store::metric::{Metric, Reading, Unit};
use parking_lot::{Mutex, MutexGuard};

use crate::client_memory::{Holding, Kind, Ledger};
use crate::hot_keys::{self, HotKeys};
use crate::late_turns::LateTurns;
use crate::latency::{LatenciesByPolicy, LatencyTotals};
use crate::miss_curve::Choice;
use moneta_store::{OwnCounter, Policy};

/// Whether the list of `stats` has a counter: `stats` if it does, `apart` if it has another place there or none.
macro_rules! is_listed {
    (stats) => {
        true
    };
    (apart) => {
        false
    };
}

/// Declares the counters. Each has a name, which is its key in `stats`, whether `stats` lists it, what it counts, and the metric
/// that shows it, if one shows it by itself; metrics of several counters are in `crate::admin::metrics`.
macro_rules! counters {
    ($($name:ident: $listed:ident, $help:literal $(=> $kind:ident $metric:literal $unit:ident)?;)*) => {
        /// One worker's counters since the start.
        #[derive(Debug, Default)]
        pub struct WorkerCounters {
            $(#[doc = $help] pub $name: OwnCounter,)*
            /// Service times of commands.
            pub latencies: LatenciesByPolicy,
            /// Memory held by the worker's connections.
            pub ledger: Ledger,
            /// What its clients ask for most.
            pub hot_keys: HotKeys,
            /// Its turns that took long.
            pub late: LateTurns,
            /// Which keys it tells the curve of misses of.
            pub(crate) for_curve: Choice,
        }

        /// Sums over workers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $(#[doc = $help] pub $name: u64,)*
        }

        /// The metrics of one counter each.
        pub(crate) const METRICS: &[Reading<Totals>] = &[
            $($(Metric::$kind($metric, Unit::$unit, $help).keys(&[]).read(|totals| totals.$name.into()),)?)*
        ];

        impl Totals {
            /// Adds one worker's numbers.
            pub fn add(&mut self, counters: &WorkerCounters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// The difference since `base`.
            #[must_use]
            pub fn since(&self, base: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(base.$name),)* }
            }

            /// Every counter that `stats` lists with its name, in the order of declaration.
            pub fn each_listed(&self, mut show: impl FnMut(&'static str, u64)) {
                $(if is_listed!($listed) {
                    show(stringify!($name), self.$name);
                })*
            }
        }
    };
}

counters! {
    curr_connections: apart, "Client connections open." => gauge "connections" Count;
    total_connections: apart, "Client connections accepted." => counter "connections_opened_total" Count;
    rejected_connections: apart, "Connections turned away for being over the limit."
        => counter "connections_rejected_total" Count;
    failed_connections: apart, "Connections that ended with an error on the socket or in the protocol."
        => counter "connections_failed_total" Count;
    bytes_read: stats, "Bytes received from clients." => counter "received_bytes_total" Bytes;
    bytes_written: stats, "Bytes sent to clients." => counter "sent_bytes_total" Bytes;
    conn_yields: stats, "Times a connection with more to do gave way to others." => counter "connection_yields_total" Count;
    listen_disabled_num: stats, "Times accepting rested for want of descriptors or memory."
        => counter "accept_pauses_total" Count;
    idle_kicks: stats, "Connections closed for being idle too long." => counter "connections_idle_closed_total" Count;
    watcher_kicks: apart, "Watchers closed for taking nothing of what waited for them."
        => counter "watchers_closed_total" Count;
    memory_kicks: apart, "Connections closed because memory for clients was scarce: they held most of it, or some for long."
        => counter "connections_memory_closed_total" Count;
    memory_refusals: apart, "Large requests refused because memory for clients was scarce."
        => counter "requests_memory_refused_total" Count;
    auth_cmds: stats, "Authentication attempts.";
    auth_errors: stats, "Authentication attempts that failed." => counter "authentication_failures_total" Count;
    login_kicks_failures: apart, "Connections closed for failing to log in too often.";
    login_kicks_timeout: apart, "Connections closed for not logging in in time.";
    login_kicks_removed: apart, "Connections closed because their user was removed or has another password.";
    tls_connections: apart, "Client connections open that TLS protects." => gauge "tls_connections" Count;
    tls_handshakes_under_way: apart, "Handshakes of TLS under way." => gauge "tls_handshakes_under_way" Count;
    tls_handshakes_done: apart, "Handshakes that were done.";
    tls_handshakes_resumed: apart, "Handshakes that were done with a ticket of an earlier connection.";
    tls_handshakes_certificate: apart, "Handshakes that failed for the client's certificate, or the lack of one.";
    tls_handshakes_plain_text: apart, "Handshakes that failed because the client spoke no TLS.";
    tls_handshakes_refused: apart, "Handshakes that clients ended, as for a certificate that they do not believe.";
    tls_handshakes_protocol: apart, "Handshakes that failed for another reason of TLS.";
    tls_handshakes_lost: apart, "Handshakes whose connection broke off.";
    tls_handshakes_timeout: apart, "Handshakes that took too long.";
    tls_handshakes_displaced: apart, "Handshakes that were under way for too long while others waited.";
    rights_refused: apart, "Commands refused because their user lacks a right, or may not touch a key."
        => counter "rights_refused_total" Count;
    cmd_get: stats, "Keys asked for by reads that are not `touch`.";
    cmd_set: stats, "Writes.";
    cmd_flush: stats, "`flush_all`.";
    cmd_touch: stats, "`touch`, `gat` and their kin.";
    cmd_meta: stats, "Commands of the meta protocol, among all commands." => counter "meta_commands_total" Count;
    get_hits: stats, "Keys read and found.";
    get_misses: stats, "Keys read and not found.";
    get_expired: stats, "Misses of get on an item whose time was up." => counter "get_misses_expired_total" Count;
    get_flushed: stats, "Misses on items removed by `flush_all`.";
    touch_hits: stats, "Touches that found their item.";
    touch_misses: stats, "Touches that found none.";
    delete_misses: stats, "Deletes that found no item.";
    superseded: stats, "Writes and deletes by version that met something newer." => counter "superseded_total" Count;
    refused_ahead: stats, "Writes and deletes by a version that was further ahead of this node's clock than max_clock_skew."
        => counter "refused_ahead_total" Count;
    delete_hits: stats, "Deletes that found their item.";
    incr_misses: stats, "`incr` without an item.";
    incr_hits: stats, "`incr` of an item.";
    decr_misses: stats, "`decr` without an item.";
    decr_hits: stats, "`decr` of an item.";
    cas_misses: stats, "`cas` without an item.";
    cas_hits: stats, "`cas` that stored.";
    cas_badval: stats, "`cas` with another value than the item's.";
    store_too_large: stats, "Writes refused because the value is over the limit.";
    store_no_memory: stats, "Writes refused for want of memory.";
    store_errors: apart, "Requests a store could not answer.";
    protocol_errors: apart, "Requests that could not be decoded.";
}

impl WorkerCounters {
    /// Counters of a worker that has done nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The counters of all workers.
#[derive(Debug, Default)]
pub struct Registry {
    workers: Mutex<Vec<Arc<WorkerCounters>>>,
    base: Mutex<Totals>,
}

impl Registry {
    /// New counters for one more worker (or acceptor), included in every sum from now on.
    pub fn register(&self) -> Arc<WorkerCounters> {
        let counters = Arc::new(WorkerCounters::new());
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

    /// Gets since start, for the curve of misses.
    pub(crate) fn served(&self) -> moneta_curve::Served {
        let totals = self.totals();
        moneta_curve::Served { hits: totals.get_hits, misses: totals.get_misses }
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

    /// Histograms of all workers for one policy, summed.
    pub fn latencies(&self, policy: Policy) -> LatencyTotals {
        let mut totals = LatencyTotals::default();
        for counters in self.lock().iter() {
            totals.add(counters.latencies.of(policy));
        }
        totals
    }

    /// What clients of all workers ask for most, at the Unix second `now`.
    pub(crate) fn hottest(&self, now: u32) -> hot_keys::Told {
        let workers = self.workers();
        hot_keys::hottest(workers.iter().map(|worker| &worker.hot_keys), now)
    }

    /// Forgets that, and gives its memory back.
    pub(crate) fn forget_hot_keys(&self) {
        self.workers().iter().for_each(|worker| worker.hot_keys.forget());
    }

    /// Turns of all workers that took long, and how long together, in milliseconds.
    pub fn late(&self) -> (u64, u64) {
        let counts = |sum: (u64, u64), worker: &Arc<WorkerCounters>| {
            let (turns, milliseconds) = worker.late.counts();
            (sum.0 + turns, sum.1 + milliseconds)
        };
        self.lock().iter().fold((0, 0), counts)
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
    pub fn workers(&self) -> Vec<Arc<WorkerCounters>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<WorkerCounters>>> {
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
    fn stats_lists_what_has_no_other_place_there() {
        let registry = Registry::default();
        let counters = registry.register();
        counters.cmd_set.add(7);
        counters.store_errors.add(8);
        let mut listed = Vec::new();
        registry.totals().each_listed(|name, value| listed.extend((value != 0).then_some((name, value))));
        assert_eq!(listed, [("cmd_set", 7)]);
    }
}
