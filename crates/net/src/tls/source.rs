//! Where certificates and keys come from.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use super::error::TlsError;

/// Most bytes of a source.
const MAX: u64 = 4 << 20;
/// How long a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(10);
/// How often an unfinished command is looked at.
const COMMAND_LOOK: Duration = Duration::from_millis(20);
/// What stands before the name of a credential.
const CREDENTIAL: &str = "credential:";
/// What stands before a command.
const COMMAND: &str = "command:";

/// Where text in PEM is read: a file's path, `credential:NAME` of systemd (`LoadCredential=`), or `command:LINE`, whose output it
/// is. The latter need not lie on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemSource {
    /// A file.
    File(PathBuf),
    /// The name of a credential that systemd has given to the service.
    Credential(String),
    /// A line for `sh`.
    Command(String),
}

/// What changes when a file is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl PemSource {
    /// What it has now.
    pub(crate) fn read(&self) -> Result<Vec<u8>, TlsError> {
        let read = match self {
            Self::Command(line) => run(line),
            Self::File(_) | Self::Credential(_) => self.path().and_then(|path| whole(File::open(path)?)),
        };
        read.map_err(|error| TlsError::new(self, error))
    }

    /// How its file looks; none for a command, or where there is no file.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(self.path().ok()?).ok()?;
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        Some(Stamp { inode: metadata.ino(), bytes: metadata.len(), seconds, nanoseconds })
    }

    fn path(&self) -> io::Result<PathBuf> {
        let no = |reason: &str| io::Error::new(io::ErrorKind::NotFound, reason.to_owned());
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
                Some(folder) => Ok(Path::new(&folder).join(name)),
                None => Err(no("systemd has given no credentials (LoadCredential=) to this process")),
            },
            Self::Command(_) => Err(no("a command has no file")),
        }
    }
}

impl FromStr for PemSource {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix(CREDENTIAL) {
            let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
            return if is_name { Ok(Self::Credential(name.into())) } else { Err("a credential's name has no slash") };
        }
        if let Some(line) = text.strip_prefix(COMMAND) {
            return if line.trim().is_empty() { Err("a command is wanted") } else { Ok(Self::Command(line.into())) };
        }
        if text.is_empty() { Err("the path of a file is wanted") } else { Ok(Self::File(text.into())) }
    }
}

impl fmt::Display for PemSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Credential(name) => write!(formatter, "{CREDENTIAL}{name}"),
            Self::Command(line) => write!(formatter, "{COMMAND}{line}"),
        }
    }
}

fn whole(from: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    from.take(MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX { Err(io::Error::other(format!("more than {MAX} bytes"))) } else { Ok(text) }
}

/// The output of a command that ends in time and well.
fn run(line: &str) -> io::Result<Vec<u8>> {
    let mut child = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().map(|output| thread::spawn(move || whole(output)));
    let ended = wait(&mut child);
    if ended.is_err() {
        drop(child.kill());
        drop(child.wait());
    }
    ended?;
    match output.map(thread::JoinHandle::join) {
        Some(Ok(text)) => text,
        _ => Err(io::Error::other("its output cannot be read")),
    }
}

fn wait(child: &mut Child) -> io::Result<()> {
    let until = Instant::now() + COMMAND_TIME;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("it ended with {status}"))),
            None if Instant::now() >= until => {
                return Err(io::Error::other(format!("it takes longer than {} s", COMMAND_TIME.as_secs())));
            }
            None => thread::sleep(COMMAND_LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_file_a_credential_or_a_command_and_is_written_as_it_is_read() {
        for text in ["/etc/moneta/key.pem", "key.pem", "credential:key", "command:vault read -field=key moneta"] {
            assert_eq!(text.parse::<PemSource>().map(|source| source.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "credential:", "credential:a/b", "credential:..", "command: "] {
            assert!(text.parse::<PemSource>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_command_that_fails_is_an_error_that_names_it() {
        assert_eq!(PemSource::Command("printf abc".into()).read(), Ok(b"abc".to_vec()));
        let error = PemSource::Command("printf abc; exit 3".into()).read().unwrap_err();
        assert!(error.to_string().contains("exit 3") && error.to_string().contains("exit status: 3"), "{error}");
        let error = PemSource::Command("yes".into()).read().unwrap_err();
        assert!(error.to_string().starts_with("command:yes: "), "{error}");
    }

    #[test]
    fn a_file_that_is_replaced_looks_different() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        let source = PemSource::File(path.clone());
        assert_eq!(source.stamp(), None);
        fs::write(&path, "a").unwrap();
        let before = source.stamp();
        fs::write(&other, "b").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(before.is_some() && source.stamp() != before);
    }
}
