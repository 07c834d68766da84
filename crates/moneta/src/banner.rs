//! The screen a node begins with: what it listens on, what it has, and how to try it.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use moneta_process::commit::with_commit;
use moneta_server::config::{ListenAddress, Policy};

use crate::drawing;
use crate::options::contradictions;
use crate::options::kinds::users::From;
use crate::options::sections::access::{AUTH_FILE, ENABLE_SASL, USERS};
use crate::options::sections::network::{self, MAX_CONNECTIONS};
use crate::options::sections::tls::TLS_CERT;
use crate::options::sections::workers::THREADS;
use crate::options::settings::Settings;
use crate::this_program;

/// Where a running node can be reached, with the ports the kernel picked.
#[derive(Debug)]
pub struct Reachable {
    /// Listeners for clients.
    pub data: Vec<(ListenAddress, Policy)>,
    /// The admin listener.
    pub admin: Option<SocketAddr>,
}

/// Writes the screen. The lines that begin with `listening on` are for programs, too.
///
/// # Errors
/// If `out` does not take it.
pub fn write(out: &mut impl Write, settings: &Settings, reachable: &Reachable) -> io::Result<()> {
    writeln!(out, "moneta {}", with_commit(env!("CARGO_PKG_VERSION")))?;
    for (address, policy) in &reachable.data {
        let policy = if *policy == Policy::Batch { " (batch)" } else { "" };
        writeln!(out, "listening on {}{policy}", plain(address))?;
    }
    match reachable.admin {
        Some(address) => {
            let of_proxy = if settings.is_proxy() { ", /proxy" } else { "" };
            let scheme = if contradictions::is_protected(settings) { "https" } else { "http" };
            writeln!(out, "admin on     {scheme}://{address} (/metrics, /healthz, /readyz, /stats{of_proxy})")?;
        }
        None => writeln!(out, "admin        off")?,
    }
    for tier in drawing::upper(settings).into_iter().chain(drawing::lower(&settings.stack.lower)) {
        let (engine, rest) = tier.split_once(' ').unwrap_or((&tier, ""));
        writeln!(out, "{engine:13}{}", rest.trim_start())?;
    }
    for app in &settings.apps {
        writeln!(out, "{:13}{}", app.name, drawing::cluster(app))?;
    }
    let (threads, connections) = (settings.get(&THREADS), settings.get(&MAX_CONNECTIONS));
    writeln!(out, "threads      {threads}, for up to {connections} connections")?;
    if let Some(path) = settings.get(&AUTH_FILE) {
        let way = match settings.get(&ENABLE_SASL) {
            true => "SASL PLAIN, or `set` with `user password` as its value",
            false => "`set` with `user password` as its value",
        };
        writeln!(out, "log in       by {way}, users from {}", path.display())?;
    }
    if let Some(from) = settings.get(&USERS) {
        let from = match from {
            From::File(path) => path.display().to_string(),
            From::Control => "the control plane".into(),
        };
        writeln!(
            out,
            "log in       by `set` with `user secret` as its value, SASL PLAIN or certificate; users from {from}"
        )?;
    }
    if let Some(line) = try_it(settings, reachable) {
        writeln!(out, "try it       {line}")?;
    }
    let (process, moneta) = (std::process::id(), this_program::word());
    writeln!(out, "stop         Ctrl-C or `kill {process}`; `{moneta} config` prints all options")?;
    out.flush()
}

/// The address without the transport, but for `unix:`.
fn plain(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix { path, .. } => format!("unix:{}", path.display()),
    }
}

/// A shell line that stores and reads an item: bash alone is enough over TCP, and openssl over TLS. None where clients have to log in
/// first, as the line would show a password.
fn try_it(settings: &Settings, reachable: &Reachable) -> Option<String> {
    if settings.get(&AUTH_FILE).is_some() || settings.get(&USERS).is_some() {
        return None;
    }
    const REQUESTS: &str = r"printf 'set greeting 0 60 5\r\nhello\r\nget greeting\r\nquit\r\n'";
    match &reachable.data.first()?.0 {
        ListenAddress::Tcp(address) if speaks_tls(settings) => {
            let place = SocketAddr::new(dialable(address.ip()), address.port());
            Some(format!("({REQUESTS}; sleep 1) | openssl s_client -quiet -connect {place}"))
        }
        ListenAddress::Tcp(address) => {
            let host = dialable(address.ip());
            Some(format!("exec 3<>/dev/tcp/{host}/{} && {REQUESTS} >&3 && cat <&3   (in bash)", address.port()))
        }
        ListenAddress::Unix { path, .. } => Some(format!("{REQUESTS} | nc -U {}   (netcat-openbsd)", path.display())),
    }
}

/// Whether the first listener of the options speaks TLS.
fn speaks_tls(settings: &Settings) -> bool {
    let of_listener = network::listen(settings).first().and_then(|address| address.tls);
    of_listener.unwrap_or_else(|| settings.get(&TLS_CERT).is_some())
}

/// An address to connect to, for one that stands for all interfaces.
fn dialable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
