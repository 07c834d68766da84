//! What a start script asks of the process, beyond what the server is: to go into the background, to become another user, to
//! write down its number. Flags as memcached's.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{User, dup2_stdout, geteuid, initgroups, setgid, setsid, setuid};

/// What a start script asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    /// The user to become.
    pub user: Option<String>,
    /// Whether core dumps may be as large as the system lets them be.
    pub has_core_dumps: bool,
    /// Whether it goes into the background.
    pub is_detached: bool,
    /// Where its number is written down.
    pub pid_file: Option<PathBuf>,
}

impl Startup {
    /// Does what comes before everything else, as all that is opened or started later is to be of that user and that process.
    /// `Some`: this process has done its part and ends with this status; another one serves.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(&self) -> anyhow::Result<Option<u8>> {
        if let Some(user) = &self.user {
            become_user(user)?;
        }
        if self.has_core_dumps {
            allow_core_dumps()?;
        }
        if self.is_detached { detach() } else { Ok(None) }
    }
}

/// Set for the process that is to serve by the one that was started with `-d`.
const DETACHED: &str = "_MONETA_DETACHED";

/// Goes into the background: starts this program again with the same arguments as a process without a terminal, and waits until
/// that one listens or has ended.
///
/// `None`: this process is the one that is to serve. Else it has done its part, and ends with this status. A new process rather
/// than a fork, which is only sound while there is a single thread.
///
/// # Errors
/// If the process cannot be started or its session not be left.
fn detach() -> anyhow::Result<Option<u8>> {
    if std::env::var_os(DETACHED).is_some() {
        setsid().context("-d: cannot leave the session")?;
        return Ok(None);
    }
    let program = std::env::current_exe().context("-d: cannot find this program")?;
    let mut node = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("-d: cannot start the process in the background")?;
    // It closes its end when it has said where it listens, or has ended.
    let mut said = Vec::new();
    node.stdout
        .take()
        .map_or(Ok(0), |mut output| output.read_to_end(&mut said))
        .context("-d: cannot read its output")?;
    let _ = io::stdout().write_all(&said);
    if !said.is_empty() {
        return Ok(Some(0));
    }
    let status = node.wait().context("-d: cannot wait for the process in the background")?;
    Ok(Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Lets the process that waits for this one go on: nothing more is said on standard output.
///
/// # Errors
/// If standard output cannot be replaced.
pub(crate) fn let_go() -> anyhow::Result<()> {
    let nowhere = fs::OpenOptions::new().write(true).open("/dev/null").context("-d: cannot open /dev/null")?;
    dup2_stdout(nowhere).context("-d: cannot close standard output")
}

/// Becomes `name` with all its groups, if root started this process; else changes nothing, as memcached.
///
/// # Errors
/// If there is no such user, or the kernel refuses.
fn become_user(name: &str) -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let user = User::from_name(name)
        .with_context(|| format!("-u: cannot look for the user `{name}`"))?
        .ok_or_else(|| anyhow!("-u: there is no user `{name}`"))?;
    let groups_of = std::ffi::CString::new(name).context("-u")?;
    initgroups(&groups_of, user.gid)
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .with_context(|| format!("-u: cannot become the user `{name}`"))
}

/// Raises the limit on the size of core dumps as far as it goes.
///
/// # Errors
/// If the kernel refuses.
fn allow_core_dumps() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_CORE).context("-r: cannot read the limit on core dumps")?;
    setrlimit(Resource::RLIMIT_CORE, most, most).context("-r: cannot raise the limit on core dumps")
}

/// A file with the number of this process; removed when dropped, unless another process has written its own there since.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    text: String,
}

impl PidFile {
    /// Writes it, over whatever is there. Without it a node serves all the same, as memcached does.
    pub fn write(path: &Path) -> Option<Self> {
        let text = format!("{}\n", std::process::id());
        // Unlike all else that the node writes, this is for others to read.
        let write =
            || fs::write(path, &text).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)));
        match write() {
            Ok(()) => Some(Self { path: path.to_owned(), text }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the process number cannot be written down");
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
