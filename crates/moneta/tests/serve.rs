//! Guards the life of a node as a process: what it says when it starts, where it really listens, how it ends, and that it
//! refuses in a sentence what it cannot have.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use common::{Node, Process, connect, connect_unix, exchange, file, moneta, output, printed, refused};
use nix::sys::signal::Signal;

const HELLO: &str = "set greeting 0 60 5\r\nhello\r\nget greeting\r\n";
const HELLO_REPLY: &str = "STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n";

fn screen_line<'a>(node: &'a Node, start: &str) -> &'a str {
    node.screen.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}: {:?}", node.screen))
}

#[test]
fn a_node_serves_where_its_first_screen_says() {
    let node = Node::start(&[]);
    assert_eq!(node.listening().len(), 1);
    assert_ne!(node.address().port(), 0, "the port the kernel picked is shown");
    assert_eq!(node.exchange(HELLO), HELLO_REPLY);
}

#[test]
fn the_first_screen_fits_one_and_says_what_there_is() {
    let node = Node::start(&["-m", "128", "-I", "2m", "-M", "-t", "3", "-c", "99"]);
    assert!(node.screen.len() <= 24, "{:?}", node.screen);
    assert!(screen_line(&node, "moneta ").contains(env!("CARGO_PKG_VERSION")));
    let memory = screen_line(&node, "memory ");
    assert!(memory.contains("128MiB") && memory.contains("2MiB") && memory.contains("refuses"), "{memory}");
    let threads = screen_line(&node, "threads ");
    assert!(threads.contains('3') && threads.contains("99 connections"), "{threads}");
}

#[test]
fn the_line_to_try_works_in_bash() {
    let node = Node::start(&[]);
    let line =
        screen_line(&node, "try it").trim_start_matches("try it").trim_end_matches("(in bash)").trim().to_owned();
    let tried = output(std::process::Command::new("bash").args(["-c", &line]));
    assert_eq!(String::from_utf8_lossy(&tried.stdout), HELLO_REPLY, "{line}");
}

#[test]
fn the_first_screen_says_how_to_log_in_and_shows_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let users = file(folder.path(), "users", "ann:secret\n");
    let node = Node::start(&["-Y", &users]);
    assert!(screen_line(&node, "log in ").contains(&users));
    assert!(!node.screen.iter().any(|line| line.starts_with("try it") || line.contains("secret")), "{:?}", node.screen);
}

#[test]
fn sasl_is_offered_on_the_binary_protocol_where_it_is_enabled() {
    /// Opcode 0x20, "which mechanisms are there", with nothing else.
    const LIST_MECHANISMS: [u8; 24] = [0x80, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let folder = tempfile::tempdir().unwrap();
    let users = file(folder.path(), "users", "ann:secret\n");
    let node = Node::start(&["-S", "-Y", &users]);
    let mut stream = node.connect();
    stream.write_all(&LIST_MECHANISMS).unwrap();
    let mut reply = [0; 29];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[24..], b"PLAIN");
    assert_eq!(node.exchange("get k\r\n").find("END"), None, "text clients have to log in, too");
}

#[test]
fn a_misspelt_environment_variable_is_warned_of() {
    let node = Node::run(moneta(&["serve", "-p", "0", "--admin", "off"]).env("MONETA_MEMROY", "128"));
    node.wait_for_log("MONETA_MEMROY");
    node.wait_for_log("did you mean MONETA_MEMORY?");
}

#[test]
fn bench_puts_a_load_on_a_node() {
    let node = Node::start(&[]);
    let address = node.address().to_string();
    printed(&mut moneta(&["bench", "--server", &address, "-n", "100", "-c", "2", "--warmup", "0", "--quiet"]));
    let stats = node.exchange("stats\r\n");
    let gets = stats.lines().find_map(|line| line.strip_prefix("STAT cmd_get ")).expect("gets are counted");
    assert!(gets.parse::<u32>().unwrap() >= 50, "{gets}");
}

#[test]
fn the_options_reach_the_node() {
    let node = Node::start(&["-m", "100", "-c", "77", "-t", "2", "-I", "2m", "-M", "-v", "-o", "idle_timeout=1000"]);
    let settings = node.exchange("stats settings\r\n");
    for setting in ["maxconns 77", "num_threads 2", "item_size_max 2097152", "evictions off"] {
        assert!(settings.contains(&format!("STAT {setting}\r\n")), "{setting}: {settings}");
    }
    assert!(settings.contains("STAT verbosity 1\r\n") && settings.contains("STAT idle_timeout 1000\r\n"), "{settings}");
}

/// What `/proc` says of the node's worker; `None`: it has not given itself its name yet.
fn worker(node: &Node) -> Option<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("it runs");
    let mut threads =
        tasks.map(|task| fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default());
    threads.find(|text| text.starts_with("Name:\tworker-0"))
}

