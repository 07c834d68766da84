//! What a process says of itself on its admin port.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::plan::Process;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of `/readyz`.
#[derive(Deserialize)]
pub struct Ready {
    pub ready: bool,
    pub phase: String,
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Numbers of a process.
#[derive(Default)]
pub struct Numbers {
    pub version: String,
    pub items: u64,
    pub hits: u64,
    pub gets: u64,
    /// Writes that a proxy keeps for nodes.
    pub hints: u64,
}

/// Whether it is ready, or what keeps it from that.
pub fn ready(process: &Process) -> anyhow::Result<Ready> {
    Ok(serde_json::from_str(&get(process, "readyz")?)?)
}

pub fn numbers(process: &Process) -> anyhow::Result<Numbers> {
    let stats: Value = serde_json::from_str(&get(process, "stats")?)?;
    let number = |key: &str| stats[key].as_u64().unwrap_or_default();
    // Each line of a metric: its name, labels, and value.
    let hints = |text: &str| -> u64 {
        let values = text.lines().filter(|line| line.starts_with("moneta_cluster_hints{"));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    Ok(Numbers {
        version: stats["moneta_version"].as_str().unwrap_or("?").to_owned(),
        items: number("curr_items"),
        hits: number("get_hits"),
        gets: number("get_hits") + number("get_misses"),
        hints: if process.proxy { hints(&get(process, "metrics")?) } else { 0 },
    })
}

fn get(process: &Process, page: &str) -> anyhow::Result<String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
    let mut answer =
        ureq::Agent::new_with_config(config).get(format!("http://{}/{page}", process.admin_address())).call()?;
    Ok(answer.body_mut().read_to_string()?)
}
