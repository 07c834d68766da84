//! `moneta serve`: one node, from options to a running server.

use std::io::{ErrorKind, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::{ArgMatches, Command};
use moneta_admin::tasks;
use moneta_cluster::Apps;
use moneta_net::{Outward, Tls};
use moneta_options::report::Refused;
use moneta_options::stray;
use moneta_options::subscribers::Subscribers;
use moneta_process::ending;
use moneta_process::logging::{self, LogHandle};
use moneta_process::phases::Phases;
use moneta_process::signals::Signals;
use moneta_process::startup::{self, PidFile};
use moneta_process::supervisor::Supervisor;
use moneta_server::config::{ListenAddress, ServerConfig};
use moneta_server::error::ServerError;
use moneta_server::node::{AppLimits, Node, NodeSettings, Routes, Surroundings};
use moneta_server::server::{RunningServer, Server};
use moneta_server::{Admin, Certificates};
use moneta_store::{Clock, Store, component};
use nix::sys::stat::{Mode, umask};

use crate::app_limits::AppAllowances;
use crate::banner::{self, Reachable};
use crate::catch_up::{self, CatchingUp};
use crate::options::resolve::Resolved;
use crate::options::sections::network::BATCH_PORT;
use crate::options::sections::{self, access, cluster, memory, network, operation, proxy, tls, workers};
use crate::options::settings::Settings;
use crate::options::{flags, foreign};
use crate::reload::Reload;
use crate::routing::Routing;
use crate::stack;
use crate::tls_files;
use crate::{drawing, endpoints, outward, proxy as proxy_stores};

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

/// Runs a server until it is told to stop.
///
/// # Errors
/// As [`run`].
pub fn start(matches: &ArgMatches, settings: Settings) -> anyhow::Result<()> {
    // The user first: everything that is opened or started from here on is to be that user's.
    if let Some(user) = flags::foreign_value(matches, foreign::USER) {
        startup::become_user(user)?;
    }
    if flags::has_foreign(matches, foreign::CORE_DUMPS) {
        startup::allow_core_dumps()?;
    }
    if flags::has_foreign(matches, foreign::DAEMON)
        && let Some(status) = startup::detach()?
    {
        std::process::exit(status.into());
    }
    let tls = tls::load(&settings)?;
    let (config, node) = configure(&settings, tls.as_ref())?;
    let log = logging::start(operation::log(&settings))?;
    let authenticator = access::authenticator(&settings)?;
    // Whatever the node writes holds keys and values, and is its user's alone. Unix sockets have an option for theirs.
    umask(Mode::from_bits_truncate(0o077));
    for (variable, option) in stray::misspelt(&sections::ALL, std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!(variable, "not an option and ignored; did you mean {option}?");
    }
    for (flag, meaning) in flags::note_foreign(matches) {
        tracing::warn!(flag, "changes nothing: {meaning}");
    }
    let outward = outward::of(&settings, tls.as_ref())?;
    let clock = Arc::new(Clock::system());
    // First, so that health checks are answered while the tiers are read.
    let recovery = Arc::default();
    let phases = Arc::<Phases>::default();
    let supervisor = Supervisor::start(Arc::clone(&recovery), Arc::clone(&phases))?;
    let names = endpoints::admin_hosts(&settings);
    let start_admin =
        |address| Admin::start(address, &names, Arc::clone(&recovery)).map_err(|error| explain(error, &settings));
    let admin = endpoints::admin(&settings)?.map(start_admin).transpose()?;
    let apps = if settings.is_proxy() { Some(proxy_stores::apps(&settings, &outward, &clock)?) } else { None };
    let store = match &apps {
        Some(apps) => proxy_stores::store(apps),
        None => stack::assemble(&settings, &outward, &clock, &recovery)?,
    };
    let catching_up = catch_up::round(&store, &settings, &outward, &recovery, &clock);
    let store = catching_up.as_ref().map_or(store, CatchingUp::store);
    let app_limits = apps.as_ref().and_then(|apps| AppAllowances::new(apps, &settings.apps));
    let certificates = tls::certificates(&settings, tls.as_ref());
    let surroundings = Surroundings {
        certificates: certificates.clone(),
        phases,
        log: Some(log.handle.clone()),
        routes: apps.clone().map(|apps| Arc::new(Routing::new(apps)) as Arc<dyn Routes>),
        app_limits: app_limits.map(|limits| Box::new(limits) as Box<dyn AppLimits>),
        connections: None,
        users: None,
    };
    let node = Arc::new(Node::within(surroundings, node, clock, authenticator));
    let log = log.handle.clone();
    let start =
        Start { matches, settings, outward, config, certificates, log, node, apps, admin, supervisor, catching_up };
    start.serve(store)
}

/// Everything that serving needs beside a store.
struct Start<'a> {
    matches: &'a ArgMatches,
    settings: Settings,
    outward: Outward,
    config: ServerConfig,
    certificates: Option<Arc<Certificates>>,
    log: LogHandle,
    node: Arc<Node>,
    /// Those of a proxy.
    apps: Option<Apps>,
    admin: Option<Admin>,
    supervisor: Option<Supervisor>,
    catching_up: Option<CatchingUp>,
}

