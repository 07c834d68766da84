//! `moneta relay`: carries what changes in another region to the cluster here, from options to a process that runs.

mod registered;
pub mod repairs;
mod topic;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgMatches, Command};
use moneta_admin::{AdminConfig, AdminError};
use moneta_cluster::sources::{GuardConfig, Guarded, TopologySource};
use moneta_cluster::{Cluster, Topology};
use moneta_link::{Control, ControlSource, ControlUrl, Epochs, Identity};
use moneta_net::{Outward, Tls};
use moneta_options::report::Origin;
use moneta_options::subscribers::Subscribers;
use moneta_options::values::{Values, Written};
use moneta_process::Process;
use moneta_process::desk::About;
use moneta_process::runner::Beginning;
use moneta_process::startup::Startup;
use moneta_relay::probe::Probe;
use moneta_relay::relay::{Surroundings, Way};
use moneta_relay::{LagMax, LeaseConfig, OnDue, Relay, RelayConfig, Sharing};
use moneta_remote::ValueMemory;
use moneta_store::{Clock, KeyHash, Origin as Writer, Store, component};

use self::registered::{LEAVE_WITHIN, Registered};
use crate::admin_access;
use crate::options::kinds::topology::Source;
use crate::options::misspelt;
use crate::options::of_relay::{
    self, ADMIN, BACK, COMPRESS, COPY, FLUSH, FROM, FROM_CONTROL, LAG_MAX, MODE, PATIENCE, PREFIX, PROBE, RATE, REGION,
    REPAIR, SHARE, SHARES, STATE_DIR, THROUGH, TO, VALUE_MAX, WORKERS,
};
use crate::options::sections::cluster::WRITER_ID;
use crate::options::sections::control::{CONTROL, ENV};
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::sections::operation::{self, LAME_DUCK};
use crate::options::sections::proxy::APP;
use crate::options::sections::tls;
use crate::plain_reload::{Live, PlainReload};
use crate::proxy::{self, AppKeys, ClusterParts};
use crate::{option_pages, outward, this_program, tls_files, users};

/// How long the streams may take to end, and the clusters to write their hints.
const CLOSE_WITHIN: Duration = Duration::from_secs(20);
/// Memory for large values on their way to nodes.
const VALUE_MEMORY: usize = 256 << 20;

/// The subcommand.
pub fn command() -> Command {
    of_relay::add_to(
        Command::new("relay")
            .about("Carry what changes in another region to the cluster of this one")
            .after_help("It runs in the region that receives. -h shows the common options, --help all; docs/relay.md says how it is run."),
    )
}