/// A field of the worker in `/proc`.
fn of_worker(node: &Node, field: &str) -> String {
    node.wait_for(|| worker(node).is_some(), "a worker");
    let worker = worker(node).expect("it is there");
    worker
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .expect("the field")
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

#[test]
fn a_worker_looks_for_requests_before_it_sleeps_if_it_is_told_to() {
    let node = Node::start(&["-t", "1", "--busy-poll", "10000"]);
    let mut stream = node.connect();
    let sleeps = || of_worker(&node, "voluntary_ctxt_switches").parse::<u32>().expect("a number");
    // On a busy machine the client may be late for some.
    let mut asks = || {
        let before = sleeps();
        for _ in 0..200 {
            stream.write_all(b"mn\r\n").unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
        }
        sleeps() - before
    };
    assert!((0..20).any(|_| asks() < 100), "it sleeps between requests");
    node.wait_for(|| of_worker(&node, "State").starts_with('S'), "it never sleeps");
}

#[test]
fn a_value_over_the_limit_is_refused_and_one_at_it_is_not() {
    let node = Node::start(&["-I", "2k"]);
    let set = |size: usize| node.exchange(&format!("set k 0 0 {size}\r\n{}\r\n", "x".repeat(size)));
    assert_eq!(set(1000), "STORED\r\n");
    assert_eq!(set(2049), "SERVER_ERROR object too large for cache\r\n");
}

#[test]
fn commands_that_are_switched_off_are_refused() {
    let open = Node::start(&["-A"]);
    let closed = Node::start(&["-FXW"]);
    for command in ["flush_all", "lru_crawler metadump all", "watch fetchers", "shutdown"] {
        let reply = closed.exchange(&format!("{command}\r\n"));
        assert!(reply.contains("ERROR"), "{command}: {reply}");
    }
    assert_eq!(open.exchange("flush_all\r\n"), "OK\r\n");
}

#[test]
fn the_shutdown_command_ends_a_node_that_allows_it() {
    let mut node = Node::start(&["-A"]);
    let mut stream = node.connect();
    stream.write_all(b"shutdown\r\n").unwrap();
    assert!(node.wait().success());
}

#[test]
fn a_signal_to_end_drains_and_leaves_status_0() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut node = Node::start(&[]);
        let mut idle = node.connect();
        idle.write_all(HELLO.as_bytes()).unwrap();
        let mut reply = vec![0; HELLO_REPLY.len()];
        idle.read_exact(&mut reply).unwrap();
        node.signal(signal);
        assert!(node.wait().success(), "{}", node.log());
        assert_eq!(idle.read(&mut reply).unwrap_or(0), 0, "the connection is closed");
    }
}

#[test]
fn a_port_that_is_taken_is_refused_by_address() {
    let node = Node::start(&[]);
    let port = node.address().port().to_string();
    let message = refused(&mut moneta(&["serve", "-p", &port, "--admin", "off"]), 1);
    assert!(message.contains(&format!("127.0.0.1:{port}")) && message.contains("in use"), "{message}");
    assert_eq!(node.exchange(HELLO), HELLO_REPLY, "the first one still serves");
}

#[test]
fn an_admin_port_that_is_taken_is_refused_by_address() {
    let node = Node::start(&[]);
    let address = node.address().to_string();
    let message = refused(&mut moneta(&["serve", "-p", "0", "--admin", &address]), 1);
    assert!(message.contains(&address) && message.contains("in use"), "{message}");
}

#[test]
fn several_addresses_and_ports_are_all_served() {
    let node = Node::start(&["-l", "127.0.0.1,127.0.0.2:0", "-l", "127.0.0.3"]);
    let addresses = node.listening();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    for address in addresses {
        let stream = connect(&address);
        assert_eq!(exchange(stream, HELLO), HELLO_REPLY, "{address}");
    }
}

#[test]
fn a_unix_socket_takes_the_place_of_tcp_and_has_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut node = Node::start(&["-s", path.to_str().unwrap(), "-a", "0640"]);
    assert_eq!(node.listening(), [format!("unix:{}", path.display())]);
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!(exchange(connect_unix(&path).unwrap(), HELLO), HELLO_REPLY);
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    assert!(!path.exists(), "a clean end removes the socket");
}

#[test]
fn a_unix_socket_and_tcp_are_both_served_when_both_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let node = Node::start(&["-s", path.to_str().unwrap(), "-l", "127.0.0.1"]);
    assert_eq!(node.exchange(HELLO), HELLO_REPLY);
    assert_eq!(exchange(connect_unix(&path).unwrap(), "version\r\n").get(..8), Some("VERSION "));
}

#[test]
fn a_unix_socket_that_cannot_be_made_is_refused_by_path() {
    for path in ["/nonexistent/folder/socket", "/proc/socket"] {
        let message = refused(&mut moneta(&["serve", "-s", path, "--admin", "off"]), 1);
        assert!(message.contains("cannot listen on") && message.contains(path), "{message}");
    }
}

