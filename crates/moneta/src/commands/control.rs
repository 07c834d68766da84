//! `moneta control`: the control plane of a fleet, from options to a process that answers.

mod backup;
mod ledger;

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgMatches, Command};
use moneta_admin::{Admin, AdminConfig, AdminError, Limits};
use moneta_background::runtime::AsyncTask;
use moneta_console::{Console, ConsoleConfig, Sessions};
use moneta_control::history::History;
use moneta_control::properties::schema::PropertyOptions;
use moneta_control::{Access, Control, ControlConfig, Watched, eureka, pages};
use moneta_ledger::Ledger;
use moneta_net::HostPort;
use moneta_options::declaration::Declaration;
use moneta_options::subscribers::Subscribers;
use moneta_options::values::Values;
use moneta_process::Process;
use moneta_process::commit::with_commit;
use moneta_process::desk::About;
use moneta_process::logging::LogSettings;
use moneta_process::runner::Beginning;
use moneta_process::startup::Startup;

use crate::admin_access;
use crate::control_access::ByUsers;
use crate::handing_users::HandingUsers;
use crate::options::misspelt;
use crate::options::of_control::{
    self, ADVERTISE, COMPARE_EVERY, DATA, EUREKA, EUREKA_ENVIRONMENT, LISTEN, RENEW_EVERY,
};
use crate::options::sections;
use crate::options::sections::operation::{self, LAME_DUCK};
use crate::options::sections::tls;
use crate::plain_reload::{Live, PlainReload};
use crate::{option_pages, outward, properties, this_program, tls_files, users};

/// Readers of feeds at once, and of users.
const READERS: usize = 4_096;
/// Other requests at once.
const REQUESTS: usize = 512;
/// Connections whose request has not arrived.
const ARRIVING: usize = 1_024;
/// Descriptors beside those of connections: the ledger, probes, what the process has anyway.
const DESCRIPTORS: u64 = 512;
/// The folder of the history in that of the ledger.
const HISTORY: &str = "history";
/// How long its tasks may take to end, and the ledger to close.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// The subcommand.
pub fn command() -> Command {
    of_control::add_to(
        Command::new("control")
            .about("Run the control plane: it knows the instances and topologies of a fleet, and tells who follows")
            .after_help("-h shows the common options, --help all. docs/control.md says how it is run, docs/control-api.md what it tells."),
    )
    .subcommand(outward::add_to(backup::command()))
    .subcommand(outward::add_to(backup::restore_command()))
    .args_conflicts_with_subcommands(true)
}

/// Runs the control plane until it is told to stop, or its subcommand.
///
/// # Errors
/// If an option is refused, the address is taken, or the ledger cannot be opened.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    match matches.subcommand() {
        Some(("backup", matches)) => {
            outward::take(matches)?;
            return backup::run(matches);
        }
        Some((_, matches)) => {
            outward::take(matches)?;
            return backup::restore(matches);
        }
        None => {}
    }
    let options = of_control::resolve(matches)?;
    let address = options.get(&LISTEN).context("it has an address")?;
    let tls = tls::load(&options)?;
    let (audit, users) = (users::audit(&options)?, users::open(&options, None)?);
    let sessions = Arc::new(Sessions::new().context("the system has no randomness")?);
    let desk = admin_access::config_with(&options, tls.as_ref(), users.as_ref(), audit.as_ref(), &sessions)?;
    let listeners = 1 + u64::from(options.get(&EUREKA).is_some());
    raise_descriptors(listeners * limits().connections() as u64 + DESCRIPTORS);
    let mut process =
        begin(&options, &address, AdminConfig { limits: limits(), names: named(&desk, &address, &options), ..desk })?;
    misspelt::warn(&of_control::ALL);
    process.phases().set_lame_duck(options.get(&LAME_DUCK));
    users::follow_file(users.as_ref(), &options, audit.as_ref(), process.desk())?;
    let certificates = tls::certificates(&options, tls.as_ref());
    certificates.as_ref().map(tls_files::follow).transpose().context("no files are looked at")?;
    let outward = outward::of(&options, tls.as_ref())?;
    let ledger = ledger::open(&options, &outward)?;
    let member = ledger::membership(&options, &outward, process.desk().address())?;
    let known = PropertyOptions { sections: &sections::ALL, may_set: properties::may_set };
    let config = ControlConfig {
        period: options.get(&RENEW_EVERY),
        compare_every: options.get(&COMPARE_EVERY),
        options: known,
        member,
        ..ControlConfig::default()
    };
    let (control, running) = Control::start(Arc::clone(&ledger), &config).context("the control plane cannot start")?;
    process.at_end("control", CLOSE_WITHIN, move || drop(running));
    let history = past(&options, ledger, &mut process)?;
    let mut subscribers = Subscribers::default();
    let log_in = outward::keep_fresh(&outward, &mut subscribers)?;
    process.at_end("log-in", CLOSE_WITHIN, move || drop(log_in));
    let live = Live { users: users.clone(), certificates, audit: audit.clone() };
    let reload = PlainReload::new(of_control::KIND, matches.clone(), options.clone(), &process, live, subscribers);
    let reload = Arc::new(reload);
    process.desk().add(option_pages::routes(Arc::clone(&reload) as _));
    process.answer_signals(move || reload.run())?;
    let access: Arc<dyn Access> = Arc::new(ByUsers(users.clone()));
    let (console, drawing) = Console::start(ConsoleConfig {
        control: Arc::clone(&control),
        history: history.clone(),
        outward,
        users: users.clone(),
        sessions,
        permits: Arc::new(ByUsers(users.clone())),
        is_protected: options.get(&tls::TLS_CERT).is_some(),
        takes_secrets_from_afar: admin_access::takes_secrets_from_afar(&options),
    })
    .context("the console cannot start")?;
    process.at_end("console", CLOSE_WITHIN, move || stop(drawing));
    process.desk().add(moneta_console::pages::routes(&console));
    process.desk().give_home(moneta_console::pages::home(&console));
    if let Some(address) = options.get(&EUREKA) {
        let environment = options.get(&EUREKA_ENVIRONMENT).unwrap_or_default();
        let desk = admin_access::config_in(&options, tls.as_ref(), users.as_ref(), audit.as_ref(), Some(&environment))?;
        let config = AdminConfig { limits: limits(), names: named(&desk, &address, &options), ..desk };
        let routes = eureka::routes(&control, Arc::clone(&access), &environment);
        let admin = Admin::start(place(&EUREKA, &address)?, config, routes)
            .map_err(|error| anyhow!("{error}; --eureka takes another address"))?;
        process.at_end("eureka", CLOSE_WITHIN, move || drop(admin));
    }
    let handed = users.map(|users| Arc::new(HandingUsers::new(users)) as Arc<dyn moneta_control::Users>);
    process.desk().show(Arc::new(Watched(Arc::clone(&control))), pages::routes(&control, access, history, handed));
    process.run(|desk| greet(&options, desk.address()))
}

