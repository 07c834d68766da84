//! The loads of a campaign: the same keys and values, asked for in another order by each.

use std::cell::Cell;
use std::sync::Arc;

use super::settings::Settings;
use moneta_bench::Result;
use moneta_bench::load::{Length, Plan};
use moneta_bench::operation::Operation;
use moneta_bench::popularity::Popularity;
use moneta_bench::weighted::Weighted;
use moneta_bench::wire::Protocol;
use moneta_bench::workload::Workload;

/// Makes the plans of a campaign's loads: the same keys and values for all of them, asked for in another order by each, so that
/// none finds in RAM what an earlier one brought there.
#[derive(Debug)]
pub struct Loads {
    base: Plan,
    runs: Cell<u64>,
    /// Bytes of a key and its value.
    pub item_bytes: u64,
    /// How values are told of in the names of loads.
    pub size: String,
}

impl Loads {
    /// The loads of a campaign with values of this size.
    pub fn new(settings: &Settings, value_size: u32) -> Self {
        let scale = &settings.scale;
        let workload = Workload {
            seed: 1,
            keys: scale.keys,
            key_length: scale.key_length,
            popularity: Popularity::Uniform,
            sizes: Weighted::only(value_size),
            random_sizes: false,
            ttls: Weighted::only(0),
            mix: Weighted::only(Operation::Get),
            once_share: 0.0,
            lookaside: false,
        };
        let base = Plan {
            workload: Arc::new(workload),
            run: 0,
            protocol: Protocol::Text,
            connections: 16,
            threads: 1,
            pipeline: 1,
            sliding: false,
            multiget: 1,
            warmup: scale.warmup,
            length: Length::Duration(scale.length),
            rate: None,
            verify: scale.verify,
            cpus: settings.client_cpus.clone(),
            progress: settings.progress,
        };
        let runs = Cell::new(0);
        Self {
            base,
            runs,
            item_bytes: (scale.key_length + value_size as usize) as u64,
            size: format!("{value_size} B"),
        }
    }

    /// Refuses a workload that cannot be measured.
    ///
    /// # Errors
    /// As [`Workload::validate`].
    pub fn validate(&self) -> Result<()> {
        self.base.workload.validate()
    }

    /// Uniform random gets in a closed loop.
    pub fn plan(&self, connections: usize) -> Plan {
        self.runs.set(self.runs.get() + 1);
        Plan { connections, run: self.runs.get(), ..self.base.clone() }
    }

    /// The same with something of the workload changed.
    pub fn with(&self, connections: usize, change: impl FnOnce(&mut Workload)) -> Plan {
        let mut workload = Workload::clone(&self.base.workload);
        change(&mut workload);
        Plan { workload: Arc::new(workload), ..self.plan(connections) }
    }
}
