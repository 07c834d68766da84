//! Commands: the programs that tests run, and runs that end by themselves.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::running::Process;

/// Variables of this prefix are options of the programs under test.
const OPTIONS: &str = "MONETA_";

/// A command without the `MONETA_…` variables of the test's environment, which a process would take for its options.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(OPTIONS)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A command that runs [`moneta_program`].
///
/// # Errors
/// When there is none.
pub fn moneta() -> io::Result<Command> {
    moneta_program().map(clean)
}

/// `MONETA_BIN`, or the binary that cargo built beside the running test: `target/<profile>/deps/test` -> `target/<profile>/moneta`.
///
/// # Errors
/// When there is none.
pub fn moneta_program() -> io::Result<PathBuf> {
    if let Some(path) = env::var_os("MONETA_BIN") {
        return Ok(path.into());
    }
    let test = env::current_exe()?;
    let path = test.parent().and_then(|deps| deps.parent()).map(|profile| profile.join("moneta"));
    path.filter(|path| path.is_file()).ok_or_else(|| {
        let why = format!(
            "there is no `moneta` beside {}: run `cargo build -p moneta` first, or name the binary in MONETA_BIN",
            test.display()
        );
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

/// A command that runs [`memcached_program`], as root if the test does.
pub fn memcached() -> Command {
    let mut command = clean(memcached_program());
    // Else it refuses to run as root.
    if nix::unistd::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    command
}

/// `MEMCACHED_BIN`, or the memcached on the path.
pub fn memcached_program() -> PathBuf {
    env::var_os("MEMCACHED_BIN").map_or_else(|| "memcached".into(), PathBuf::from)
}

/// What a run prints, and how it ends.
///
/// # Panics
/// If it cannot be started or does not end: one that serves where it should refuse is killed.
pub fn output(command: &mut Command) -> Output {
    let mut process = Process::start(command);
    let status = process.wait();
    let (stdout, stderr) = process.captured().expect("what it printed can be read");
    Output { status, stdout, stderr }
}

/// Standard output of a run that succeeds.
///
/// # Panics
/// If it fails, with what it wrote to standard error.
pub fn printed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a run that is refused with exit status `status`.
///
/// # Panics
/// If it ends otherwise.
pub fn refused(command: &mut Command, status: i32) -> String {
    let Output { status: ended, stdout, stderr } = output(command);
    assert_eq!(ended.code(), Some(status), "stdout: {}, stderr: {}", text(&stdout), text(&stderr));
    text(&stderr)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
