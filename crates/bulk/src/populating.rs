//! What populating is to all who do it: its configuration, its report, and a chain on its way into a place.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use moneta_feed::{Begin, Source};
use moneta_segments::{Archive, Chain, ChainSource, Pulse};
use serde::Serialize;

use crate::error::BulkError;
use crate::governor::RateConfig;
use crate::law::Room;
use crate::metered::{Metered, Moment};
use crate::nodes::Nodes;
use crate::passage::{Ended, Gaps, Passage};
use crate::server::Server;
use crate::stages::Phases;
use crate::target::{Place, Written};
use crate::throttle::Throttle;
use crate::watch::{Counters, Counts, Watch};
use crate::which::Which;

/// Failures in a row after which an archive is given up that is not followed.
pub(crate) const FAILURES: u32 = 30;
/// Bytes of a block beside its values.
const BLOCK_REST: usize = 2 << 20;
/// How much earlier than a list's items were asked for they count, in milliseconds: clocks may differ.
pub(crate) const CLOCKS: u64 = 500;
/// The same of a feed's items: these were on their way when they were written down.
pub(crate) const ON_THE_WAY: u64 = 5000;

/// What is populated, and how.
#[derive(Clone, Debug)]
pub struct PopulateConfig {
    /// Where items go.
    pub place: Place,
    /// Which items.
    pub which: Which,
    /// After the base its changes, until it is stopped.
    pub follow: bool,
    /// Items are of when they were read: a node that may have forgotten a delete since then does not create them.
    pub strict: bool,
    /// How fast it may go, all its sources together.
    pub rate: RateConfig,
    /// The largest value of the archive, in bytes.
    pub value_max: usize,
    /// Keeps how far it is; of no use where work is shared.
    pub cursor_file: Option<PathBuf>,
    /// The processes that share the work.
    pub share: Option<Share>,
    /// Files of Cachemover are read also where their sum does not match.
    pub any_sum: bool,
}

/// What was populated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Populated {
    /// All of the base was read.
    pub done: bool,
    /// What this run read of the base.
    pub base: Counts,
    /// What this run read of changes.
    pub changes: Counts,
    /// What became of both.
    pub written: Written,
    /// How many segments of a shared base this run did.
    pub segments: u64,
    /// How fast that was, by stage.
    pub stages: Phases,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

impl PopulateConfig {
    /// What is written where, in one word: what was done of it says nothing of what is done elsewhere.
    pub(crate) fn what(&self) -> String {
        let mut nodes: Vec<String> = self.place.nodes.iter().map(|node| node.address.to_string()).collect();
        nodes.sort_unstable();
        let Which { prefix, buckets, .. } = &self.which;
        let mut what = nodes.join(",");
        if !prefix.is_empty() {
            what += &format!(",prefix={}", prefix.escape_ascii());
        }
        if let Some(buckets) = buckets {
            what += &format!(",slots={buckets}");
        }
        what.replace(char::is_whitespace, "_")
    }
}

/// The processes that share the work.
#[derive(Clone, Debug)]
pub struct Share {
    /// All who name the same share the work. A second target, or a second time, needs another.
    pub name: String,
    /// How each says that it lives.
    pub pulse: Pulse,
    /// Refuses a share whose other populators write to another target, or other items: what they have done would be missing here.
    pub one_target: bool,
}

/// What a run has in common, alone or shared.
pub(crate) struct Job<'a> {
    pub(crate) config: &'a PopulateConfig,
    pub(crate) archive: &'a Arc<dyn Archive>,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) servers: &'a [Server],
    pub(crate) throttle: Throttle,
}

impl Job<'_> {
    /// Refuses a target that has begun anew since the run began.
    pub(crate) fn check_lives(&self) -> Result<(), BulkError> {
        self.servers.iter().try_for_each(Server::check_life)
    }

    /// The most raw bytes of a block.
    pub(crate) fn block_max(&self) -> usize {
        self.config.value_max.saturating_add(BLOCK_REST)
    }

    /// Of what moment the items of a base count, or of changes.
    pub(crate) fn moment(&self, is_listed: bool) -> Moment {
        match (self.config.strict, is_listed) {
            (true, true) => Moment::Before(CLOCKS),
            (true, false) => Moment::Before(ON_THE_WAY),
            (false, true) => Moment::Current,
            (false, false) => Moment::Told,
        }
    }

    /// Writes a chain, from a place on.
    pub(crate) fn pass(
        &self,
        chain: Chain,
        follows: bool,
        from: Begin,
        moment: Moment,
        counters: &Counters,
        sink: Nodes,
    ) -> (Nodes, Result<Ended, BulkError>) {
        let source = ChainSource::new(chain, follows, self.block_max());
        let source = if self.config.strict { source } else { source.as_recorded() };
        self.pass_on(source, follows, from, moment, counters, sink)
    }

    /// Writes what a source tells.
    pub(crate) fn pass_on(
        &self,
        source: impl Source,
        follows: bool,
        from: Begin,
        moment: Moment,
        counters: &Counters,
        sink: Nodes,
    ) -> (Nodes, Result<Ended, BulkError>) {
        let nothing = AtomicBool::new(false);
        let passage = Passage {
            watch: self.watch,
            counters,
            from: "the archive",
            gaps: Gaps::Pass,
            failures: (!follows).then_some(FAILURES),
            ends: &nothing,
            is_list: false,
        };
        let source =
            Metered::new(source, self.config.which.clone(), moment, counters.clone()).throttled(&self.throttle);
        let source = if follows { source.keeping_up() } else { source };
        passage.run(source, sink, from, follows)
    }
}

/// Refuses nodes that cannot hold what is there.
pub(crate) fn check(servers: &[Server], follow: bool, is_listed: bool) -> Result<(), BulkError> {
    let Some(server) = servers.iter().find(|server| !server.has_versions) else { return Ok(()) };
    let unfit = |reason: &str| Err(BulkError::Unfit { server: server.name(), reason: reason.to_owned() });
    if follow {
        return unfit("knows no versions, and so not which of its items a change is newer than: leave --follow away");
    }
    if !is_listed {
        return unfit(
            "knows no versions, and this base was read from a feed, which tells some keys more than once: dump with --walk",
        );
    }
    Ok(())
}
