//! The node as one of several copies: how the versions of its writes are made, and which deletes it remembers.

use std::sync::LazyLock;
use std::time::Duration;

use moneta_cluster::catchup::AtDeadline;
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Milliseconds, Number, Seconds, Share, Size, Switch};
use moneta_options::kinds::units::TIB;
use moneta_options::kinds::words::{Choice, Name};
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;
use moneta_server::node::{ClientVersions, NodeSettings};
use moneta_store::Origin;
use moneta_store::versions::Versioning;

use crate::options::kinds::topology::{Server, TopologySource};
use crate::options::kinds::words::WriterId;
use crate::options::sections::memory::MEMORY;
use crate::options::sections::tiers::{Lower, StackSettings, Upper};

section! {
    "Cluster";

    /// This node is one of several copies of the same data: writes have versions, deletes leave tombstones.
    CLUSTER: Switch = Opt::new("cluster", Switch, || false)
        .when("On all nodes whose data others hold too (versions.md).");

    /// The region of this node: part of the version of every write.
    REGION_ID: Number<u8> = Opt::new("region_id", Number { min: 0, max: 15 }, || 0)
        .when("Another number for each region.");

    /// The writer that this process is: the last part of its versions. auto draws one at the start. Two may have the same.
    WRITER_ID: WriterId = Opt::new("writer_id", WriterId, || None)
        .when("Where versions should tell which process made them.");

    /// Whether clients may name the versions of what they write and flush. auto: on a node, and on a proxy through listeners with
    /// the policy batch.
    CLIENT_VERSIONS: Choice<Option<bool>> =
        Opt::new("client_versions", Choice(&[("auto", None), ("yes", Some(true)), ("no", Some(false))]), || None)
            .when("yes on a proxy that a feed or a repair writes to by its ordinary port.");

    /// Share of --memory, beside it, for the keys that changed last, for readers of the feed. 0: no feed. A node that tells from
    /// its log on SSD takes none.
    FEED_MEMORY: Share = Opt::new("feed_memory", Share { max: 50 }, || 1)
        .when("Larger where readers may be away for longer. Only with --cluster.");

    /// How far ahead of this node's clock the version of a write may be; what is further ahead is refused.
    MAX_CLOCK_SKEW: Milliseconds =
        Opt::new("max_clock_skew", Milliseconds { min: 1, max: 3_600_000 }, || Duration::from_millis(500))
            .when("Larger where clocks cannot be kept closer.");

    /// How long deletes are remembered, so that copies that have not heard of them cannot bring items back.
    TOMBSTONE_TTL: Seconds = Opt::new("tombstone_ttl", Seconds { min: 1, max: 31_536_000 }, || Duration::from_secs(3600))
        .when("Longer where a copy may be cut off for longer.");

    /// Where it is said which nodes hold other copies of this node's data (topology.md). A node that comes back learns from them
    /// what it has missed, before it answers reads.
    CATCH_UP: TopologySource = Opt::new("catch_up", TopologySource, || None)
        .when("On every node with an SSD tier that is one of several copies. Only with --cluster.");

    /// The address that the topology has for this node. Without it, the one of this machine with a port that the node listens on.
    CATCH_UP_AS: Server = Opt::new("catch_up_as", Server, || None)
        .when("Where the topology's addresses are not this machine's, as in a container.");

    /// After this long a node that could not learn what it has missed does what catch_up_then says.
    CATCH_UP_DEADLINE: Seconds = Opt::new("catch_up_deadline", Seconds { min: 1, max: 31_536_000 }, || Duration::from_secs(600))
        .when("Longer where nodes are away for long.");

    /// What a node that could not learn what it missed by then does while another copy answers reads: stay-out answers none and
    /// goes on to try; serve answers.
    CATCH_UP_THEN: Choice<AtDeadline> =
        Opt::new("catch_up_then", Choice(&[("stay-out", AtDeadline::StayOut), ("serve", AtDeadline::Serve)]), || {
            AtDeadline::StayOut
        })
            .when("serve where answers that may be old are better than reads from another zone.");

    /// The replica from which a node that starts empty copies the keys of its slot while it serves; most-items: the one that has
    /// the most. With a control plane, this is a job there.
    FILL_FROM: Name = Opt::new("fill_from", Name, || None)
        .when("On nodes whose items go with a restart or a lost disk.");

    /// Bytes a second that filling takes at most; less where it makes online gets slower by half.
    FILL_RATE: Size<u64> = Opt::new("fill_rate", Size::in_bytes(1, TIB), || 100 << 20)
        .when("Higher where nodes have bandwidth to spare.");

    /// Memory for deletes that are remembered, 16 bytes each in tables at least half full; part of --memory. 0 takes a hundredth
    /// of it.
    TOMBSTONE_MEMORY: Size<u64> = Opt::new("tombstone_memory", Size::in_bytes(0, TIB), || 0)
        .when("Where deletes are forgotten before tombstone_ttl.");
}

