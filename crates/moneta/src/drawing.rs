//! The stack that settings ask for, drawn for people: who listens, what a request passes, where items lie.

use std::fmt::Write;

use moneta_flash::Durability;
use moneta_remote::RemoteConfig;
use moneta_server::config::Policy;

use crate::options::promotion;
use crate::options::settings::Settings;
use crate::options::stack::{Lower, Upper};
use crate::options::value::Value;

/// Draws the stack, from clients down to where items lie.
pub fn draw(settings: &Settings) -> String {
    let mut text = String::from("clients\n");
    for (address, policy) in listeners(settings) {
        let _ = writeln!(text, "  {address}  {policy}");
    }
    let users = settings.auth_file.as_ref().map_or(String::new(), |path| format!(", users from {}", path.display()));
    let _ = writeln!(text, "   |\nserver     {} worker threads{users}\n   |", settings.threads);
    let (upper, lower) = (upper(settings), lower(&settings.stack.lower));
    match (upper, lower) {
        (Some(upper), Some(lower)) => {
            let _ = writeln!(text, "tiered     {}", between(settings));
            let _ = writeln!(text, "   |-- L1  {upper}\n   `-- L2  {lower}");
        }
        (one, other) => {
            let only = one.or(other).expect("settings without a tier are refused");
            let _ = writeln!(text, "store      {only}");
        }
    }
    text
}

/// Every address with the policy of its requests, in the order in which they are opened.
fn listeners(settings: &Settings) -> Vec<(String, &'static str)> {
    let tcp = settings.listen.iter().map(|address| {
        let port = address.port.unwrap_or(settings.port);
        (format!("{}:{port}", address.host), "online")
    });
    let unix = settings.unix_socket.iter().map(|path| (path.display().to_string(), "online"));
    let batch = settings
        .batch_port
        .into_iter()
        .flat_map(|port| settings.listen.iter().map(move |address| (format!("{}:{port}", address.host), "batch")));
    let extra = settings.extra_listeners.iter().map(|listener| {
        let policy = if listener.policy == Policy::Batch { "batch" } else { "online" };
        (listener.address.to_string(), policy)
    });
    tcp.chain(unix).chain(batch).chain(extra).collect()
}

/// What lies between the tiers.
fn between(settings: &Settings) -> String {
    let between = &settings.stack.between;
    let mut text = format!(
        "L2 is written first, then L1; what is read from L2 comes up: {}; keys are locked for all listeners together",
        promotion::written(between.promotion)
    );
    if let Some(bytes) = between.write_budget {
        let _ = write!(text, "; at most {} a day are written to L2", Value::Size(bytes));
    }
    text
}

/// The upper tier in a line.
pub fn upper(settings: &Settings) -> Option<String> {
    let item = Value::Size(settings.max_item_size as u64);
    match &settings.stack.upper {
        Upper::None => None,
        Upper::Memory => {
            let full = if settings.evictions { "evicts when full" } else { "refuses to store when full" };
            Some(format!("memory  {}, values up to {item}, {full}", Value::Size(settings.memory)))
        }
        Upper::Remote(config, piece) => {
            let pieces = format!("values in pieces of up to {}", Value::Size((*piece).into()));
            Some(format!("{}, {pieces}", remote(config)))
        }
    }
}

/// The lower tier in a line.
pub fn lower(lower: &Lower) -> Option<String> {
    match lower {
        Lower::None => None,
        Lower::Flash(tier) => {
            let devices = Value::Devices(tier.engine.devices.clone());
            let durable = match tier.engine.durability {
                Durability::Interval => format!("within {} of a write", Value::Duration(tier.engine.flush_interval)),
                Durability::EveryWrite => "before a write is acknowledged".into(),
            };
            Some(format!("flash   {devices}: has every item, {durable}"))
        }
        Lower::Rocks(tier) => Some(format!("rocks   {tier}")),
        Lower::Lmdb(tier) => Some(format!("lmdb    {tier}")),
        Lower::Remote(config) => Some(remote(config)),
    }
}

fn remote(config: &RemoteConfig) -> String {
    let protocol =
        config.protocol.map_or("the best protocol it knows".into(), |protocol| format!("{protocol:?}").to_lowercase());
    format!(
        "remote  {}, {protocol}, {} a worker, answers within {}",
        config.address,
        if config.connections == 1 { "1 connection".into() } else { format!("{} connections", config.connections) },
        Value::Duration(config.request_timeout)
    )
}
