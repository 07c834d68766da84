//! The source values of a node's metrics, read at one moment.

use crate::client_memory::Holding;
use crate::counters::Totals;
use crate::feed::ReaderState;
use crate::latency::LatencyTotals;
use crate::node::{Node, Policy};

/// The source values of all metrics but the store's.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Sums over workers.
    pub(super) totals: Totals,
    /// Turns of workers that took long, and how long, in milliseconds.
    pub(super) late: (u64, u64),
    /// Requests that waited long, large values, and of both those that the slow log left out.
    pub(super) slow: [u64; 3],
    /// The share of the hottest key, by requests and by bytes, where they are looked for.
    pub(super) hot: Option<[f64; 2]>,
    /// Bytes of RAM with which so large a share of gets misses more than with any amount, where a curve is kept.
    pub(super) working_set: Vec<(&'static str, u64)>,
    /// Service times.
    pub(super) latencies: [(Policy, LatencyTotals); 2],
    /// Memory held for clients.
    pub(super) held: Holding,
    /// Limit on that, in bytes.
    pub(super) client_memory: u64,
    /// Most connections at once.
    pub(super) max_connections: u64,
    /// Worker threads.
    pub(super) threads: u64,
    /// Users: their number and their file; none where clients need not be users.
    pub(super) users: Option<moneta_users::Counts>,
    /// What users were refused: user, right, how often.
    pub(super) refusals: Vec<(String, moneta_users::Right, u64)>,
    /// Lines of the audit log.
    pub(super) audit: Option<moneta_audit::Counts>,
    /// Log-ins refused untried.
    pub(super) logins_refused: u64,
    /// What limits of client addresses refused.
    pub(super) address_refusals: [u64; 3],
    /// Readers of the feed that have a name.
    pub(super) readers: Vec<ReaderState>,
    /// Gaps of the feed that readers were told of, by cause.
    pub(super) gaps: [(&'static str, u64); moneta_store::feed::GapCause::ALL.len()],
}

impl Snapshot {
    /// The numbers of `node`.
    pub(super) fn of(node: &Node) -> Self {
        Self {
            totals: node.registry.totals(),
            late: node.registry.late(),
            slow: node.slow_log.counts(),
            hot: node.live.finds_hot_keys().then(|| {
                let told = node.registry.hottest(node.clock.now());
                [told.by_requests.top_share(), told.by_bytes.top_share()]
            }),
            working_set: working_set(node),
            latencies: [Policy::Online, Policy::Batch].map(|policy| (policy, node.registry.latencies(policy))),
            held: node.registry.holding().and(&node.client_memory.beside()),
            client_memory: node.client_memory.limit() as u64,
            max_connections: node.live.max_connections() as u64,
            threads: node.settings.threads as u64,
            users: node.users.as_ref().map(|users| users.counts()),
            refusals: node.users.as_ref().map_or_else(Vec::new, |users| users.refusals()),
            audit: node.audit.as_ref().map(|audit| audit.counts()),
            logins_refused: node.login_failures.refused(),
            address_refusals: node.address_refusals.counts(),
            readers: node.readers.list(node.clock.millis()),
            gaps: node.readers.gaps(),
        }
    }
}

/// Bytes of RAM with which gets miss by no more than a share above the least.
fn working_set(node: &Node) -> Vec<(&'static str, u64)> {
    let Some(told) = node.told_curve() else { return Vec::new() };
    let least = told.curve.floor();
    let of = |(name, above): (&'static str, f64)| Some((name, told.curve.bytes_for(least + above)?));
    [("0.01", 0.01), ("0.1", 0.1)].into_iter().filter_map(of).collect()
}
