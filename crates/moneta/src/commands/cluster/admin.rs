//! What a process says of itself on its admin port.

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::admin_port;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of `/readyz`.
#[derive(Deserialize)]
pub struct Ready {
    pub ready: bool,
    pub phase: String,
    #[serde(default)]
    pub notes: Vec<String>,
    /// How it stands to the slot that it is to hold, if a control plane has told it.
    #[serde(default)]
    slot: Option<String>,
}

impl Ready {
    /// Whether another process holds the slot that this one is to have: it waits, and has nothing to serve meanwhile.
    pub fn is_spare(&self) -> bool {
        self.slot.as_deref() == Some("spare")
    }
}

/// Numbers of a process.
#[derive(Default)]
pub struct Numbers {
    pub version: String,
    pub items: u64,
    pub hits: u64,
    pub gets: u64,
}

/// How a proxy sees its nodes.
#[derive(Default)]
pub struct View {
    /// Nodes that it does not ask.
    pub down: u64,
    /// Writes that it keeps for nodes.
    pub hints: u64,
}

/// Whether the process with this admin address is ready, or what keeps it from that.
pub fn ready(admin: &str) -> anyhow::Result<Ready> {
    Ok(serde_json::from_str(&get(admin, "/readyz")?)?)
}

pub fn numbers(admin: &str) -> anyhow::Result<Numbers> {
    let stats: Value = serde_json::from_str(&get(admin, "/stats")?)?;
    let number = |key: &str| stats[key].as_u64().unwrap_or_default();
    Ok(Numbers {
        version: stats["moneta_version"].as_str().unwrap_or("?").to_owned(),
        items: number("curr_items"),
        hits: number("get_hits"),
        gets: number("get_hits") + number("get_misses"),
    })
}

/// How a proxy sees its nodes.
pub fn view(admin: &str) -> anyhow::Result<View> {
    let text = get(admin, "/metrics")?;
    let down = samples(&text, "moneta_cluster_node_up").filter(|up| *up == 0.0).count() as u64;
    let hints = samples(&text, "moneta_cluster_hints").sum::<f64>() as u64;
    Ok(View { down, hints })
}

/// The Unix time at which the process began, in seconds, to 10 ms: a node may be restarted within the second of its start.
pub fn started(admin: &str) -> anyhow::Result<f64> {
    let text = get(admin, "/metrics")?;
    let began = samples(&text, "process_start_time_seconds").next();
    began.context("it is no Moneta")
}

/// The values of a metric, whatever its labels.
fn samples(text: &str, name: &str) -> impl Iterator<Item = f64> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse().ok())?
    })
}

fn get(admin: &str, page: &str) -> anyhow::Result<String> {
    admin_port::text(admin, page, TIMEOUT)
}
