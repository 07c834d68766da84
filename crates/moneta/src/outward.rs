//! How this process reaches others: the one place where TLS and the log-in of all its connections out are made of the options, of
//! a server or of a command.

use std::io::{IsTerminal, stderr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_background::{Run, Task};
use moneta_link::{Control, ControlUrl};
use moneta_net::{Connector, LogIn, LogInSource, Outward, PemSource, Tls, TlsConfig};
use moneta_options::kinds::Kind;
use moneta_options::subscribers::{Effect, Subscribers};
use moneta_options::values::Values;

use crate::options::sections::control::CONTROL;
use crate::options::sections::tls::{self, LOGIN_FILE, TLS_CONNECT};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Looks of a command between two in which what `command:` says is read again, too: ten minutes. A server does that on SIGHUP.
const WHOLE_LOOK: u32 = 300;

/// How a server with these options reaches others. `tls`: what it knows for TLS.
///
/// # Errors
/// If TLS is wanted without an authority to believe, or the log-in cannot be read.
pub fn of(options: &Values, tls: Option<&Arc<Tls>>) -> anyhow::Result<Outward> {
    let has_authorities = tls::config(options).authorities.is_some();
    make(tls, has_authorities, options.get(&TLS_CONNECT), options.get(&LOGIN_FILE))
}

fn make(
    tls: Option<&Arc<Tls>>,
    has_authorities: bool,
    wanted: Option<bool>,
    log_in: Option<PemSource>,
) -> anyhow::Result<Outward> {
    let connector = match (tls, wanted.unwrap_or(has_authorities)) {
        (Some(tls), true) => Connector::Tls(tls.connector()?),
        (None, true) => anyhow::bail!("tls_connect: connections over TLS take authorities to believe (tls_ca)"),
        // An address may ask for it all the same.
        (Some(tls), false) if has_authorities => Connector::TlsWhereAsked(tls.connector()?),
        (_, false) => Connector::Plain,
    };
    let log_in = match log_in {
        None => LogIn::None,
        Some(source) => LogIn::Secret(LogInSource::load(source).context("login_file")?),
    };
    if matches!((&log_in, &connector), (LogIn::Secret(_), Connector::Plain)) {
        tracing::warn!("the secret of login_file is sent without TLS: the network can read it");
    }
    Ok(Outward { connector, log_in })
}

/// Reads the log-in again when its file changes, until the task is told to stop or the process ends; a reload of the options reads
/// it too.
///
/// # Errors
/// If the system has no thread for it.
pub fn keep_fresh(outward: &Outward, subscribers: &mut Subscribers) -> anyhow::Result<Option<Task>> {
    let source = match &outward.log_in {
        LogIn::Secret(source) => Some(Arc::clone(source)),
        _ => None,
    };
    let live = source.clone();
    subscribers.on(&LOGIN_FILE, move |change| {
        let Some(source) = live.clone().filter(|_| change.from == change.to) else {
            return Ok(if change.from == change.to { Effect::None } else { Effect::AfterRestart });
        };
        let read = source.read().context("login_file")?;
        Ok(Effect::now(move || tell(source.put(read))))
    });
    let Some(source) = source else { return Ok(None) };
    let task = moneta_background::start("log-in", move |run| {
        while run.sleep(LOOK) {
            match source.reload_if_changed() {
                Ok(is_other) => tell(is_other),
                Err(error) => {
                    tracing::error!(%error, "login_file cannot be used: the secret of before stays");
                    run.failed(&error);
                }
            }
        }
    })?;
    Ok(Some(task))
}

fn tell(is_other: bool) {
    if is_other {
        tracing::info!("login_file: another secret is in force");
    }
}

/// How a command reaches servers. Each flag may be an environment variable, as with servers.
#[derive(Debug, Args)]
pub struct OutwardArgs {
    /// Authorities that are believed, in PEM; servers are reached over TLS then
    #[arg(long, value_name = "FILE", env = "MONETA_TLS_CA", global = true, help_heading = "Security")]
    tls_ca: Option<PemSource>,
    /// Certificate to show to servers, in PEM
    #[arg(long, value_name = "FILE", env = "MONETA_TLS_CERT", global = true, help_heading = "Security")]
    tls_cert: Option<PemSource>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", env = "MONETA_TLS_KEY", global = true, help_heading = "Security")]
    tls_key: Option<PemSource>,
    /// Lists of revoked certificates
    #[arg(long, value_name = "FILE", env = "MONETA_TLS_CRL", global = true, help_heading = "Security")]
    tls_crl: Option<PemSource>,
    /// off: only addresses that begin with `tls:` are reached over TLS
    #[arg(long, value_name = "auto|on|off", env = "MONETA_TLS_CONNECT", global = true, help_heading = "Security",
        value_parser = |text: &str| TLS_CONNECT.read(text).ok_or("expected auto, on or off"))]
    tls_connect: Option<Option<bool>>,
    /// A line USER:SECRET to log in with, where servers have users and no certificate is shown
    #[arg(long, value_name = "FILE", env = "MONETA_LOGIN_FILE", global = true, help_heading = "Security")]
    login_file: Option<PemSource>,
    /// Servers of the control plane, for topologies `control:APP`
    #[arg(long, value_name = "URL,URL", env = "MONETA_CONTROL", global = true, help_heading = "Control plane",
        value_parser = |text: &str| CONTROL.read(text).map(Servers).ok_or_else(|| CONTROL.kind.range()))]
    control: Option<Servers>,
    /// The environment there
    #[arg(
        long,
        value_name = "NAME",
        env = "MONETA_ENV",
        default_value = "default",
        global = true,
        help_heading = "Control plane"
    )]
    env: String,
}

