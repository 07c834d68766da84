//! The stack that settings ask for, drawn for people: who listens, what a request passes, where items lie.

use std::fmt::Write;

use moneta_flash::Durability;
use moneta_options::declaration::Declaration;
use moneta_options::kinds::Kind;
use moneta_options::kinds::units::{Bytes, Time};
use moneta_remote::RemoteConfig;
use moneta_server::config::Policy;

use crate::options::app::AppSettings;
use crate::options::sections::access::AUTH_FILE;
use crate::options::sections::flash::FLASH;
use crate::options::sections::memory::{MAX_ITEM_SIZE, MEMORY, NO_EVICT};
use crate::options::sections::network::{self, BATCH_PORT, PORT, UNIX_SOCKET};
use crate::options::sections::proxy::{ACK, NODE_TIMEOUT, READ_FALLBACK, TOPOLOGY, ZONE};
use crate::options::sections::tiers::{Lower, PROMOTE, Upper};
use crate::options::sections::workers::THREADS;
use crate::options::settings::Settings;

/// Where a process shows the drawing of its stack on its admin port.
pub const PATH: &str = "/explain";

/// Draws the stack, from clients down to where items lie.
pub fn draw(settings: &Settings) -> String {
    let mut text = String::from("clients\n");
    for (address, policy) in listeners(settings) {
        let _ = writeln!(text, "  {address}  {policy}");
    }
    let users = settings.get(&AUTH_FILE).map_or(String::new(), |path| format!(", users from {}", path.display()));
    let _ = writeln!(text, "   |\nserver     {} worker threads{users}\n   |", settings.get(&THREADS));
    let (upper, lower) = (upper(settings), lower(&settings.stack.lower));
    if settings.is_proxy() {
        draw_apps(&mut text, settings);
        return text;
    }
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

/// The apps of a proxy, each with what leads to it and where its data are.
fn draw_apps(text: &mut String, settings: &Settings) {
    if !settings.has_app_tables {
        for app in &settings.apps {
            let _ = writeln!(text, "store      {}", cluster(app));
        }
        return;
    }
    let _ = writeln!(text, "apps       by listener, else by the longest prefix that a key begins with");
    for (place, app) in settings.apps.iter().enumerate() {
        let (branch, stem) = if place + 1 < settings.apps.len() { ("|--", "|") } else { ("`--", " ") };
        let _ = writeln!(text, "   {branch} {}", app.name);
        if let Some(prefix) = &app.prefix {
            let treated = if app.strip_prefix { "the nodes get them without it" } else { "kept" };
            let _ = match prefix.as_str() {
                "" => writeln!(text, "   {stem}     keys that are no other app's"),
                prefix => writeln!(text, "   {stem}     keys that begin with `{prefix}`: {treated}"),
            };
        }
        for (listener, _) in settings.listeners.iter().filter(|(listener, _)| listener.app.as_ref() == Some(&app.name))
        {
            let _ = writeln!(text, "   {stem}     all that comes through {}", listener.address);
        }
        let _ = writeln!(text, "   {stem}     {}", cluster(app));
    }
    if settings.apps.iter().all(|app| app.prefix.as_deref() != Some("")) {
        let _ = writeln!(text, "   other keys are refused");
    }
}

/// Where an app's data are, in a line.
pub fn cluster(app: &AppSettings) -> String {
    let of = |option: &dyn Declaration| option.in_force(&app.values);
    let zone = app.values.get(&ZONE).map_or("any zone first".into(), |zone| format!("zone {zone} first"));
    let (ack, fallback) = (of(&ACK), of(&READ_FALLBACK));
    let (topology, timeout) = (of(&TOPOLOGY), of(&NODE_TIMEOUT));
    format!(
        "cluster {topology}: {zone}, reads go on: {fallback}, writes wait for: {ack}, nodes answer within {timeout}"
    )
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
        // Its apps are drawn each.
        Lower::Cluster => None,
    }
}

fn remote(config: &RemoteConfig) -> String {
    let protocol =
        config.protocol.map_or("the best protocol it knows".into(), |protocol| format!("{protocol:?}").to_lowercase());
    format!(
        "remote  {}, {protocol}, {} a worker, answers within {}",
        config.endpoint.address,
        if config.connections == 1 { "1 connection".into() } else { format!("{} connections", config.connections) },
        Time(config.request_timeout.get())
    )
}
