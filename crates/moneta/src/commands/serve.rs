//! `moneta serve`: one node, from options to a running server.

use std::io::{ErrorKind, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{ArgMatches, Command};
use moneta_admin::{AdminConfig, AdminError, Route, tasks};
use moneta_cluster::Apps;
use moneta_net::{Outward, Tls};
use moneta_options::report::Refused;
use moneta_options::subscribers::Subscribers;
use moneta_process::Process;
use moneta_process::desk::About;
use moneta_process::logging::LogLevel;
use moneta_process::runner::Beginning;
use moneta_process::startup::Startup;
use moneta_remote::ValueMemory;
use moneta_server::config::{ListenAddress, Policy, ServerConfig};
use moneta_server::error::ServerError;
use moneta_server::limits::LiveLimits;
use moneta_server::node::{AppLimits, Node, NodeSettings, Routes, Surroundings};
use moneta_server::server::{RunningServer, Server};
use moneta_store::{Clock, Progress, Store, component};

use crate::admin_access;
use crate::app_limits::{self, AppAllowances};
use crate::banner::{self, Reachable};
use crate::catch_up::{self, CatchingUp};
use crate::drain::Drain;
use crate::filling;
use crate::linked::Link;
use crate::options::app::AppSettings;
use crate::options::flags;
use crate::options::misspelt;
use crate::options::resolve::Resolved;
use crate::options::sections::control::STATE_DIR;
use crate::options::sections::network::BATCH_PORT;
use crate::options::sections::{self, access, cluster, memory, network, operation, proxy, tls, workers};
use crate::options::settings::Settings;
use crate::reload::Reload;
use crate::routing::Routing;
use crate::{drawing, endpoints, option_pages, outward, proxy as proxy_stores, stack, tls_files, users};

/// The subcommand.
pub fn command() -> Command {
    let command = Command::new("serve").about("Run a node").after_help(
        "Flags mean what they mean to memcached where they have its letters. -h shows the common ones, --help all; docs/options.md says more \
         on each.",
    );
    flags::add_to(command, &flags::OF_NODE)
}

/// Runs a node until it is told to stop.
///
/// # Errors
/// If an option is refused, an address is taken, or a part of the node fails.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let settings = Settings::new(Resolved::gather(matches, |name| std::env::var_os(name))?)?;
    if settings.is_proxy() {
        return Err(
            Refused(vec![settings.refuse(&proxy::TOPOLOGY, "given to `moneta proxy`: a node keeps items")]).into()
        );
    }
    start(matches, settings)
}

/// Runs a server until it is told to stop: its parts in their order, each with what it works with.
///
/// # Errors
/// As [`run`].
pub fn start(matches: &ArgMatches, settings: Settings) -> anyhow::Result<()> {
    let startup = flags::startup(matches);
    if let Some(status) = startup.enter()? {
        std::process::exit(status.into());
    }
    let tls = tls::load(&settings)?;
    let (config, sessions) = configure(&settings, tls.as_ref())?;
    let (audit, users) = (users::audit(&settings)?, users::open(&settings, settings.get(&STATE_DIR))?);
    let desk = admin_access::config(&settings, tls.as_ref(), users.as_ref(), audit.as_ref())?;
    // Before the tiers are read, so that health checks are answered meanwhile.
    let mut process = begin(startup, &settings, desk)?;
    note(matches);
    let authenticator = access::authenticator(&settings)?;
    let outward = outward::of(&settings, tls.as_ref())?;
    let clock = Arc::new(Clock::system());
    let drain = Drain::of(&settings);
    process.desk().show(Arc::new(drain.clone()), []);
    let link = Link::open(&settings, &outward)?;
    users::of_control(users.as_ref(), &settings, link.as_ref().map(|link| link.control()), &process)?;
    users::follow(users.as_ref(), &settings, &config.listeners, audit.as_ref(), process.desk())?;
    if let Some(link) = &link {
        link.belongs_to(&mut process);
        let listen = config.listeners.iter().filter(|listener| listener.policy == Policy::Online);
        link.register(&settings, process.desk(), &drain, listen.map(|listener| &listener.address))?;
    }
    let served = Served::make(&settings, &outward, link.as_deref(), &clock, process.recovery())?;
    let store = Arc::clone(&served.store);
    process.at_end("store", STORE_WITHIN, move || close(&store));
    let certificates = tls::certificates(&settings, tls.as_ref());
    let (common, certificates_of_node) = (served.surroundings(&process, &settings), certificates.clone());
    let surroundings = Surroundings { certificates: certificates_of_node, users, audit: audit.clone(), ..common };
    let node = Arc::new(Node::within(surroundings, sessions, clock, authenticator));
    let (mut of_process, of_apps) = served.subscribers(&settings, &node, &process.log().level);
    drain.subscribe(&mut of_process);
    tls::subscribe(&mut of_process, certificates.as_ref());
    certificates.as_ref().map(tls_files::follow).transpose().context("no files are looked at")?;
    outward::keep_fresh(&outward, &mut of_process)?;
    let properties = link.as_ref().map(|link| link.kept_properties()).unwrap_or_default();
    let reload = Arc::new(Reload::new(matches.clone(), &settings, of_process, of_apps, properties, audit));
    let by_signal = Arc::clone(&reload);
    process.answer_signals(move || by_signal.run())?;
    process.desk().add(option_pages::routes(Arc::clone(&reload) as _));
    let server =
        Server::start(&config, Arc::clone(&served.store), node).map_err(|error| explain(error.into(), &settings))?;
    server.show_on(process.desk());
    let drawn = drawing::draw(&settings);
    let of_link = link.clone();
    let explained = move || {
        let properties = of_link.as_ref().map(|link| link.explained()).unwrap_or_default();
        format!("{drawn}\n{properties}background tasks\n{}", tasks::text())
    };
    process.desk().add([Route::text(drawing::PATH, explained)]);
    served.catch_up(&server, link.as_deref())?;
    let has_items = process.recovery().kept_until().is_some();
    filling::start(&settings, &outward, &server, link.as_deref(), has_items)?;
    if let Some(link) = &link {
        let online = server.listen_addresses().iter().zip(&config.listeners);
        let online = online.filter(|(_, listener)| listener.policy == Policy::Online).map(|(address, _)| address);
        link.register(&settings, process.desk(), &drain, online)?;
        // Once all that changes by them has begun as it was told to.
        link.follow_properties(&settings, reload)?;
    }
    let policies = config.listeners.iter().map(|listener| listener.policy);
    let data = server.listen_addresses().iter().cloned().zip(policies).collect();
    process.push(server);
    process.run(|desk| greet(&settings, &Reachable { data, admin: desk.address() }))
}

