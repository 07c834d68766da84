//! Who may connect, and which commands are obeyed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use moneta_audit::{Audit, Event};
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Number, Seconds, Switch};
use moneta_options::kinds::paths::File;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::subscribers::{Change, Effect, Subscribers};
use moneta_options::values::Values;
use moneta_server::auth::{AuthMode, Authenticator};
use moneta_server::config::{Commands, ServerConfig};
use moneta_server::node::{Node, NodeSettings};
use moneta_users::Users;

use crate::auth_file;
use crate::options::kinds::users::{From, UsersSource};
use crate::options::kinds::words::CommandList;

section! {
    "Access";

    /// File of `user:password` lines; clients have to log in, by the text protocol's `set` or, with --enable-sasl, also by SASL
    /// PLAIN.
    AUTH_FILE: File = Opt::new("auth_file", File, || None)
        .short('Y')
        .example("\"\"")
        .live()
        .when("When others can reach the port. Turning log-ins on or off takes a restart.");

    /// SASL PLAIN on the binary protocol, for the users of --auth-file, who may log in by text too (memcached refuses text then).
    ENABLE_SASL: Switch = Opt::new("enable_sasl", Switch, || false)
        .short('S')
        .when("When clients authenticate with SASL.");

    /// File of users with their secrets, certificates, rights and keys, which `moneta user` edits; clients of all listeners but
    /// those with `users = "off"` have to be one of them. `control`: the users that the control plane hands on, which are
    /// kept in state_dir.
    USERS: UsersSource = Opt::new("users", UsersSource, || None)
        .example("\"\"")
        .live()
        .when("When not everybody who can connect may do everything (security.md).");

    /// Let users send secrets over TCP without TLS from other machines.
    LOGIN_IN_CLEAR: Switch = Opt::new("login_in_clear", Switch, || false)
        .when("On a network that nobody else can read.");

    /// File to which changes of options and users, failed log-ins, `flush_all` and commands of operators are appended, as lines
    /// of JSON.
    AUDIT_LOG: File = Opt::new("audit_log", File, || None)
        .example("\"\"")
        .when("When it has to be known later who did what (security.md).");

    /// How long a client that has to log in may take for it before it is closed; 0 sets no limit.
    LOGIN_TIMEOUT: Seconds = Opt::new("login_timeout", Seconds { min: 0, max: 3_600 }, || Duration::from_secs(10))
        .live()
        .when("Longer where clients connect before they log in.");

    /// Log-ins that a connection may fail: with the last of them nothing more is read, and it is closed two seconds later.
    LOGIN_ATTEMPTS: Number<u32> = Opt::new("login_attempts", Number { min: 1, max: 1_000_000 }, || 5)
        .live()
        .when("Higher where people type passwords.");

    /// Log-ins that one address may fail in a minute; further ones are refused unchecked; 0 sets no limit.
    LOGIN_FAILURES: Number<u32> = Opt::new("login_failures", Number { min: 0, max: 1_000_000 }, || 60)
        .live()
        .when("Higher where many clients share an address.");

    /// Obey the `shutdown` command.
    ENABLE_SHUTDOWN: Switch = Opt::new("enable_shutdown", Switch, || false)
        .short('A')
        .live()
        .when("In test setups. Any client may then stop the node.");

    /// Refuse the `flush_all` command.
    DISABLE_FLUSH_ALL: Switch = Opt::new("disable_flush_all", Switch, || false)
        .short('F')
        .live()
        .when("When no client should be able to empty the cache.");

    /// Refuse to list keys (`lru_crawler metadump`, `mgdump`, and the feed, `changes`), but to users who may replicate all keys.
    DISABLE_DUMPING: Switch = Opt::new("disable_dumping", Switch, || false).short('X').live().when("When keys are secrets.");

    /// Refuse the `watch` command.
    DISABLE_WATCH: Switch = Opt::new("disable_watch", Switch, || false).short('W').live()
        .when("When keys are secrets.");

    /// Commands of operators that clients may give; others are refused. `dump`, which has to be named, lists keys in spite of
    /// `disable_dumping`.
    ADMIN_COMMANDS: CommandList = Opt::new("admin_commands", CommandList, || Commands::ALL)
        .when("none, or fewer, where clients are not operators; a [[listener]] with its own is then their door.");
}

/// Who may log in, and how.
///
/// # Errors
/// As [`auth_file::read`].
pub fn authenticator(options: &Values) -> anyhow::Result<Authenticator> {
    let Some(path) = options.get(&AUTH_FILE) else { return Ok(Authenticator::off()) };
    let mode = if options.get(&ENABLE_SASL) { AuthMode::Sasl } else { AuthMode::Text };
    Ok(Authenticator::new(mode, auth_file::read(&path)?))
}

