//! The options after they were checked against each other: what the rest of the program works with.

use std::ops::Deref;

use crate::options::listener::ExtraListener;
use crate::options::report::{Origin, Refused};
use crate::options::resolve::Resolved;
use crate::options::sections::tiers::{self, StackSettings};
use crate::options::sections::{access, cluster, memory, network, proxy};
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
            proxy::contradictions(&values),
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
