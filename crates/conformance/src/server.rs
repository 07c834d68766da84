//! Starting and stopping a server under test.
//!
//! A server lives as long as its [`Server`] value: dropping it, a panicking test included, ends the process.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitStatus;

use anyhow::{Context, Result, bail, ensure};
use moneta_net::Connector;
use moneta_testkit::process::{self, Process, Signal};

use crate::binary::{self, Request, opcode};
use crate::client::{Address, Client};
use crate::options::{Kind, LogIn, Options};

/// A free port may be taken between finding and using it; then another one is tried.
const START_ATTEMPTS: usize = 5;

/// A running server process.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    /// None for a server that something else started.
    process: Option<Process>,
    address: Address,
    connector: Connector,
    log_in: Option<LogIn>,
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
            match start(process::free_port()?) {
                Ok(server) => return Ok(server),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.expect("at least one attempt was made"))
    }

    /// A server that already listens; it goes on when this value is dropped.
    pub fn attach(kind: Kind, address: SocketAddr) -> Result<Self> {
        let (address, connector) = (address.into(), Connector::Plain);
        Ok(Self { kind, process: None, address, connector, log_in: None, speaks_text: true })
    }

    /// Its process.
    ///
    /// # Errors
    /// If something else started it.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("this server was started by something else")
    }

    fn start_at(kind: Kind, options: &Options, port: u16) -> Result<Self> {
        let address = match &options.unix_socket {
            Some((path, _)) => Address::Unix(path.clone()),
            None => Address::tcp("127.0.0.1", port),
        };
        let connector = options.tls.as_ref().map_or(Ok(Connector::Plain), |files| files.connector())?;
        let speaks_text = options.sasl_file.is_none();
        let server = Self::spawn(kind, &options.arguments(kind, port), address, connector, speaks_text)?;
        Ok(Self { log_in: options.log_in.clone(), ..server })
    }

    fn spawn(
        kind: Kind,
        arguments: &[OsString],
        address: Address,
        connector: Connector,
        speaks_text: bool,
    ) -> Result<Self> {
        let mut command = match kind {
            Kind::Memcached => process::clean(process::memcached_program()),
            Kind::Moneta => process::moneta()?,
        };
        let process = Process::try_start(command.args(arguments))?;
        let server = Self { kind, process: Some(process), address, connector, log_in: None, speaks_text };
        let process = server.process.as_ref().expect("it was started");
        process
            .try_until("the server answers", || server.answers() && server.is_where_it_was_told_to_be())
            .with_context(|| format!("{kind:?} {arguments:?}"))?;
        Ok(server)
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
            Address::Tcp(place) => self.process.as_ref().is_some_and(|process| process.listens_on(place.port)),
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
        self.process.as_ref().map_or(0, Process::id)
    }

    /// A new connection.
    pub fn connect(&self) -> Result<Client> {
        Client::connect_by(&self.address, &self.connector)
    }

    /// A new connection that has logged in, where the server wants that: by text, or by SASL PLAIN for binary commands.
    pub fn enter(&self, is_binary: bool) -> Result<Client> {
        let mut client = self.connect()?;
        if let Some(LogIn { name, secret }) = &self.log_in {
            if is_binary {
                let plain = format!("\0{name}\0{secret}");
                let request = Request::new(opcode::SASL_AUTH, b"", b"PLAIN", plain.as_bytes());
                let reply = binary::ask(&mut client, &request)?;
                ensure!(reply.status == 0, "the log-in is refused: {reply:?}");
            } else {
                let reply = client.set("login", format!("{name} {secret}").as_bytes())?;
                ensure!(reply == "STORED", "the log-in is refused: {reply}");
            }
        }
        Ok(client)
    }

    /// Resident memory now, bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        Ok(process::resident_bytes(self.pid())?)
    }

    /// What the process printed so far.
    pub fn messages(&self) -> String {
        self.process.as_ref().map(Process::messages).unwrap_or_default()
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(!self.process()?.has_ended())
    }

    /// Asks the process to end by `signal`, and returns how it ended.
    pub fn stop_by_signal(&mut self, signal: Signal) -> Result<ExitStatus> {
        self.process()?.signal(signal);
        self.wait_for_exit()
    }

    /// Waits for the process to end by itself.
    pub fn wait_for_exit(&mut self) -> Result<ExitStatus> {
        Ok(self.process()?.try_wait()?)
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