/// How long a store may take to write what the next start reads.
const STORE_WITHIN: Duration = Duration::from_secs(600);

/// Log, desk, and what a supervisor is told.
fn begin(startup: Startup, settings: &Settings, desk: AdminConfig) -> anyhow::Result<Process> {
    let role = if settings.is_proxy() { "proxy" } else { "node" };
    let beginning = Beginning {
        about: About { program: "moneta", version: env!("CARGO_PKG_VERSION"), role },
        startup,
        log: operation::log(settings),
        admin: endpoints::admin(settings)?,
        desk,
    };
    Process::begin(beginning).map_err(|error| explain(error, settings))
}

/// Logs what was given and changes nothing.
fn note(matches: &ArgMatches) {
    misspelt::warn(&sections::ALL);
    for (flag, meaning) in flags::note_foreign(matches) {
        tracing::warn!(flag, "changes nothing: {meaning}");
    }
}

/// What a process serves.
struct Served {
    store: Arc<dyn Store>,
    /// Those of a proxy.
    apps: Option<Apps>,
    /// Memory of a proxy for large values.
    values: Option<Arc<ValueMemory>>,
    /// What its apps may do in a second; empty: anything.
    app_limits: Vec<Arc<LiveLimits>>,
    catching_up: Option<CatchingUp>,
}

impl Served {
    /// The store that the options ask for; its tiers tell `recovery` how far they are.
    fn make(
        settings: &Settings,
        outward: &Outward,
        link: Option<&Link>,
        clock: &Arc<Clock>,
        recovery: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let values = settings.is_proxy().then(|| proxy_stores::value_memory(settings));
        let apps =
            values.as_ref().map(|values| proxy_stores::apps(settings, outward, link, values, clock)).transpose()?;
        let store = match &apps {
            Some(apps) => proxy_stores::store(apps),
            None => stack::assemble(settings, outward, clock, recovery)?,
        };
        let catching_up = catch_up::round(&store, settings, outward, recovery, clock);
        let store = catching_up.as_ref().map_or(store, CatchingUp::store);
        Ok(Self { store, apps, values, app_limits: app_limits::limits(&settings.apps), catching_up })
    }

    /// What its node works with.
    fn surroundings(&self, process: &Process, settings: &Settings) -> Surroundings {
        let app_limits = self.apps.as_ref().map(|apps| AppAllowances::new(apps, &self.app_limits));
        Surroundings {
            phases: Arc::clone(process.phases()),
            log: Some(process.log().clone()),
            routes: self.apps.clone().map(|apps| Arc::new(Routing::new(apps)) as Arc<dyn Routes>),
            app_limits: app_limits.map(|limits| Box::new(limits) as Box<dyn AppLimits>),
            waits_for: Some(settings.stack.waits_for()),
            ..Surroundings::default()
        }
    }