/// Runs the relay until it is told to stop.
///
/// # Errors
/// If an option is refused, a topology cannot be read, or the progress cannot be kept.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let options = of_relay::resolve(matches)?;
    let tls = tls::load(&options)?;
    let (audit, users) = (users::audit(&options)?, users::open(&options, Some(Plane::folder(&options)?))?);
    let desk = admin_access::config(&options, tls.as_ref(), users.as_ref(), audit.as_ref())?;
    let mut process = begin(&options, desk)?;
    misspelt::warn(&of_relay::ALL);
    process.phases().set_lame_duck(options.get(&LAME_DUCK));
    let certificates = tls::certificates(&options, tls.as_ref());
    certificates.as_ref().map(tls_files::follow).transpose().context("no files are looked at")?;
    let outward = outward::of(&options, tls.as_ref())?;
    let control = Plane::open(&options, &outward)?;
    users::of_control(users.as_ref(), &options, control.as_ref().map(|plane| &plane.control), &process)?;
    users::follow_file(users.as_ref(), &options, audit.as_ref(), process.desk())?;
    let config = config(&options)?;
    let mut subscribers = Subscribers::default();
    outward::keep_fresh(&outward, &mut subscribers)?;
    let (rate, lag_max) = (config.rate.clone(), config.lag_max.clone());
    subscribers.set(&RATE, move |bytes| rate.set(bytes));
    subscribers.set(&LAG_MAX, move |most| lag_max.set(most));
    let live = Live { users, certificates, audit };
    let reload = PlainReload::new(of_relay::KIND, matches.clone(), options.clone(), &process, live, subscribers);
    let reload = Arc::new(reload);
    process.desk().add(option_pages::routes(Arc::clone(&reload) as _));
    process.answer_signals(move || reload.run())?;
    let clock = Arc::new(Clock::system());
    let regions = Regions::open(&options, &outward, &clock)?;
    if let Some(here) = regions.here.clone() {
        process.at_end("cluster", CLOSE_WITHIN, move || component::close(&here));
    }
    let store = regions.here.clone().map(|here| Arc::new(here) as Arc<dyn Store>);
    let probe = regions.there.as_ref().zip(store.as_ref()).map(|(there, store)| {
        let there: Arc<dyn Store> = Arc::new(there.clone());
        Probe::start(there, Arc::clone(store), &regions.name)
    });
    let probe = probe.transpose().context("no thread for the probe")?;
    let repairs = (options.get(&REPAIR) && store.is_some())
        .then(|| repairs::Repairs::start(&options, &outward, &clock))
        .transpose()?;
    let of_due = repairs.clone();
    let on_due: OnDue = Arc::new(move |due| of_due.iter().for_each(|repairs| repairs.due(&due)));
    let leased = control.as_ref().filter(|_| options.get(&SHARES) > 1).map(|Plane { control, identity }| LeaseConfig {
        control: Arc::clone(control),
        worker: identity.id().to_owned(),
        app: options.get(&APP).unwrap_or_default(),
        region: options.get(&REGION),
        of: options.get(&SHARES),
    });
    let sharing = leased.map_or_else(|| Sharing::Own(options.get(&SHARE)), Sharing::Leased);
    let of_nodes = regions.here.clone();
    let owes = Box::new(move || of_nodes.as_ref().is_some_and(Cluster::owes));
    let way = way(&options, tls.as_ref(), store)?;
    let surroundings = Surroundings { sharing, owes, way, outward, clock, on_due, probe: probe.clone() };
    let relay = Relay::start(config, regions.topology, regions.source, surroundings)?;
    let relay = Arc::new(relay);
    let closing = (Arc::clone(&relay), probe, regions.there, repairs.clone());
    process.at_end("relay", CLOSE_WITHIN, move || {
        let (relay, probe, there, repairs) = closing;
        repairs.iter().for_each(|repairs| repairs.close());
        probe.iter().for_each(|probe| probe.close());
        there.iter().for_each(|there| component::close(there));
        relay.close();
    });
    let of_page = repairs.clone();
    let more = move || of_page.as_ref().map(|repairs| repairs.shown()).unwrap_or_default();
    let pages = [moneta_relay::route(&relay, more), moneta_relay::numbers(&relay)];
    process.desk().show(Arc::<Relay>::clone(&relay) as _, pages);
    if let Some(repairs) = repairs {
        process.desk().show(repairs as _, []);
    }
    if let Some(here) = regions.here {
        process.desk().show(Arc::new(OfCluster(here)) as _, []);
    }
    if let Some(Plane { control, identity }) = control {
        let registered = Registered::start(&options, control, &identity, process.desk(), &relay)?;
        process.desk().show(Arc::clone(&registered) as _, []);
        process.at_end("registration", LEAVE_WITHIN, move || {
            registered.leave();
            drop(identity);
        });
    }
    process.run(|desk| greet(&options, desk.address()))
}

/// Which way changes take.
fn way(options: &Values, tls: Option<&Arc<Tls>>, store: Option<Arc<dyn Store>>) -> anyhow::Result<Way> {
    Ok(match (options.get(&THROUGH), store) {
        (Some(place), Some(store)) => Way::OutOf(topic::open(place, options, tls)?, store),
        (Some(place), None) => Way::Into(topic::open(place, options, tls)?),
        (None, Some(store)) => Way::Direct(store),
        (None, None) => return Err(anyhow!("to: there is no target")),
    })
}

