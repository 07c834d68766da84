//! The stack that settings ask for, drawn for people: who listens, what a request passes, where items lie.

use std::fmt::Write;

use moneta_flash::Durability;
use moneta_remote::RemoteConfig;
use moneta_server::config::Policy;

use crate::options::kinds::Kind;
use crate::options::kinds::units::{Bytes, Time};
use crate::options::sections::access::AUTH_FILE;
use crate::options::sections::flash::FLASH;
use crate::options::sections::memory::{MAX_ITEM_SIZE, MEMORY, NO_EVICT};
use crate::options::sections::network::{self, BATCH_PORT, PORT, UNIX_SOCKET};
use crate::options::sections::proxy::TOPOLOGY;
use crate::options::sections::tiers::{Lower, PROMOTE, Upper};
use crate::options::sections::workers::THREADS;
use crate::options::settings::Settings;

/// Draws the stack, from clients down to where items lie.
pub fn draw(settings: &Settings) -> String {
    let mut text = String::from("clients\n");
    for (address, policy) in listeners(settings) {
        let _ = writeln!(text, "  {address}  {policy}");
    }
    let users = settings.get(&AUTH_FILE).map_or(String::new(), |path| format!(", users from {}", path.display()));
    let _ = writeln!(text, "   |\nserver     {} worker threads{users}\n   |", settings.get(&THREADS));
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
    let listen = network::listen(settings);
    let tcp = listen.iter().map(|address| {
        let port = address.port.unwrap_or_else(|| settings.get(&PORT));
        (format!("{}:{port}", address.host), "online")
    });
    let unix = settings.get(&UNIX_SOCKET).into_iter().map(|path| (path.display().to_string(), "online"));
    let batch = settings
        .get(&BATCH_PORT)
        .into_iter()
        .flat_map(|port| listen.iter().map(move |address| (format!("{}:{port}", address.host), "batch")));
    let extra = settings.listeners.iter().map(|(listener, _)| {
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
        PROMOTE.kind.write(&between.promotion)
    );
    if let Some(bytes) = between.write_budget {
        let _ = write!(text, "; at most {} a day are written to L2", Bytes(bytes));
    }
    text
}

/// The upper tier in a line.
pub fn upper(settings: &Settings) -> Option<String> {
    let item = Bytes(settings.get(&MAX_ITEM_SIZE) as u64);
    match &settings.stack.upper {
        Upper::None => None,
        Upper::Memory => {
            let full = if settings.get(&NO_EVICT) { "refuses to store when full" } else { "evicts when full" };
            Some(format!("memory  {}, values up to {item}, {full}", Bytes(settings.get(&MEMORY))))
        }
        Upper::Remote(config, piece) => {
            let pieces = format!("values in pieces of up to {}", Bytes((*piece).into()));
            Some(format!("{}, {pieces}", remote(config)))
        }
    }
}

/// The lower tier in a line.
pub fn lower(lower: &Lower) -> Option<String> {
    match lower {
        Lower::None => None,
        Lower::Flash(tier) => {
            let devices = FLASH.kind.write(&tier.engine.devices);
            let durable = match tier.engine.durability {
                Durability::Interval => format!("within {} of a write", Time(tier.engine.flush_interval)),
                Durability::EveryWrite => "before a write is acknowledged".into(),
            };
            Some(format!("flash   {devices}: has every item, {durable}"))
        }
        Lower::Rocks(tier) => Some(format!("rocks   {tier}")),
        Lower::Lmdb(tier) => Some(format!("lmdb    {tier}")),
        Lower::Remote(config) => Some(remote(config)),
        Lower::Cluster(topology) => Some(format!("cluster {}", TOPOLOGY.kind.write(&Some(topology.clone())))),
    }
}

fn remote(config: &RemoteConfig) -> String {
    let protocol =
        config.protocol.map_or("the best protocol it knows".into(), |protocol| format!("{protocol:?}").to_lowercase());
    format!(
        "remote  {}, {protocol}, {} a worker, answers within {}",
        config.address,
        if config.connections == 1 { "1 connection".into() } else { format!("{} connections", config.connections) },
        Time(config.request_timeout)
    )
}
