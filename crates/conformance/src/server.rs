//! Starting and stopping a server under test.
//!
//! A server lives as long as its [`Server`] value: dropping it, a panicking test included, ends the process.

use crate::client::{Address, Client};
use crate::options::{Kind, Options, TlsFiles};
use crate::process;
use anyhow::{Context, Result, bail};
use moneta_net::Connector;
use std::env;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// How long a server may take to answer its first command; generous, for loaded machines.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take to leave after it was asked to.
pub const STOP_LIMIT: Duration = Duration::from_secs(60);
/// A free port may be taken between finding and using it; then another one is tried.
const START_ATTEMPTS: usize = 5;
const POLL: Duration = Duration::from_millis(5);

/// A running server process.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    /// None for a server that something else started.
    child: Option<Child>,
    address: Address,
    connector: Connector,
    messages: NamedTempFile,
    speaks_text: bool,
}

impl Server {
    /// Starts the server the tests are about: Moneta, or memcached when `MONETA_TEST_PEER=memcached` asks for a run that
    /// checks the tests themselves.
    pub fn start_subject(options: &Options) -> Result<Self> {
        Self::start(subject_kind()?, options)
    }

    /// Starts a server of `kind` and waits until it answers.
    pub fn start(kind: Kind, options: &Options) -> Result<Self> {
        Self::start_at_some_port(|port| Self::start_at(kind, options, port))
    }

    /// Starts Moneta with a command line of the test's own, which has it listen on 127.0.0.1 at the port it is given.
    pub fn start_moneta(arguments: impl Fn(u16) -> Vec<OsString>) -> Result<Self> {
        Self::start_at_some_port(|port| {
            let address = Address::tcp("127.0.0.1", port);
            Self::spawn(Kind::Moneta, &arguments(port), address, Connector::Plain, true)
        })
    }

    /// Starts a server with a command line of the test's own, and waits until it answers at `address`.
    pub fn start_with(kind: Kind, arguments: &[OsString], address: Address) -> Result<Self> {
        Self::spawn(kind, arguments, address, Connector::Plain, true)
    }

    fn start_at_some_port(start: impl Fn(u16) -> Result<Self>) -> Result<Self> {
        let mut last_error = None;
        for _ in 0..START_ATTEMPTS {
            match start(free_port()?) {
                Ok(server) => return Ok(server),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.expect("at least one attempt was made"))
    }

    /// A server that already listens; it goes on when this value is dropped.
    pub fn attach(kind: Kind, address: SocketAddr) -> Result<Self> {
        let messages = NamedTempFile::new()?;
        let (address, connector) = (address.into(), Connector::Plain);
        Ok(Self { kind, child: None, address, connector, messages, speaks_text: true })
    }

    fn child(&mut self) -> Result<&mut Child> {
        self.child.as_mut().context("this server was started by something else")
    }

    fn start_at(kind: Kind, options: &Options, port: u16) -> Result<Self> {
        let address = match &options.unix_socket {
            Some((path, _)) => Address::Unix(path.clone()),
            None => Address::tcp("127.0.0.1", port),
        };
        let connector = options.tls.as_ref().map_or(Ok(Connector::Plain), TlsFiles::connector)?;
        Self::spawn(kind, &options.arguments(kind, port), address, connector, options.sasl_file.is_none())
    }

    fn spawn(
        kind: Kind,
        arguments: &[OsString],
        address: Address,
        connector: Connector,
        speaks_text: bool,
    ) -> Result<Self> {
        let program = program(kind)?;
        let messages = NamedTempFile::new()?;
        let child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(messages.reopen()?)
            .stderr(messages.reopen()?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { kind, child: Some(child), address, connector, messages, speaks_text };
        server.wait_until_ready().with_context(|| format!("{} {arguments:?}", program.display()))?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child()?.try_wait()? {
                bail!("the server left before it answered: {status}; it said: {}", self.messages());
            }
            if self.answers() && self.is_where_it_was_told_to_be() {
                return Ok(());
            }
            if start.elapsed() > START_LIMIT {
                bail!("the server did not answer within {START_LIMIT:?}");
            }
            sleep(POLL);
        }
    }

    /// Any whole line in reply to `version` will do: a server that wants a password answers with an error. One that wants
    /// SASL speaks the binary protocol only, and being let in is all there is to see.
    fn answers(&self) -> bool {
        let Ok(mut client) = self.connect() else { return false };
        !self.speaks_text || client.send(b"version\r\n").is_ok() && client.line().is_ok_and(|line| !line.is_empty())
    }

    /// Whether what answers is this process, and not another one that took the free port first. This one will then see that
    /// the port is taken, and leave.
    fn is_where_it_was_told_to_be(&self) -> bool {
        match &self.address {
            Address::Tcp(place) => process::listens_on(self.pid(), place.port).unwrap_or(false),
            Address::Unix(_) => true,
        }
    }

    /// Which server this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What connects to it.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// The process id; 0 if something else started the server.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// A new connection.
    pub fn connect(&self) -> Result<Client> {
        Client::connect_by(&self.address, &self.connector)
    }

    /// Resident memory now, bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        process::resident_bytes(self.pid())
    }