/// Servers of a control plane, as the value of one flag.
#[derive(Clone, Debug)]
struct Servers(Vec<ControlUrl>);

/// How this command reaches servers.
static OF_COMMAND: OnceLock<Outward> = OnceLock::new();
/// The control plane that this command asks.
static CONTROL_OF_COMMAND: OnceLock<(Vec<ControlUrl>, String)> = OnceLock::new();

/// Adds the flags to a command and its subcommands.
pub fn add_to(command: Command) -> Command {
    // What the arguments say of themselves would else stand in place of what the command does.
    let (about, long) = (command.get_about().cloned(), command.get_long_about().cloned());
    let command = OutwardArgs::augment_args(command);
    let command = if let Some(about) = about { command.about(about) } else { command };
    if let Some(long) = long { command.long_about(long) } else { command }
}

/// Has this command reach servers as its flags say, also once the files that they name have changed.
///
/// # Errors
/// If what they name cannot be read or used.
pub fn take(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut innermost = matches;
    while let Some((_, matches)) = innermost.subcommand() {
        innermost = matches;
    }
    let args = OutwardArgs::from_arg_matches(innermost)?;
    if let Some(urls) = args.control.as_ref().map(|Servers(urls)| urls).filter(|urls| !urls.is_empty()) {
        let _ = CONTROL_OF_COMMAND.set((urls.to_vec(), args.env.clone()));
    }
    if let Some((outward, fresh)) = args.outward()? {
        set(outward);
        moneta_background::start("credentials", move |run| fresh.keep(run)).context("no files are looked at")?;
    }
    Ok(())
}

/// What a command's connections use and may be replaced while it runs.
#[derive(Debug)]
struct Fresh {
    tls: Option<Arc<Tls>>,
    log_in: LogIn,
    /// Whether any of it is what a command says, which has no file to look at.
    has_commands: bool,
}

impl Fresh {
    /// Looks at the files until the command ends.
    fn keep(&self, run: &Run) {
        for look in 1.. {
            if !run.sleep(LOOK) {
                return;
            }
            let is_whole = self.has_commands && look % WHOLE_LOOK == 0;
            for found in self.look(is_whole) {
                if let Err(error) = &found {
                    run.failed(error);
                }
                // A person sees the connections that fail, and perhaps a screen that this line would spoil.
                if !stderr().is_terminal() {
                    match found {
                        Ok(what) => eprintln!("moneta: {what} is in force"),
                        Err(error) => eprintln!("moneta: {error:#}; what was in force stays"),
                    }
                }
            }
        }
    }