/// Bytes that the feed may take; `None`: there is none.
pub fn feed_bytes(options: &Values) -> Option<u64> {
    let bytes = options.get(&MEMORY) / 100 * u64::from(options.get(&FEED_MEMORY));
    (options.get(&CLUSTER) && bytes > 0).then_some(bytes)
}

/// Refuses tiers that remember no deletes.
pub fn contradictions(options: &Values, stack: &StackSettings) -> Vec<Refusal> {
    let remembers = match (&stack.upper, &stack.lower) {
        (_, Lower::Flash(_) | Lower::Rocks(_) | Lower::Lmdb(_)) | (Upper::Memory | Upper::Remote(..), Lower::None) => {
            true
        }
        (_, Lower::None | Lower::Remote(_) | Lower::Cluster) => false,
    };
    if options.get(&CLUSTER) && !remembers {
        return vec![options.refuse(
            &CLUSTER,
            "false where the server of l2 keeps the items: it makes the versions, and is one of several copies or not",
        )];
    }
    if options.get(&CLUSTER) && options.get(&CLIENT_VERSIONS) == Some(false) {
        return vec![
            options
                .refuse(&CLIENT_VERSIONS, "auto or yes with --cluster: proxies name the versions of what they write"),
        ];
    }
    if options.get(&CATCH_UP).is_some() && !options.get(&CLUSTER) {
        return vec![options.refuse(&CATCH_UP, "left out without --cluster: a lone node has no other copies")];
    }
    let tells_when = matches!((&stack.upper, &stack.lower), (_, Lower::Flash(_)) | (Upper::Memory, Lower::None));
    if options.get(&CATCH_UP).is_some() && !tells_when {
        return vec![options.refuse(
            &CATCH_UP,
            "left out where items are kept elsewhere than in RAM and in the SSD tier of --flash: nothing tells how old they are",
        )];
    }
    if options.get(&FILL_FROM).is_some() && options.get(&CATCH_UP).is_none() {
        return vec![options.refuse(&FILL_FROM, "left out without --catch-up, which says where the replica is")];
    }
    if options.get(&CATCH_UP_AS).is_some() && options.get(&CATCH_UP).is_none() {
        return vec![options.refuse(&CATCH_UP_AS, "left out without --catch-up, which says where other copies are")];
    }
    Vec::new()
}

/// Tells sessions who makes the versions of what is written here, and what clients may not do.
pub fn configure(options: &Values, is_proxy: bool, node: &mut NodeSettings) {
    node.origin = origin(options);
    node.cluster = options.get(&CLUSTER);
    node.keeps_versions = node.cluster;
    node.skew_max = skew_max(options);
    node.client_versions = match options.get(&CLIENT_VERSIONS) {
        None if is_proxy => ClientVersions::Batch,
        None | Some(true) => ClientVersions::Taken,
        Some(false) => ClientVersions::Refused,
    };
}

/// Who writes here.
pub fn origin(options: &Values) -> Origin {
    static DRAWN: LazyLock<u8> = LazyLock::new(|| getrandom::u32().unwrap_or_else(|_| std::process::id()) as u8 & 15);
    Origin::new(options.get(&REGION_ID), options.get(&WRITER_ID).unwrap_or_else(|| *DRAWN))
}

/// How far ahead of the clock versions may be, in milliseconds.
pub fn skew_max(options: &Values) -> u64 {
    u64::try_from(options.get(&MAX_CLOCK_SKEW).as_millis()).unwrap_or(u64::MAX)
}

/// How the engines of the node make and keep versions. `salt` differs from process to process.
pub fn versioning(options: &Values, salt: u64) -> Versioning {
    let tombstone_bytes = match options.get(&TOMBSTONE_MEMORY) {
        0 => options.get(&MEMORY) / 100,
        bytes => bytes,
    };
    Versioning {
        origin: origin(options),
        salt,
        counts_from: if options.get(&CLUSTER) { None } else { Some(0) },
        cluster: options.get(&CLUSTER),
        skew_max: skew_max(options),
        tombstone_bytes,
        tombstone_ttl: u32::try_from(options.get(&TOMBSTONE_TTL).as_secs()).unwrap_or(u32::MAX),
    }
}