/// The control plane here, and who the relay is there.
struct Plane {
    control: Arc<Control>,
    identity: Identity,
}

impl Plane {
    /// `None`: the options name none.
    fn open(options: &Values, outward: &Outward) -> anyhow::Result<Option<Self>> {
        let urls = options.get(&CONTROL);
        if urls.is_empty() {
            return Ok(None);
        }
        let identity = Identity::kept_in(&Self::folder(options)?).context("state_dir")?;
        let control = Control::new(&urls, outward, options.get(&ENV).unwrap_or_default());
        Ok(Some(Self { control: Arc::new(control), identity }))
    }

    /// Where what is the relay's own is kept: relays of other apps and regions may have the same folder.
    fn folder(options: &Values) -> anyhow::Result<PathBuf> {
        let folder = options.get(&STATE_DIR).context("it has a folder")?;
        let name = format!("{}.from-{}.identity", options.get(&APP).unwrap_or_default(), options.get(&REGION));
        Ok(folder.join(name))
    }
}

/// Both regions as they are reached from here.
struct Regions {
    /// The cluster here; `None`: changes go into a topic.
    here: Option<Cluster>,
    /// That of the other region, where keys are written by the probe.
    there: Option<Cluster>,
    /// A name for the probe's keys.
    name: String,
    topology: Topology,
    source: Guarded<Box<dyn TopologySource>>,
}

impl Regions {
    fn open(options: &Values, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Self> {
        let (from, to) = (options.get(&FROM).context("it has a source")?, options.get(&TO));
        let folder = options.get(&STATE_DIR).context("it has a folder")?;
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("state_dir: `{}` cannot be made", folder.display()))?;
        let (app, region) = (options.get(&APP).unwrap_or_default(), options.get(&REGION));
        let (there, here) = (source_there(options, outward), source_here(options, outward));
        let seed = KeyHash::random().context("the system has no randomness")?;
        let memory = Arc::new(ValueMemory::new(VALUE_MEMORY));
        let parts = |name: &str, origin, file: &str, has_boards| ClusterParts {
            name: name.to_owned(),
            keys: AppKeys::default(),
            kept: Some(folder.join(file)),
            allow_flush: true,
            has_boards,
            origin,
            seed,
            outward: outward.clone(),
            memory: Arc::clone(&memory),
            clock: Arc::clone(clock),
        };
        let own = options.get(&WRITER_ID).unwrap_or_default();
        let here = to.map(|to| {
            let parts = parts(&app, Writer::new(region, own), &format!("{app}.to.topology.toml"), true);
            proxy::cluster_of(&with_values(options), here(&to)?, parts).context("to")
        });
        let kept = folder.join(format!("{app}.from-{region}.topology.toml"));
        let mut followed = Guarded::new(there(&from)?, GuardConfig { kept: Some(kept), ..GuardConfig::default() });
        let topology = followed.first(proxy::FIRST).context("from: there is no topology")?;
        let there = options.get(&PROBE).then(|| {
            let parts = parts(
                &format!("{app}.probe"),
                Writer::new(region, own),
                &format!("{app}.probe-{region}.topology.toml"),
                false,
            );
            proxy::cluster_of(&without_hints(options), there(&from)?, parts).context("from")
        });
        let name = format!("{app}.{region}.{:08x}", getrandom::u32().context("the system has no randomness")?);
        Ok(Self { here: here.transpose()?, there: there.transpose()?, name, topology, source: followed })
    }
}

/// What makes the topologies of one region followed.
type Sourced<'o> = Box<dyn Fn(&Source) -> anyhow::Result<Box<dyn TopologySource>> + 'o>;

/// The topologies of the other region.
fn source_there<'o>(options: &'o Values, outward: &'o Outward) -> Sourced<'o> {
    let own = options.get(&FROM_CONTROL);
    sourced(if own.is_empty() { options.get(&CONTROL) } else { own }, options, outward)
}

/// Those of this one.
fn source_here<'o>(options: &'o Values, outward: &'o Outward) -> Sourced<'o> {
    sourced(options.get(&CONTROL), options, outward)
}