    /// Reads what has another file, or all, and puts it in force: tells what is new. What cannot be used stays as it was.
    fn look(&self, is_whole: bool) -> Vec<anyhow::Result<&'static str>> {
        let tls = self.tls.as_ref().map(|tls| {
            let prepared = if is_whole { tls.prepare().map(Some) } else { tls.prepare_if_changed() };
            let applied = prepared.map(|prepared| prepared.map(|prepared| tls.apply(prepared)));
            applied.map(|applied| applied.map(|()| "TLS: what was read again")).context("TLS")
        });
        let log_in = match &self.log_in {
            LogIn::Secret(of) if is_whole => Some(of.reload()),
            LogIn::Secret(of) => Some(of.reload_if_changed()),
            _ => None,
        };
        let log_in = log_in.map(|read| {
            let is_other = read.context("login_file")?;
            Ok(is_other.then_some("login_file: another secret"))
        });
        [tls, log_in].into_iter().flatten().filter_map(Result::transpose).collect()
    }
}

/// Has this command reach servers so, unless its flags have said how.
pub fn set(outward: Outward) {
    let _ = OF_COMMAND.set(outward);
}

/// How this command reaches servers.
pub fn of_command() -> Outward {
    OF_COMMAND.get().cloned().unwrap_or_default()
}

/// The control plane that this command asks, if it was told of one.
pub fn control_of_command() -> Option<Control> {
    let (urls, environment) = CONTROL_OF_COMMAND.get()?;
    Some(Control::new(urls, &of_command(), environment.clone()))
}

/// Another control plane, which is asked as the one that this command was told of is.
pub fn control_at(urls: &[ControlUrl]) -> Control {
    let environment = CONTROL_OF_COMMAND.get().map(|(_, environment)| environment.clone());
    Control::new(urls, &of_command(), environment.unwrap_or_default())
}

impl OutwardArgs {
    /// `None`: they say nothing.
    fn outward(self) -> anyhow::Result<Option<(Outward, Fresh)>> {
        let Self { tls_ca, tls_cert, tls_key, tls_crl, tls_connect, login_file, .. } = self;
        let config = TlsConfig {
            certificate: tls_cert,
            key: tls_key,
            authorities: tls_ca,
            revoked: tls_crl,
            ..TlsConfig::default()
        };
        if config.is_empty() && login_file.is_none() && tls_connect.is_none() {
            return Ok(None);
        }
        let has_authorities = config.authorities.is_some();
        let sources = [&config.certificate, &config.key, &config.authorities, &config.revoked, &login_file];
        let has_commands = sources.into_iter().flatten().any(|source| matches!(source, PemSource::Command(_)));
        let tls = if config.is_empty() { None } else { Some(Tls::load(config)?) };
        let outward = make(tls.as_ref(), has_authorities, tls_connect.flatten(), login_file)?;
        let fresh = Fresh { tls, log_in: outward.log_in.clone(), has_commands };
        Ok(Some((outward, fresh)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_a_command_says_is_read_again_by_the_whole_look_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("login");
        fs::write(&path, "app:one").unwrap();
        let fresh = |source: PemSource| {
            let log_in = LogIn::Secret(LogInSource::load(source).unwrap());
            Fresh { tls: None, log_in, has_commands: true }
        };
        let (of_file, of_command) =
            (fresh(PemSource::File(path.clone())), fresh(PemSource::Command(format!("cat '{}'", path.display()))));
        let secret = |of: &Fresh| of.log_in.credentials().unwrap().secret().to_owned();
        fs::write(&path, "app:second").unwrap();
        let looked = |of: &Fresh, is_whole| {
            let found = of.look(is_whole).into_iter();
            found.map(|found| found.map_err(|error| format!("{error:#}"))).collect::<Vec<_>>()
        };
        assert_eq!(looked(&of_file, false), [Ok("login_file: another secret")]);
        assert_eq!(looked(&of_command, false), []);
        assert_eq!((secret(&of_file).as_str(), secret(&of_command).as_str()), ("second", "one"));
        assert_eq!(looked(&of_command, true), [Ok("login_file: another secret")]);
        assert_eq!(secret(&of_command), "second");
        fs::write(&path, "broken").unwrap();
        let broken = looked(&of_file, false);
        assert!(broken[0].as_ref().is_err_and(|why| why.contains("USER:SECRET")), "{broken:?}");
        assert_eq!(looked(&of_file, false), [], "it is told once");
        assert!(looked(&of_command, true)[0].is_err());
        assert_eq!((secret(&of_file).as_str(), secret(&of_command).as_str()), ("second", "second"));
    }
}
