//! The store of a proxy: clusters, one for each app, whose nodes are reached over memcached's protocol.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use moneta_cluster::sources::{
    DnsConfig, DnsSource, DnsZone, FileSource, Format, GuardConfig, Guarded, TopologySource,
};
use moneta_cluster::{App, Apps, Cluster, ClusterConfig, RemoteNodes, Topology, Writer};
use moneta_link::{ControlSource, Epochs};
use moneta_net::Outward;
use moneta_options::kinds::Kind;
use moneta_options::values::Values;
use moneta_remote::{RemoteConfig, ValueMemory};
use moneta_store::{Clock, Door, KeyHash, Origin, Store};

use crate::linked::Link;
use crate::options::app::AppSettings;
use crate::options::kinds::topology::{self, Source};
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::cluster;
use crate::options::sections::memory::{CLIENT_MEMORY, MAX_ITEM_SIZE};
use crate::options::sections::proxy;
use crate::options::settings::Settings;
use crate::outward;

/// How long the first topology is waited for.
pub const FIRST: Duration = Duration::from_secs(10);

/// What says the topology; `link`: the control plane, for what comes from there.
///
/// # Errors
/// If it cannot be asked at all.
pub fn source(source: &Source, link: Option<&Link>) -> anyhow::Result<Box<dyn TopologySource>> {
    Ok(match source {
        Source::Toml(path) => Box::new(FileSource::new(path, Format::Toml)),
        Source::Evcache(path, property) => Box::new(FileSource::new(path, Format::Evcache(property.clone()))),
        Source::Control(app) => Box::new(link.context("no control plane is named")?.source(app)?),
        Source::Dns(zones) => {
            let zones = zones
                .iter()
                .map(|(zone, name)| DnsZone { zone: zone.clone(), name: name.clone(), port: 11211 })
                .collect();
            Box::new(DnsSource::new(DnsConfig::new(zones))?)
        }
    })
}

/// The topology that a source, written as for `--topology`, says now.
///
/// # Errors
/// If it says none.
pub fn topology(text: &str) -> anyhow::Result<Topology> {
    let kind = topology::TopologySource;
    let source = kind.read(text).flatten();
    let source = source.with_context(|| format!("\"{text}\" is no topology: it must be {}", kind.range()))?;
    let mut source = match &source {
        Source::Control(app) => {
            let control = outward::control_of_command().context("--control says where the control plane is")?;
            Box::new(ControlSource::new(Arc::new(control), app, Epochs::default())?)
        }
        other => self::source(other, None)?,
    };
    let until = Instant::now() + FIRST;
    loop {
        match source.next(until.saturating_duration_since(Instant::now()))? {
            Some(topology) => return Ok(topology),
            None if Instant::now() < until => {}
            None => anyhow::bail!("the source says no topology"),
        }
    }
}

/// The door of the app at `place` of all apps.
pub fn door(place: usize) -> Door {
    Door(u16::try_from(place + 1).unwrap_or(u16::MAX))
}

/// The memory of a proxy for large values on their way from and to nodes.
pub fn value_memory(settings: &Settings) -> Arc<ValueMemory> {
    Arc::new(ValueMemory::new(settings.get(&CLIENT_MEMORY)))
}

/// The apps of a proxy, each of which follows its topology.
///
/// # Errors
/// If there is no topology, or it makes no sense.
pub fn apps(
    settings: &Settings,
    outward: &Outward,
    link: Option<&Link>,
    memory: &Arc<ValueMemory>,
    clock: &Arc<Clock>,
) -> anyhow::Result<Apps> {
    let seed = KeyHash::random().context("the system has no randomness")?;
    let app = |(place, app): (usize, &AppSettings)| {
        let cluster = cluster(app, keys_of(app, &settings.apps), outward, link, seed, memory, clock)
            .with_context(|| format!("app {}", app.name))?;
        let prefix = app.prefix.as_ref().map(|prefix| prefix.as_bytes().to_vec());
        let door = app.has_listeners.then(|| door(place));
        anyhow::Ok(App { cluster, prefix, strip_prefix: app.strip_prefix, door })
    };
    let apps = settings.apps.iter().enumerate().map(app).collect::<Result<_, _>>()?;
    Ok(Apps::new(apps))
}