fn sourced<'o>(urls: Vec<ControlUrl>, options: &'o Values, outward: &'o Outward) -> Sourced<'o> {
    Box::new(move |source| match source {
        Source::Control(app) => {
            let control = Control::new(&urls, outward, options.get(&ENV).unwrap_or_default());
            Ok(Box::new(ControlSource::new(Arc::new(control), app, Epochs::default())?))
        }
        other => proxy::source(other, None),
    })
}

/// What the cluster here is told: values of any size that the relay takes, since the nodes say what is too large for them.
fn with_values(options: &Values) -> Values {
    use moneta_options::declaration::Declaration;
    let mut own = options.clone();
    let text = options.get(&VALUE_MAX).to_string();
    own.replace(MAX_ITEM_SIZE.about().key, Written { text, origin: Origin::Default });
    own
}

/// What the probe's cluster is told: what it could not write is no loss.
fn without_hints(options: &Values) -> Values {
    use moneta_options::declaration::Declaration;
    let mut own = options.clone();
    own.take_over(crate::options::sections::proxy::HINT_DIR.about().key, &Values::default());
    own
}

/// The cluster here as a part of the process: its metrics, and whether its nodes answer.
struct OfCluster(Cluster);

impl moneta_process::desk::Observed for OfCluster {
    fn samples(&self) -> Vec<moneta_store::metric::Sample> {
        component::report(&self.0, &moneta_store::Cx::outside()).metrics
    }

    fn health(&self) -> moneta_store::Health {
        component::health(&self.0)
    }
}

fn config(options: &Values) -> anyhow::Result<RelayConfig> {
    Ok(RelayConfig {
        prefix: options.get(&PREFIX).unwrap_or_default().into_bytes(),
        mode: options.get(&MODE),
        flush: options.get(&FLUSH),
        compress: options.get(&COMPRESS),
        rate: moneta_feed::Rate::of(options.get(&RATE)),
        workers: options.get(&WORKERS),
        value_max: usize::try_from(options.get(&VALUE_MAX))?,
        copy: options.get(&COPY),
        patience: options.get(&PATIENCE),
        back: options.get(&BACK),
        lag_max: LagMax::of(options.get(&LAG_MAX)),
        ..RelayConfig::new(
            options.get(&APP).unwrap_or_default(),
            options.get(&REGION),
            options.get(&STATE_DIR).context("it has a folder")?,
        )
    })
}

fn begin(options: &Values, desk: AdminConfig) -> anyhow::Result<Process> {
    let admin = match options.get(&ADMIN) {
        None => None,
        Some(address) => {
            let found = address.resolve().with_context(|| format!("admin: `{address}` cannot be looked up"))?;
            Some(found.into_iter().next().with_context(|| format!("admin: `{address}` has no address"))?)
        }
    };
    let about = About { program: "moneta", version: env!("CARGO_PKG_VERSION"), role: "relay" };
    let beginning = Beginning { about, startup: Startup::default(), log: operation::log(options), admin, desk };
    Process::begin(beginning).map_err(|error| match error.downcast_ref() {
        Some(AdminError::Listen { .. }) => anyhow!("{error}; --admin takes another address, or `off`"),
        _ => error,
    })
}

/// Prints the first screen.
fn greet(options: &Values, address: Option<std::net::SocketAddr>) {
    let mut out = stdout().lock();
    let mut write = || -> std::io::Result<()> {
        writeln!(out, "moneta relay {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "carries      what is written in region {}", options.get(&REGION))?;
        if let Some(address) = address {
            let is_protected = options.get(&tls::TLS_CERT).is_some();
            let scheme = if is_protected { "https" } else { "http" };
            writeln!(out, "admin        {scheme}://{address}{}", moneta_relay::PATH)?;
        }
        let (process, moneta) = (std::process::id(), this_program::word());
        writeln!(out, "stop         Ctrl-C or `kill {process}`; `{moneta} relay --help` shows all options")?;
        out.flush()
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the first screen could not be written");
    }
}
