//! Processes of tests: none is left behind, and none that ends or hangs is waited for in silence.

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use moneta_testkit::process::{self, Process, Signal, TlsFiles, until};

fn shell(script: &str) -> Process {
    Process::start(Command::new("sh").args(["-c", script]))
}

fn is_gone(id: u32) -> bool {
    !Path::new(&format!("/proc/{id}")).exists()
}

#[test]
fn a_test_that_panics_leaves_no_process() {
    let process = shell("exec sleep 600");
    let id = process.id();
    let failed = catch_unwind(AssertUnwindSafe(move || {
        let _moved = process;
        panic!("as a test does");
    }));
    assert!(failed.is_err() && is_gone(id));
}

#[test]
fn a_wait_ends_with_its_process_and_says_what_that_printed() {
    let process = shell("echo out; echo 'no such thing' >&2; exit 3");
    let error = process.try_until("it serves", || false).unwrap_err();
    assert!(error.has_ended);
    let text = error.to_string();
    assert!(text.contains("it serves") && text.contains("out") && text.contains("no such thing"), "{text}");
    assert_eq!((process.stdout().as_str(), process.stderr().as_str()), ("out\n", "no such thing\n"));
    // What happened before the end holds.
    process.until_it_says("no such");
}

#[test]
fn a_process_that_ended_keeps_its_number_until_that_is_seen() {
    let mut process = shell("exit 3");
    until("it has ended", || process.has_ended());
    assert!(!is_gone(process.id()));
    // To none but the process.
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait().code(), Some(3));
    assert!(process.has_ended() && is_gone(process.id()));
    assert_eq!(process.end().code(), Some(3), "the end is told again");
    assert!(catch_unwind(AssertUnwindSafe(|| process.signal(Signal::SIGTERM))).is_err());
}

#[test]
fn a_stopped_process_does_nothing_until_it_goes_on() {
    let mut process = shell("trap 'echo ended; exit 0' TERM; while :; do echo tick; sleep 0.01; done");
    process.until("it ticks", || process.stdout().contains("tick"));
    process.stop();
    let said = process.stdout();
    process.signal(Signal::SIGTERM);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(process.stdout(), said);
    process.cont();
    assert!(process.end().success());
    assert!(process.stdout().ends_with("ended\n"));
}

#[test]
fn what_a_process_says_is_read_when_it_says_it() {
    let mut command = Command::new("sh");
    let command = command.args(["-c", "while :; do echo line; done"]);
    let (mut process, pipes) = Process::start_raw(command.stdout(Stdio::piped()));
    let stdout = pipes.stdout.expect("it is piped");
    // Most of what it says it has not said yet: the pipe is full.
    let lines = BufReader::new(stdout).lines().map_while(Result::ok).take(5).collect::<Vec<_>>();
    assert_eq!(lines, ["line"; 5]);
    process.kill();
    process.kill();
    assert!(is_gone(process.id()));
}

#[test]
fn runs_that_end_by_themselves_are_looked_at() {
    let script = |text: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    };
    assert_eq!(process::printed(&mut script("echo yes")), "yes\n");
    assert_eq!(process::refused(&mut script("echo no >&2; exit 2"), 2), "no\n");
    assert!(catch_unwind(|| process::printed(&mut script("exit 1"))).is_err());
    assert!(catch_unwind(|| process::refused(&mut script("exit 0"), 2)).is_err());
    let error = Process::try_start(&mut Command::new("/no/such/program")).unwrap_err().to_string();
    assert!(error.contains("/no/such/program"), "{error}");
}

#[test]
fn only_the_process_that_listens_is_said_to() {
    let port = process::free_port().expect("a port");
    let process = shell("exec sleep 600");
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("nothing listens there");
    assert!(process::listens_on(std::process::id(), port).expect("this process runs"));
    assert!(!process.listens_on(port));
    drop(listener);
    assert!(process.resident_bytes().expect("it runs") > 0);
}

#[test]
fn steady_ports_are_different_ones() {
    let ports: std::collections::HashSet<u16> = (0..20).map(|_| process::steady_port()).collect();
    assert_eq!(ports.len(), 20);
}

#[test]
fn options_of_the_tests_environment_do_not_reach_processes() {
    let inner = "options_of_the_tests_environment_do_not_reach_processes";
    if std::env::var_os("MONETA_MEMORY").is_some() {
        assert_eq!(process::printed(process::clean("sh").args(["-c", "echo ${MONETA_MEMORY-none}"])), "none\n");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let said = process::printed(command.args(["--exact", inner]).env("MONETA_MEMORY", "1"));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn files_for_tls_are_in_the_environment_and_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = TlsFiles::write(folder.path()).expect("files");
    let mut command = process::clean("sh");
    let script = "cat $MONETA_TLS_CERT $MONETA_TLS_CA; test -s $MONETA_TLS_KEY";
    let said = process::printed(command.args(["-c", script]).envs(files.environment()));
    assert_eq!(said.matches("BEGIN CERTIFICATE").count(), 2);
    files.connector().expect("the authority can be read");
}