#[test]
fn a_unix_socket_in_use_is_refused_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path_text = path.to_str().unwrap();
    let mut first = Node::start(&["-s", path_text]);
    let message = refused(&mut moneta(&["serve", "-s", path_text, "--admin", "off"]), 1);
    assert!(message.contains(path_text) && message.contains("another process"), "{message}");
    first.signal(Signal::SIGKILL);
    first.wait();
    assert!(path.exists(), "a killed node leaves its socket");
    let second = Node::start(&["-s", path_text]);
    assert_eq!(second.listening().len(), 1);
}

#[test]
fn what_is_no_socket_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "precious", "data");
    let message = refused(&mut moneta(&["serve", "-s", &path, "--admin", "off"]), 1);
    assert!(message.contains(&path), "{message}");
    assert_eq!(fs::read_to_string(Path::new(&path)).unwrap(), "data");
}

#[test]
fn listeners_of_the_file_are_served_with_their_policy() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("batch");
    let content = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\npolicy = \"batch\"\n[[listener]]\naddress = \"{}\"\nunix_mask = \"600\"\n",
        socket.display()
    );
    let path = file(folder.path(), "moneta.toml", &content);
    let node = Node::start(&["--config", &path]);
    let listening = node.listening();
    assert_eq!(listening.len(), 3, "{listening:?}");
    let batch = listening[1].strip_suffix(" (batch)").expect("the policy is shown");
    assert_eq!(exchange(connect(batch), HELLO), HELLO_REPLY);
    assert_eq!(exchange(connect_unix(&socket).unwrap(), HELLO), HELLO_REPLY);
    assert_eq!(fs::symlink_metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_listener_of_the_file_has_its_own_limits() {
    let folder = tempfile::tempdir().unwrap();
    let content = "[[listener]]\naddress = \"127.0.0.1:0\"\nmax_connections = 1\n";
    let node = Node::start(&["--config", &file(folder.path(), "moneta.toml", content)]);
    let limited = node.listening()[1].clone();
    let mut only = connect(&limited);
    only.write_all(b"get none\r\n").unwrap();
    only.read_exact(&mut [0; 5]).unwrap();
    let mut refusal = String::new();
    connect(&limited).read_to_string(&mut refusal).unwrap();
    assert_eq!(refusal, "ERROR Too many open connections\r\n");
    assert_eq!(node.exchange(HELLO), HELLO_REPLY);
}

#[test]
fn a_batch_port_is_opened_on_every_host() {
    let node = Node::start(&["-l", "127.0.0.1", "-l", "127.0.0.1:0", "-l", "127.0.0.2", "--batch-port", "0"]);
    let listening = node.listening();
    let batch: Vec<&str> = listening.iter().filter_map(|address| address.strip_suffix(" (batch)")).collect();
    assert_eq!((listening.len(), batch.len()), (5, 2), "{listening:?}");
    assert!(batch[0].starts_with("127.0.0.1:") && batch[1].starts_with("127.0.0.2:"), "{batch:?}");
    for address in batch {
        assert_eq!(exchange(connect(address), HELLO), HELLO_REPLY);
    }
}

#[test]
fn a_node_whose_first_screen_is_not_read_serves() {
    // The reading end of standard output is closed at once, as by `moneta serve | true`.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut node = moneta(&["serve", "-s", socket.to_str().unwrap(), "--admin", "off"]);
    let node = node.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let (node, pipes) = Process::start_raw(node);
    drop(pipes);
    node.until("it listens", || connect_unix(&socket).is_ok());
    assert_eq!(exchange(connect_unix(&socket).unwrap(), HELLO), HELLO_REPLY);
}

#[test]
fn admin_is_served_where_the_first_screen_says_or_not_at_all() {
    let node = Node::start(&[]);
    let line = screen_line(&node, "admin on");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
    let mut stream = connect(address);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let silent = Node::start(&["--admin", "off"]);
    assert!(screen_line(&silent, "admin ").ends_with("off"));
}

#[test]
fn a_client_that_takes_nothing_of_its_dump_is_closed_and_others_get_theirs() {
    /// More than sockets hold: some 300 bytes of the dump each.
    const KEYS: usize = 60_000;
    let node = Node::start(&["--dump-timeout", "1s"]);
    let stores: String = (0..KEYS).map(|key| format!("ms {key:0>250} 1 q\r\nv\r\n")).collect();
    assert_eq!(node.exchange(&(stores + "mn\r\n")), "MN\r\n");
    let mut stalled = node.connect();
    stalled.write_all(b"lru_crawler metadump all\r\n").unwrap();
    let mut first = [0; 4];
    stalled.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"OK\r\n");
    node.wait_for(|| !node.exchange("stats\r\n").contains("STAT idle_kicks 0\r\n"), "the client is not closed");
    assert_eq!(node.exchange("lru_crawler metadump all\r\n").matches("key=").count(), KEYS);
}
