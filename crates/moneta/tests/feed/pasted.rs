//! A feed whose nodes are not there yet, or one too few. The failures to guard against: the lines of the README do not work as
//! they are pasted, and a feed into nothing says that it is not behind.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::*;
use common::ports;

/// The lines of the first block of shell commands of a section of the README.
fn pasted(section: &str) -> String {
    let text = std::fs::read_to_string("../../README.md").expect("it is there");
    let (_, rest) = text.split_once(&format!("\n## {section}\n")).expect("the section");
    let (_, rest) = rest.split_once("```sh\n").expect("a block");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_readmes_two_nodes_work_as_they_are_pasted() {
    let claimed = ports::claim(4).expect("free ports");
    let mut lines = pasted("Two nodes as copies of each other");
    // By way of letters: a free port may be one that is named.
    for (named, letter) in ["11211", "11280", "11311", "11380"].iter().zip(["@a@", "@b@", "@c@", "@d@"]) {
        assert!(lines.contains(named), "{lines}");
        lines = lines.replace(named, letter);
    }
    for (port, letter) in claimed.ports.iter().zip(["@a@", "@b@", "@c@", "@d@"]) {
        lines = lines.replace(letter, &port.to_string());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_moneta")).parent().expect("a folder").to_owned();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let printed = folder.path().join("printed");
    let out = File::create(&printed).expect("a file");
    let script = format!("trap 'kill $(jobs -p)' EXIT\n{lines}");
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).env("PATH", path).current_dir(folder.path()).stdin(Stdio::null());
    command.stdout(out.try_clone().expect("another handle")).stderr(out).process_group(0);
    drop(claimed);
    let mut shell = command.spawn().expect("there is bash");
    let begun = Instant::now();
    let ended = loop {
        match shell.try_wait().expect("it is our child") {
            Some(status) => break Some(status),
            None if begun.elapsed() > PATIENCE => break None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    if ended.is_none() {
        let group = nix::unistd::Pid::from_raw(-i32::try_from(shell.id()).expect("the kernel's numbers are small"));
        let _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
        let _ = shell.wait();
    }
    let mut text = String::new();
    File::open(&printed).and_then(|mut file| file.read_to_string(&mut text)).expect("it is there");
    assert!(ended.is_some(), "it does not end: {text}");
    assert!(text.contains("STORED") && text.contains("\nhello"), "{text}");
}

/// Runs a feed until it has said all of these words, in this order.
fn says(command: &mut Command, meanwhile: impl Fn(usize), words: &[&str]) -> Process {
    let running = Process::start(command);
    for (number, word) in words.iter().enumerate() {
        running.until_it_says(word);
        meanwhile(number);
    }
    running
}

#[test]
fn a_feed_waits_for_both_nodes_and_says_when_it_follows() {
    let claimed = ports::claim(3).expect("free ports");
    let [port, admin, other] = [0, 1, 2].map(|number| claimed.ports[number].to_string());
    drop(claimed);
    let (source, into) = (format!("127.0.0.1:{admin}"), format!("127.0.0.1:{other}"));
    let nodes = std::cell::RefCell::new(Vec::new());
    let start = |port: &str, admin: &str, writer: &str| {
        let arguments = ["serve", "-p", port, "--admin", admin, "--cluster", "--threads", "1", "--writer-id", writer];
        nodes.borrow_mut().push(Node::run(&mut moneta(&arguments)));
    };
    let steps = |number: usize| match number {
        0 => start(&other, "off", "2"),
        1 => {
            start(&port, &source, "1");
            // Before it is followed.
            nodes.borrow()[1].exchange("set early 0 0 1\r\nx\r\n");
        }
        _ => {}
    };
    let mut command = moneta(&["feed", &source, "--into", &into]);
    let words = [&*format!("{into} does not answer"), &*format!("{source} does not answer"), "moneta feed: follows"];
    let _running = says(&mut command, steps, &words);
    let nodes = nodes.borrow();
    nodes[0].wait_for(|| nodes[0].exchange("get early\r\n").contains("VALUE"), "what was set early does not arrive");
}

#[test]
fn a_feed_that_cannot_deliver_does_not_say_that_it_is_not_behind() {
    let (one, one_admin) = node("1", &[]);
    let (mut other, _) = node("2", &[]);
    let into = other.address().to_string();
    let mut command = moneta(&["feed", &one_admin, "--into", &into]);
    let stop = std::cell::RefCell::new(Some(&mut other));
    let kill = |number: usize| {
        if number == 0 {
            let other = stop.borrow_mut().take().expect("once");
            other.signal(nix::sys::signal::Signal::SIGKILL);
            other.wait();
        }
    };
    let _running = says(&mut command, kill, &["moneta feed: follows", &format!("{into} does not answer")]);
    drop(one);
}

#[test]
fn a_feed_into_its_own_source_is_refused() {
    let (node, admin) = node("1", &[]);
    let told = refused(&mut moneta(&["feed", &admin, "--into", &node.address().to_string()]), 1);
    assert!(told.contains("itself"), "{told}");
}

#[test]
fn what_clients_and_peers_name_is_escaped() {
    let (node, admin) = node("1", &[]);
    // ESC [ 2 J clears a screen.
    assert_eq!(node.exchange("ms G1sySg== 1 b\r\nx\r\n"), "HD\r\n");
    let told = printed(&mut moneta(&["feed", &admin, "--from", "1h"]));
    assert!(told.contains("set \\u{1b}[2J version="), "{told}");
    node.exchange("changes name \u{1b}[2J\r\n");
    let listed = printed(&mut moneta(&["feed", "list", &admin]));
    assert!(listed.contains("\\u{1b}[2J") && !listed.contains('\u{1b}'), "{listed}");
}

/// The largest value that a reader takes is said, and what is larger is refused before it is held.
#[test]
fn a_value_that_is_larger_than_a_reader_takes_is_refused() {
    let (node, admin) = node("1", &[]);
    node.exchange(&format!("set large 0 0 20000\r\n{}\r\n", "x".repeat(20_000)));
    let ask = |most: &str| {
        let mut command = moneta(&["feed", &admin, "--from", "1h", "--values", "--value-max", most]);
        common::output(&mut command)
    };
    assert!(ask("20k").status.success());
    let refused = ask("10k");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--value-max"), "{refused:?}");
}