    /// What changes with options: of the process, and of the apps of `[[app]]` tables.
    fn subscribers(
        &self,
        settings: &Settings,
        node: &Arc<Node>,
        level: &LogLevel,
    ) -> (Subscribers, Vec<(AppSettings, Subscribers)>) {
        let (mut of_process, mut of_apps) = (Subscribers::default(), Vec::new());
        operation::subscribe(&mut of_process, node, level);
        network::subscribe(&mut of_process, node);
        access::subscribe(&mut of_process, node);
        memory::subscribe(&mut of_process, &self.store, node, self.values.clone());
        let apps = settings.apps.iter().zip(self.apps.iter().flat_map(|apps| apps.all()));
        for (place, (app, known)) in apps.enumerate() {
            let mut own = Subscribers::default();
            let subscribers = if settings.has_app_tables { &mut own } else { &mut of_process };
            proxy::subscribe(subscribers, &known.cluster);
            let door = endpoints::own_door(&settings.apps, place);
            app_limits::subscribe(subscribers, &self.app_limits[place], door, node);
            if settings.has_app_tables {
                of_apps.push((app.clone(), own));
            }
        }
        (of_process, of_apps)
    }

    /// Begins to catch up, if it is to.
    fn catch_up(self, server: &RunningServer, link: Option<&Link>) -> anyhow::Result<()> {
        self.catching_up.map_or(Ok(()), |catching_up| catching_up.start(server, link))
    }
}

/// Brings a store to rest: what was accepted is to be there at the next start.
fn close(store: &Arc<dyn Store>) {
    let closing = Instant::now();
    component::close(store);
    tracing::info!(milliseconds = closing.elapsed().as_millis(), "the store is closed");
}

/// The error as one sentence, which already holds its source, and what to do about it where that is known.
fn explain(error: anyhow::Error, settings: &Settings) -> anyhow::Error {
    let advice = match error.downcast_ref() {
        Some(ServerError::Listen { address: ListenAddress::Tcp(address), source })
            if source.kind() == ErrorKind::AddrInUse && settings.get(&BATCH_PORT) == Some(address.port()) =>
        {
            "; is another server running? --batch-port takes another port for bulk loads"
        }
        Some(ServerError::Listen { source, .. }) => match source.kind() {
            ErrorKind::AddrInUse => "; is another server running? --port and --listen take another address",
            ErrorKind::PermissionDenied => {
                "; a port below 1024 needs CAP_NET_BIND_SERVICE, a Unix socket a folder to write to"
            }
            ErrorKind::AddrNotAvailable => "; it is not an address of this machine",
            _ => "",
        },
        _ if error.is::<AdminError>() => "; --admin takes another address, or `off`",
        _ => "",
    };
    anyhow!("{error}{advice}")
}

/// What the server is told, and what sessions obey and `stats settings` shows.
fn configure(options: &Settings, tls: Option<&Arc<Tls>>) -> anyhow::Result<(ServerConfig, NodeSettings)> {
    let listeners = endpoints::listeners(options, tls)?;
    let mut server = ServerConfig { listeners, ..ServerConfig::default() };
    let mut node = NodeSettings::default();
    network::configure(options, &mut server, &mut node);
    memory::configure(options, &mut node);
    workers::configure(options, &mut server, &mut node);
    access::configure(options, &mut server, &mut node);
    tls::configure(options, &mut server);
    operation::configure(options, &mut server, &mut node);
    cluster::configure(options, options.is_proxy(), &mut node);
    proxy::configure(options.is_proxy(), &mut node);
    Ok((server, node))
}

/// Prints the first screen. A node whose standard output is gone serves all the same.
fn greet(settings: &Settings, reachable: &Reachable) {
    if let Err(error) = banner::write(&mut stdout().lock(), settings, reachable) {
        tracing::warn!(%error, "the first screen could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_defaults_are_those_of_the_options() {
        let matches = command().get_matches_from(["serve"]);
        let resolved = Resolved::gather(&matches, |_| None).expect("the defaults are allowed");
        let settings = Settings::new(resolved).expect("the defaults fit together");
        let (ours, ours_of_sessions) = configure(&settings, None).expect("they can be had");
        let theirs = ServerConfig::default();
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        // A process draws its writer, and a node without `--cluster` counts in place of versions.
        let (interface, origin) = ("127.0.0.1".into(), ours_of_sessions.origin);
        let theirs = NodeSettings { interface, origin, keeps_versions: false, ..NodeSettings::default() };
        assert_eq!(format!("{ours_of_sessions:?}"), format!("{theirs:?}"));
    }
}