/// What the keys of an app among `all` begin with on its nodes.
fn keys_of(app: &AppSettings, all: &[AppSettings]) -> AppKeys {
    let Some(prefix) = app.prefix.as_ref().filter(|_| !app.strip_prefix) else { return AppKeys::default() };
    let others = all.iter().filter_map(|other| other.prefix.as_ref());
    let others = others.filter(|other| other.len() > prefix.len() && other.starts_with(&**prefix));
    AppKeys { prefix: prefix.as_bytes().to_vec(), others: others.map(|other| other.as_bytes().to_vec()).collect() }
}

/// The store of all apps: the cluster itself, where there is one app and nothing to tell apart.
pub fn store(apps: &Apps) -> Arc<dyn Store> {
    match apps.all() {
        [only] if only.door.is_none() && only.prefix.as_ref().is_some_and(Vec::is_empty) => {
            Arc::new(only.cluster.clone())
        }
        _ => Arc::new(apps.clone()),
    }
}

fn cluster(
    app: &AppSettings,
    keys: AppKeys,
    outward: &Outward,
    link: Option<&Link>,
    seed: KeyHash,
    memory: &Arc<ValueMemory>,
    clock: &Arc<Clock>,
) -> anyhow::Result<Cluster> {
    let settings = &app.values;
    let folder = settings.get(&proxy::HINT_DIR);
    let topology = settings.get(&proxy::TOPOLOGY).context("an app has a topology")?;
    let beside_hints = || folder.map(|folder| folder.join(format!("{}.topology.toml", app.name)));
    let kept = match &topology {
        Source::Control(app) => link.and_then(|link| link.kept(app)).or_else(beside_hints),
        _ => beside_hints(),
    };
    let parts = ClusterParts {
        name: app.name.clone(),
        keys,
        kept,
        allow_flush: !settings.get(&DISABLE_FLUSH_ALL),
        has_boards: true,
        origin: cluster::origin(settings),
        seed,
        outward: outward.clone(),
        memory: Arc::clone(memory),
        clock: Arc::clone(clock),
    };
    cluster_of(settings, source(&topology, link)?, parts)
}

/// Which keys on nodes are an app's.
#[derive(Default)]
pub struct AppKeys {
    /// They begin so; empty: with anything.
    pub prefix: Vec<u8>,
    /// And not so, as those of other apps.
    pub others: Vec<Vec<u8>>,
}

/// What a cluster is made of, beside the options of its proxy.
pub struct ClusterParts {
    /// The app's name.
    pub name: String,
    /// Its keys.
    pub keys: AppKeys,
    /// The file that keeps its last topology.
    pub kept: Option<PathBuf>,
    /// It may be flushed.
    pub allow_flush: bool,
    /// It posts on the nodes' boards, as a process of the app. Else others would take it for another app on their nodes.
    pub has_boards: bool,
    /// Who writes.
    pub origin: Origin,
    /// How keys are hashed in this process.
    pub seed: KeyHash,
    /// How nodes are reached.
    pub outward: Outward,
    /// Memory for large values.
    pub memory: Arc<ValueMemory>,
    /// The clock of this process.
    pub clock: Arc<Clock>,
}

/// A cluster that follows its topology.
///
/// # Errors
/// If there is no topology, it makes no sense, or the folder of hints cannot be used.
pub fn cluster_of(settings: &Values, source: Box<dyn TopologySource>, parts: ClusterParts) -> anyhow::Result<Cluster> {
    let ClusterParts { name, keys, kept, allow_flush, has_boards, origin, seed, outward, memory, clock } = parts;
    let salt = getrandom::u64().context("the system has no randomness")?;
    let config = proxy::config(settings, &name, allow_flush);
    let config = ClusterConfig { prefix: keys.prefix, others: keys.others, ..config };
    if let Some(folder) = &config.hint_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("no folder for hints at {}", folder.display()))?;
    }
    let mut source = Guarded::new(source, GuardConfig { kept, ..GuardConfig::default() });
    let first = source.first(FIRST).context("there is no topology")?;
    let settings_of = settings.clone();
    let configure =
        move |address| RemoteConfig { seed, memory: Arc::clone(&memory), ..proxy::node(&settings_of, address) };
    let timeout = settings.get(&proxy::NODE_TIMEOUT).into();
    let nodes = RemoteNodes::new(Box::new(configure), timeout, outward, Arc::clone(&clock));
    let nodes = if has_boards { nodes } else { nodes.without_boards() };
    let writer = Writer { origin, salt, seed };
    let item_max = settings.get(&MAX_ITEM_SIZE);
    let cluster = Cluster::new(config, &first, Box::new(nodes), writer, item_max, clock)?;
    cluster.start()?;
    cluster.follow(source)?;
    Ok(cluster)
}