/// Writes down what changes, in a folder in that of `--data`; `None`: there is none, as the ledger is elsewhere.
fn past(options: &Values, ledger: Arc<dyn Ledger>, process: &mut Process) -> anyhow::Result<Option<Arc<History>>> {
    let Some(folder) = options.get(&DATA).map(|folder| folder.join(HISTORY)) else { return Ok(None) };
    let (history, task) =
        History::start(ledger, &folder).with_context(|| format!("data: the history in `{}`", folder.display()))?;
    process.at_end("history", CLOSE_WITHIN, move || stop(task));
    Ok(Some(history))
}

fn stop(task: AsyncTask) {
    task.stop();
    task.join_within(CLOSE_WITHIN);
}

fn begin(options: &Values, address: &HostPort, desk: AdminConfig) -> anyhow::Result<Process> {
    let place = place(&LISTEN, address)?;
    let log: LogSettings = operation::log(options);
    let about = About { program: "moneta", version: env!("CARGO_PKG_VERSION"), role: "control" };
    let beginning = Beginning { about, startup: Startup::default(), log, admin: Some(place), desk };
    Process::begin(beginning).map_err(|error| match error.downcast_ref() {
        Some(AdminError::Listen { .. }) => anyhow!("{error}; --listen takes another address"),
        _ => error,
    })
}

/// The address that an option names, looked up.
fn place(option: &dyn Declaration, address: &HostPort) -> anyhow::Result<SocketAddr> {
    let key = option.about().key;
    let found = address.resolve().with_context(|| format!("{key}: `{address}` cannot be looked up"))?;
    found.into_iter().next().with_context(|| format!("{key}: `{address}` has no address"))
}

/// The hosts that requests may be for: with the one by which the listener is named, and the one that others are told.
fn named(desk: &AdminConfig, address: &HostPort, options: &Values) -> Vec<String> {
    desk.names.iter().cloned().chain([address.host.clone()]).chain(options.get(&ADVERTISE)).collect()
}

/// What clients may hold. A balancer may stand before many, so one address may have all.
fn limits() -> Limits {
    Limits { streams: READERS, feed: READERS, other: REQUESTS, arriving: ARRIVING, ..Limits::default() }
}

/// Raises the limit on descriptors as far as it goes. Without them readers are refused, and nothing else happens.
fn raise_descriptors(wanted: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let possible = wanted.min(hard);
    if soft < possible && setrlimit(Resource::RLIMIT_NOFILE, possible, hard).is_err() {
        tracing::warn!(wanted, have = soft, "the limit on descriptors cannot be raised");
    }
    if hard < wanted {
        tracing::warn!(wanted, have = hard, "fewer readers than there are places for can be had: raise LimitNOFILE");
    }
}

/// Prints the first screen. The line that begins with `listening on` is for programs, too.
fn greet(options: &Values, address: Option<std::net::SocketAddr>) {
    let mut out = stdout().lock();
    let mut write = || -> std::io::Result<()> {
        writeln!(out, "moneta control {}", with_commit(env!("CARGO_PKG_VERSION")))?;
        if let Some(address) = address {
            let is_protected = options.get(&tls::TLS_CERT).is_some();
            writeln!(out, "listening on {}://{address}", if is_protected { "https" } else { "http" })?;
        }
        if let Some(address) = address {
            let scheme = if options.get(&tls::TLS_CERT).is_some() { "https" } else { "http" };
            writeln!(out, "console      {scheme}://{address}/ in a browser")?;
        }
        writeln!(out, "ledger       in {}", ledger::place(options))?;
        let (process, moneta) = (std::process::id(), this_program::word());
        writeln!(out, "stop         Ctrl-C or `kill {process}`; `{moneta} control --help` shows all options")?;
        out.flush()
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the first screen could not be written");
    }
}
