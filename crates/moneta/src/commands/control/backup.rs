//! `moneta control backup` and `moneta control restore`: all that a ledger has, in a file and back.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};
use moneta_control::backup::Backup;
use moneta_ledger::Ledger;
use moneta_link::ControlUrl;
use moneta_options::kinds::Kind;

use super::ledger;
use crate::options::of_control::ETCD;
use crate::{control_url, outward};

/// Members of etcd, as the value of one flag.
#[derive(Clone, Debug)]
struct Members(Vec<ControlUrl>);

/// How long a backup may take.
const PATIENCE: Duration = Duration::from_secs(3_600);

fn file() -> Arg {
    Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf))
}

/// The subcommand that takes one.
pub fn command() -> Command {
    Command::new("backup")
        .about("Write all that a running control plane keeps to a file")
        .arg(file().help("The file; it is there whole or not at all"))
}

/// The subcommand that puts one back.
pub fn restore_command() -> Command {
    Command::new("restore")
        .about("Make a ledger of a backup, in a folder or an etcd that has none")
        .arg(file().help("The backup"))
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The folder, as in --data of the control plane"),
        )
        .arg(
            Arg::new("etcd")
                .long("etcd")
                .value_name("URL,URL")
                .value_parser(|text: &str| ETCD.read(text).map(Members).ok_or_else(|| ETCD.kind.range()))
                .help("Members of etcd, as in --etcd of the control plane"),
        )
        .arg(
            Arg::new("etcd_name")
                .long("etcd-name")
                .value_name("NAME")
                .default_value("moneta")
                .help("Where in etcd, as in --etcd-name of the control plane"),
        )
        .group(ArgGroup::new("ledger").args(["data", "etcd"]).required(true))
}

/// Takes a backup.
///
/// # Errors
/// If the control plane does not answer, says no, or the file cannot be written.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let path: &PathBuf = matches.get_one("file").context("clap asks for a file")?;
    let answer = control_url::Control::of_command(PATIENCE)?.open("/v1/backup")?;
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?.to_string_lossy();
    let beside = Beside(path.with_file_name(format!(".{name}.{}", std::process::id())));
    let taken = beside.fill(answer).and_then(|count| {
        fs::rename(&beside.0, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(count)
    });
    let count = taken.with_context(|| format!("{} is not written", path.display()))?;
    writeln!(io::stdout(), "{count} keys in {}", path.display())?;
    Ok(())
}

/// A file beside the one that it is to become; removed unless it did.
struct Beside(PathBuf);

impl Beside {
    /// Writes what comes, and reads it again; returns how many keys it has.
    fn fill(&self, mut from: impl io::Read) -> anyhow::Result<usize> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&self.0)?;
        io::copy(&mut from, &mut file)?;
        file.sync_all()?;
        let read = Backup::read(BufReader::new(File::open(&self.0)?))?;
        Ok(read.entries.len())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It is not there any more if it became the other.
        let _ = fs::remove_file(&self.0);
    }
}

/// Puts a backup back.
///
/// # Errors
/// If the file is no whole backup, or the folder has a ledger with keys.
pub fn restore(matches: &ArgMatches) -> anyhow::Result<()> {
    let path: &PathBuf = matches.get_one("file").context("clap asks for a file")?;
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
    let Backup { revision, entries } =
        Backup::read(BufReader::new(file)).with_context(|| format!("{name} is no backup"))?;
    let count = entries.len();
    let (ledger, place): (Arc<dyn Ledger>, String) = match matches.get_one::<PathBuf>("data") {
        Some(folder) => (Arc::new(ledger::in_folder(folder)?), format!("`{}`", folder.display())),
        None => {
            let Members(urls) = matches.get_one("etcd").context("clap asks for a ledger")?;
            let name: &String = matches.get_one("etcd_name").context("it has a name")?;
            (ledger::on_etcd(urls, name, &outward::of_command())?, "etcd".to_owned())
        }
    };
    match pollster::block_on(ledger.fill(revision, entries)) {
        Ok(at) => writeln!(io::stdout(), "{count} keys, at {at}")?,
        Err(error) => bail!("the ledger in {place}: {error}"),
    }
    Ok(())
}
