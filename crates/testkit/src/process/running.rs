//! A process that runs beside the test.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::captured::Captured;
use super::kernel;
use super::patience::{PATIENCE, POLL};

/// As much of what a process printed is shown when a test fails.
const SHOWN: usize = 64 << 10;

/// A process that ends with its value: killed, and waited for. If its test fails, what it printed is printed.
///
/// Its id stays its own until [`wait`](Self::wait), [`end`](Self::end) or [`kill`](Self::kill) has seen its end: no signal reaches
/// another process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Of a process that has been waited for.
    ended: Option<ExitStatus>,
    stdout: Captured,
    stderr: Captured,
}

/// Ends of the pipes to a process. It waits where one is not read, and sees an end where one is dropped.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: Option<ChildStdout>,
    /// What it logs.
    pub stderr: Option<ChildStderr>,
}

/// Why something does not hold for a process.
#[derive(Debug)]
pub struct NotSo {
    what: String,
    /// The process has ended before it held.
    pub has_ended: bool,
    messages: String,
}

impl fmt::Display for NotSo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, has_ended, messages } = self;
        if *has_ended {
            write!(f, "the process ended before this: {what}; it said: {messages}")
        } else {
            write!(f, "not within {PATIENCE:?}: {what}; the process said: {messages}")
        }
    }
}

impl std::error::Error for NotSo {}

impl Process {
    /// Starts `command` without standard input.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same.
    ///
    /// # Errors
    /// If it cannot be started; names the program.
    pub fn try_start(command: &mut Command) -> io::Result<Self> {
        let (stdout, stderr) = (Captured::new()?, Captured::new()?);
        command.stdin(Stdio::null()).stdout(stdout.stdio()?).stderr(stderr.stdio()?);
        Self::spawn(command, stdout, stderr)
    }

    /// Starts a process whose streams are those that `command` has set, and returns the pipes among them: for tests that write to
    /// it, or act on what it says when it says it. What goes elsewhere is not captured.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_raw(command: &mut Command) -> (Self, Pipes) {
        let captured = || Captured::new().expect("a file for what it prints");
        let mut process = Self::spawn(command, captured(), captured()).unwrap_or_else(|error| panic!("{error}"));
        let Child { stdin, stdout, stderr, .. } = &mut process.child;
        let pipes = Pipes { stdin: stdin.take(), stdout: stdout.take(), stderr: stderr.take() };
        (process, pipes)
    }

    fn spawn(command: &mut Command, stdout: Captured, stderr: Captured) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn();
        let child = child.map_err(|error| io::Error::new(error.kind(), format!("cannot start {name}: {error}")))?;
        Ok(Self { name, child, ended: None, stdout, stderr })
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id().try_into().expect("the kernel's numbers are small"))
    }

    /// What it has written to standard output by now; nothing if it was started [raw](Self::start_raw).
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to standard error by now: the log of most programs.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// All that it has printed by now, standard output first.
    pub fn messages(&self) -> String {
        self.stdout() + &self.stderr()
    }

    /// Waits until `holds` does.
    ///
    /// # Panics
    /// With `what` and what the process printed, after [`PATIENCE`] or when the process has ended.
    pub fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        self.try_until(what, holds).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// The same.
    ///
    /// # Errors
    /// [`NotSo`], after [`PATIENCE`] or when the process has ended.
    pub fn try_until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), NotSo> {
        let begun = Instant::now();
        loop {
            // In this order: what it did before it ended counts.
            let has_ended = self.has_ended();
            if holds() {
                return Ok(());
            }
            if has_ended || begun.elapsed() >= PATIENCE {
                return Err(NotSo { what: what.to_owned(), has_ended, messages: self.messages() });
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until its standard error has `part`.
    ///
    /// # Panics
    /// As [`until`](Self::until).
    pub fn until_it_says(&self, part: &str) {
        self.until(&format!("its log has `{part}`"), || self.stderr().contains(part));
    }

    /// Waits until this process accepts connections on a port of 127.0.0.1, and not another one that took the port first.
    ///
    /// # Errors
    /// As [`try_until`](Self::try_until).
    pub fn until_it_listens(&self, port: u16) -> Result<(), NotSo> {
        let accepts = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.try_until(&format!("it listens on port {port}"), || self.listens_on(port) && accepts())
    }

    /// Whether it listens on a TCP port, over IPv4. Of one that was free a moment ago, since another program may have taken it.
    pub fn listens_on(&self, port: u16) -> bool {
        kernel::listens_on(self.id(), port).unwrap_or(false)
    }

    /// Its resident memory, bytes.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        kernel::resident_bytes(self.id())
    }

    /// The most resident memory that it has had, bytes.
    ///
    /// # Errors
    /// If it is gone.
    pub fn peak_bytes(&self) -> io::Result<u64> {
        kernel::peak_bytes(self.id())
    }

    /// Whether it has ended. Its end is not taken note of: its id stays its own.
    pub fn has_ended(&self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let status = waitid(Id::Pid(self.pid()), flags).expect("it is our child");
        status != WaitStatus::StillAlive
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If its end has been seen.
    pub fn signal(&self, signal: Signal) {
        assert!(self.ended.is_none(), "{} runs no more", self.name);
        kill(self.pid(), signal).expect("it has not been waited for");
    }

    /// Stops it (SIGSTOP), and returns when it has stopped: on a busy machine its other threads go on for a while.
    ///
    /// # Panics
    /// If it has ended.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let status = loop {
            match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)) {
                Err(Errno::EINTR) => {}
                status => break status.expect("it is our child"),
            }
        };
        assert_eq!(status, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP), "{}", self.name);
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    /// If its end has been seen.
    pub fn cont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Tells it to end (SIGTERM), and waits for that.
    ///
    /// # Panics
    /// If it goes on for [`PATIENCE`].
    pub fn end(&mut self) -> ExitStatus {
        if self.ended.is_none() {
            self.signal(Signal::SIGTERM);
        }
        self.wait()
    }

    /// Kills it (SIGKILL), and waits for its end. Does nothing if that was seen already.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            // It fails only when it has ended already.
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it goes on for [`PATIENCE`].
    pub fn wait(&mut self) -> ExitStatus {
        self.try_wait().unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The same.
    ///
    /// # Errors
    /// If it goes on for [`PATIENCE`].
    pub fn try_wait(&mut self) -> Result<ExitStatus, NotSo> {
        let begun = Instant::now();
        while self.ended.is_none() {
            self.ended = self.child.try_wait().expect("it is our child");
            if self.ended.is_none() {
                if begun.elapsed() >= PATIENCE {
                    return Err(NotSo { what: "it ends".into(), has_ended: false, messages: self.messages() });
                }
                thread::sleep(POLL);
            }
        }
        Ok(self.ended.expect("the loop ends with it"))
    }

    /// What is in its standard output and error by now.
    pub(super) fn captured(&self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        Ok((self.stdout.bytes()?, self.stderr.bytes()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.id();
        self.kill();
        if thread::panicking() {
            let messages = self.messages();
            let from = messages.len().saturating_sub(SHOWN);
            let from = (from..messages.len()).find(|at| messages.is_char_boundary(*at)).unwrap_or(messages.len());
            eprintln!("--- what {} (process {id}) printed:\n{}\n---", self.name, &messages[from..]);
        }
    }
}
