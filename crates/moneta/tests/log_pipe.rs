//! Guards a node whose log goes to a pipe that is not read, and one that would write the same line for ever.

mod common;

use std::io::{Read, Write};
use std::process::Stdio;

use common::{Node, Process, connect, file, moneta};

/// Far more lines than a pipe of 64 KiB and the queue of the log hold.
const CONNECTIONS: usize = 30_000;

#[test]
fn a_log_that_is_not_read_holds_up_neither_clients_nor_the_end() {
    let arguments = ["serve", "-p", "0", "--admin", "127.0.0.1:0", "-vv", "-t", "1"];
    let mut command = moneta(&arguments);
    let (mut process, pipes) = Process::start_raw(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    // Held open, and never read.
    let _log = pipes.stderr;
    let mut screen = String::new();
    let mut stdout = pipes.stdout.expect("stdout is piped");
    while !screen.contains("\nstop ") {
        let mut bytes = [0; 1024];
        let read = stdout.read(&mut bytes).expect("the screen comes");
        assert!(read > 0, "{screen}");
        screen.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    let line = |begin: &str| screen.lines().find_map(|line| line.strip_prefix(begin)).expect(begin).trim().to_owned();
    let address = line("listening on ");
    let admin = line("admin on     http://").split(' ').next().unwrap_or_default().to_owned();
    // Each connection is a few lines of the log. Every request is answered, whatever becomes of them.
    for _ in 0..CONNECTIONS {
        let mut client = connect(address.as_str());
        client.write_all(b"get a\r\nquit\r\n").expect("the node reads");
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).expect("the node answers");
        assert_eq!(reply, b"END\r\n");
    }
    let dropped = metric(&admin, "moneta_log_lines_left_out_total{reason=\"queue\"}");
    assert!(dropped > 0.0, "the test must write more lines than are held");
    process.end();
}

#[test]
fn log_ins_that_fail_do_not_fill_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = file(folder.path(), "users", "ann:secret\n");
    let node = Node::start(&["-Y", &users, "--login-attempts", "1000000"]);
    let attempts = 2_000;
    let replies = node.exchange(&"set x 0 0 10\r\nann secrex\r\n".repeat(attempts));
    assert_eq!(replies.lines().count(), attempts);
    node.wait_for_log("lines left out");
    let written = node.log().lines().filter(|line| line.contains("log-in failed")).count();
    let left_out = metric(&admin(&node), "moneta_log_lines_left_out_total{reason=\"repeated\"}");
    assert!(written < attempts / 2, "{written} lines");
    assert_eq!(written + left_out as usize, attempts);
}

#[test]
fn a_verbosity_that_a_client_sets_does_not_fill_the_log() {
    let node = Node::start(&[]);
    // Asked for again and again, which renews nothing.
    let clients = 4_000;
    for _ in 0..clients {
        assert_eq!(node.exchange("verbosity 2\r\n"), "OK\r\n");
    }
    node.wait_for_log("lines left out");
    let written = node.log().lines().filter(|line| line.contains("DEBUG") || line.contains("TRACE")).count();
    assert!((100..2 * clients - 1_000).contains(&written), "{written} lines");
}

fn admin(node: &Node) -> String {
    let line = node.screen.iter().find_map(|line| line.strip_prefix("admin on     http://")).expect("it has one");
    line.split(' ').next().unwrap_or_default().to_owned()
}

fn metric(admin: &str, name: &str) -> f64 {
    let mut stream = connect(admin);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    let value = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {page}"));
    value.trim().parse().expect("a number")
}