impl Start<'_> {
    /// Serves `store` until told to stop, and then brings it to rest.
    fn serve(self, store: Arc<dyn Store>) -> anyhow::Result<()> {
        let Self { matches, settings, outward, config, certificates, log, node, apps, admin, supervisor, catching_up } =
            self;
        let pid_file = flags::foreign_value(matches, foreign::PIDFILE).map(PathBuf::from);
        let detached = flags::has_foreign(matches, foreign::DAEMON);
        let mut subscribers = Subscribers::default();
        operation::subscribe(&mut subscribers, &node, &log.level);
        network::subscribe(&mut subscribers, &node);
        access::subscribe(&mut subscribers, &node, settings.is_proxy());
        memory::subscribe(&mut subscribers, &store);
        tls::subscribe(&mut subscribers, certificates.as_ref());
        // Until the end, with all tasks.
        let _follows = certificates.as_ref().map(tls_files::follow).transpose().context("no files are looked at")?;
        let _fresh = outward::keep_fresh(&outward, &mut subscribers)?;
        let mut of_apps = Vec::new();
        for (app, known) in settings.apps.iter().zip(apps.iter().flat_map(|apps| apps.all())) {
            let mut own = Subscribers::default();
            if settings.has_app_tables {
                proxy::subscribe(&mut own, &known.cluster);
                of_apps.push((app.clone(), own));
            } else {
                proxy::subscribe(&mut subscribers, &known.cluster);
            }
        }
        let reload = Reload::new(matches.clone(), &settings, subscribers, of_apps);
        // Before clients or supervisors can see the process and send it a signal.
        let signals =
            Signals::start(Arc::clone(&node.phases), move || reload.run()).context("no signals are handled")?;
        let server = Server::start(&config, Arc::clone(&store), node).map_err(|error| explain(error, &settings))?;
        if let Some(admin) = &admin {
            admin.show(&server);
            let drawn = drawing::draw(&settings);
            admin.show_text(drawing::PATH, move || format!("{drawn}\nbackground tasks\n{}", tasks::text()));
        }
        if let Some(catching_up) = catching_up {
            catching_up.start(&server)?;
        }
        let _pid_file = pid_file.and_then(|path| PidFile::write(&path));
        greet(&settings, &config, &server, admin.as_ref());
        if let Some(supervisor) = &supervisor {
            supervisor.serving(server.pulse());
        }
        if detached {
            startup::let_go()?;
        }
        let ended = server.join().map_err(|error| explain(error, &settings));
        if let Some(admin) = &admin {
            admin.close_store();
        }
        if let Some(supervisor) = &supervisor {
            supervisor.leaving();
        }
        // Whatever ended it: what was accepted is to be there at the next start.
        let closing = Instant::now();
        component::close(&store);
        tracing::info!(milliseconds = closing.elapsed().as_millis(), "the store is closed");
        // Whatever these have started ends with them; then what is left is asked to.
        drop((signals, admin, supervisor, apps, store));
        ending::stop_tasks();
        ended
    }
}

/// The error as one sentence, which already holds its source, and what to do about it where that is known.
fn explain(error: ServerError, settings: &Settings) -> anyhow::Error {
    let advice = match &error {
        ServerError::Admin { .. } => "; --admin takes another address, or `off`",
        ServerError::Listen { address: ListenAddress::Tcp(address), source }
            if source.kind() == ErrorKind::AddrInUse && settings.get(&BATCH_PORT) == Some(address.port()) =>
        {
            "; is another server running? --batch-port takes another port for bulk loads"
        }
        ServerError::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => "; is another server running? --port and --listen take another address",
            ErrorKind::PermissionDenied => {
                "; a port below 1024 needs CAP_NET_BIND_SERVICE, a Unix socket a folder to write to"
            }
            ErrorKind::AddrNotAvailable => "; it is not an address of this machine",
            _ => "",
        },
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
fn greet(settings: &Settings, config: &ServerConfig, server: &RunningServer, admin: Option<&Admin>) {
    let policies = config.listeners.iter().map(|listener| listener.policy);
    let data = server.listen_addresses().iter().cloned().zip(policies).collect();
    let reachable = Reachable { data, admin: admin.map(Admin::address) };
    if let Err(error) = banner::write(&mut stdout().lock(), settings, &reachable) {
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