    /// What the process printed so far.
    pub fn messages(&self) -> String {
        std::fs::read_to_string(self.messages.path()).unwrap_or_else(|error| format!("({error})"))
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child()?.try_wait()?.is_none())
    }

    /// Asks the process to end by `signal`, and returns how it ended.
    pub fn stop_by_signal(&mut self, signal: libc::c_int) -> Result<ExitStatus> {
        process::signal(self.pid(), signal)?;
        self.wait_for_exit()
    }

    /// Waits for the process to end by itself.
    pub fn wait_for_exit(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < STOP_LIMIT {
            if let Some(status) = self.child()?.try_wait()? {
                return Ok(status);
            }
            sleep(POLL);
        }
        bail!("the server still ran {STOP_LIMIT:?} after it was to end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process is already gone, which is what is wanted.
        let Some(child) = &mut self.child else { return };
        let _ = child.kill();
        let _ = child.wait();
        if std::thread::panicking() {
            eprintln!("--- what {:?} {} printed:\n{}", self.kind, self.pid(), self.messages());
        }
    }
}

/// The kind that `MONETA_TEST_PEER` names: `moneta` (default) or `memcached`.
pub fn subject_kind() -> Result<Kind> {
    match env::var("MONETA_TEST_PEER").as_deref() {
        Err(_) | Ok("" | "moneta") => Ok(Kind::Moneta),
        Ok("memcached") => Ok(Kind::Memcached),
        Ok(other) => bail!("MONETA_TEST_PEER is `{other}`; it may be `moneta` or `memcached`"),
    }
}

/// A port of 127.0.0.1 that nothing listened on a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The program of a kind: what `MEMCACHED_BIN` or `MONETA_BIN` names, else memcached of the path, or Moneta as cargo built it.
pub fn program(kind: Kind) -> Result<PathBuf> {
    match kind {
        Kind::Memcached => Ok(env::var_os("MEMCACHED_BIN").map_or_else(|| "memcached".into(), PathBuf::from)),
        Kind::Moneta => moneta_program(),
    }
}

/// `MONETA_BIN`, or the binary cargo built beside the running test: `target/<profile>/deps/test` -> `target/<profile>/moneta`.
fn moneta_program() -> Result<PathBuf> {
    if let Some(path) = env::var_os("MONETA_BIN") {
        return Ok(path.into());
    }
    let test = env::current_exe()?;
    let profile = test.parent().and_then(|deps| deps.parent()).context("the test runs outside a target folder")?;
    let path = profile.join("moneta");
    if !path.is_file() {
        bail!("there is no {}: run `cargo build -p moneta` first, or name the binary in MONETA_BIN", path.display());
    }
    Ok(path)
}
