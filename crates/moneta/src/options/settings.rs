//! The options after they were checked against each other: what the rest of the program works with.

use std::ops::Deref;

use crate::options::declaration::{Declaration, Section};
use crate::options::listener::ExtraListener;
use crate::options::report::{Origin, Refusal, Refused};
use crate::options::resolve::Resolved;
use crate::options::sections::tiers::{self, StackSettings};
use crate::options::sections::{access, cluster, flash, lmdb, memory, network, proxy, remote, rocks};
use crate::options::values::Values;

/// Everything `moneta serve` was asked for: options that fit together.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Values,
    /// Further listeners, from the file.
    pub listeners: Vec<(ExtraListener, Origin)>,
    /// The tiers.
    pub stack: StackSettings,
}

impl Settings {
    /// Takes what is in force, if it fits together.
    ///
    /// # Errors
    /// [`Refused`] with all options that cannot be had together.
    pub fn new(resolved: Resolved) -> Result<Self, Refused> {
        let Resolved { values, listeners } = resolved;
        let stack = StackSettings::new(&values);
        let refusals = [
            network::contradictions(&values, !listeners.is_empty()),
            memory::contradictions(&values, stack.has_memory()),
            of_proxy(&values),
            if proxy::is_proxy(&values) { Vec::new() } else { tiers::contradictions(&values) },
            cluster::contradictions(&values, &stack),
            access::contradictions(&values),
        ]
        .concat();
        if refusals.is_empty() { Ok(Self { values, listeners, stack }) } else { Err(Refused(refusals)) }
    }
}

impl Deref for Settings {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

/// Refuses options of a proxy where there is none, and those of items where there is one.
fn of_proxy(options: &Values) -> Vec<Refusal> {
    let changed = |section: &Section| {
        section.options.iter().copied().filter(|option| options.is_changed(*option)).collect::<Vec<_>>()
    };
    if !proxy::is_proxy(options) {
        let refuse = |option: &dyn Declaration| options.refuse(option, "given together with topology, to a proxy");
        return changed(&proxy::SECTION).into_iter().map(refuse).collect();
    }
    let sections = [&tiers::SECTION, &flash::SECTION, &rocks::SECTION, &lmdb::SECTION, &remote::SECTION];
    let own: [&dyn Declaration; 4] =
        [&cluster::CLUSTER, &cluster::FEED_MEMORY, &cluster::TOMBSTONE_MEMORY, &memory::NO_EVICT];
    let others =
        sections.into_iter().flat_map(changed).chain(own.into_iter().filter(|option| options.is_changed(*option)));
    others.map(|option| options.refuse(option, "left out of a proxy, which keeps no items")).collect()
}