/// Tells the server which commands it obeys, and sessions what a log-in may take.
pub fn configure(options: &Values, server: &mut ServerConfig, node: &mut NodeSettings) {
    server.commands = options.get(&ADMIN_COMMANDS);
    node.login_timeout = u32::try_from(options.get(&LOGIN_TIMEOUT).as_secs()).unwrap_or(u32::MAX);
    node.login_attempts = options.get(&LOGIN_ATTEMPTS);
    node.login_failures = options.get(&LOGIN_FAILURES);
    node.login_in_clear = options.get(&LOGIN_IN_CLEAR);
    node.shutdown_enabled = options.get(&ENABLE_SHUTDOWN);
    node.flush_enabled = !options.get(&DISABLE_FLUSH_ALL);
    node.dump_enabled = !options.get(&DISABLE_DUMPING);
    node.watch_enabled = !options.get(&DISABLE_WATCH);
}

/// What cannot be had together.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    let without_users = options.get(&ENABLE_SASL) && options.get(&AUTH_FILE).is_none();
    let range = "given together with auth_file, the file of users who may log in";
    let without_users = without_users.then(|| options.refuse(&ENABLE_SASL, range));
    let both = options.get(&USERS).is_some() && options.get(&AUTH_FILE).is_some();
    let both = both.then(|| options.refuse(&AUTH_FILE, "left out where users are given: these take its place"));
    let clear = options.get(&LOGIN_IN_CLEAR) && options.get(&USERS).is_none();
    let clear = clear.then(|| options.refuse(&LOGIN_IN_CLEAR, "given together with users"));
    [without_users, both, clear].into_iter().flatten().collect()
}

/// Lets a reload read the users again, and change what clients may do.
pub fn subscribe(subscribers: &mut Subscribers, node: &Arc<Node>) {
    let live = || Arc::clone(&node.live);
    let of = live();
    subscribers.set(&LOGIN_TIMEOUT, move |timeout| of.set_login_timeout(timeout));
    let of = live();
    subscribers.set(&LOGIN_ATTEMPTS, move |most| of.set_login_attempts(most));
    let of = live();
    subscribers.set(&ENABLE_SHUTDOWN, move |is_on| of.set_shutdown(is_on));
    let of = live();
    subscribers.set(&DISABLE_DUMPING, move |is_off| of.set_dump(!is_off));
    let of = live();
    subscribers.set(&DISABLE_WATCH, move |is_off| of.set_watch(!is_off));
    let of = live();
    subscribers.set(&DISABLE_FLUSH_ALL, move |is_off| of.set_flush(!is_off));
    let of = Arc::clone(node);
    subscribers.set(&LOGIN_FAILURES, move |most| of.set_login_failures(most));
    if let Some(users) = &node.users {
        let (users, audit) = (Arc::clone(users), node.audit.clone());
        subscribers.on(&USERS, move |change| read_again(&users, audit.as_ref(), &change));
    } else {
        subscribers.on(&USERS, |change| Ok(if change.to.is_some() { Effect::AfterRestart } else { Effect::None }));
    }
    let node = Arc::clone(node);
    subscribers.on(&AUTH_FILE, move |change| match (change.from, change.to) {
        (Some(_), Some(path)) => {
            let (users, node) = (auth_file::read(&path)?, Arc::clone(&node));
            Ok(Effect::now(move || {
                node.authenticator.reload(users);
                tracing::info!("users read again");
            }))
        }
        // Logins cannot be turned on or off for connections that are open.
        _ => Ok(Effect::AfterRestart),
    });
}

/// Reads the file of users again, or another one.
///
/// # Errors
/// If it cannot be read or is refused.
pub fn read_again(
    users: &Arc<Users>,
    audit: Option<&Arc<Audit>>,
    change: &Change<Option<From>>,
) -> anyhow::Result<Effect> {
    let path = match (&change.from, &change.to) {
        (Some(From::File(_)), Some(From::File(path))) => path.clone(),
        (Some(From::Control), Some(From::Control)) => users.path(),
        // As with log-ins: connections that are open cannot be asked for one.
        _ => return Ok(Effect::AfterRestart),
    };
    let prepared = Users::prepare(&path).inspect_err(|_| users.note_failure()).context("users")?;
    let (users, audit) = (Arc::clone(users), audit.cloned());
    Ok(Effect::now(move || {
        users.apply(prepared);
        note_users(&users, audit.as_deref());
    }))
}

/// Notes that the users were replaced.
pub fn note_users(users: &Users, audit: Option<&Audit>) {
    if let Some(audit) = audit {
        audit.note(Event::UsersChanged { users: users.counts().users });
    }
}
