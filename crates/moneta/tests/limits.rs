//! Guards limits of a second and of connections, by listener, client address and app, on a node and on a proxy: what is over them
//! is refused in words, counted, and costs others nothing.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;

use common::{Node, connect, file, moneta, printed, refused};

const OVER_ADDRESS: &str = "SERVER_ERROR over the limit of operations a second of this client address";
const OVER_APP: &str = "SERVER_ERROR over the limit of operations a second of this app";

/// Sends commands on one connection, quits, and takes all that comes.
fn ask(address: SocketAddr, commands: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(commands.as_bytes()).and_then(|()| stream.write_all(b"quit\r\n")).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn admin(node: &Node) -> String {
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    let admin = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
    admin.expect("an address").to_owned()
}

fn metric(node: &Node, name: &str) -> usize {
    let mut stream = connect(admin(node));
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    let value = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {page}"));
    value.trim().parse().expect("a number")
}

/// Addresses of all listeners, as the screen tells them.
fn listeners(node: &Node) -> Vec<SocketAddr> {
    let told = node.screen.iter().filter_map(|line| line.strip_prefix("listening on "));
    told.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn an_address_that_asks_too_much_is_told_so_and_stays_in_step() {
    let node = Node::start(&["--address-operations", "10"]);
    let answer = ask(node.address(), &"get a\r\n".repeat(500));
    let (hits, over) = (answer.matches("END\r\n").count(), answer.matches(OVER_ADDRESS).count());
    assert!(answer.starts_with(&"END\r\n".repeat(11)), "a second's worth at once: {answer}");
    assert_eq!(hits + over, 500, "one answer for each request");
    assert!(over > 300, "{over}");
    assert_eq!(metric(&node, "moneta_address_limits_refused_total{what=\"operations\"} "), over);
    // A value that is refused is no command, and what is quiet stays so. The end of a batch is always told.
    let refused = "set k 0 0 9\r\nflush_all\r\nset k 0 0 9 noreply\r\nflush_all\r\nms k 1 q\r\nx\r\nmn\r\n";
    let answer = ask(node.address(), &format!("{}{refused}", "get a\r\n".repeat(100)));
    let tail: Vec<&str> = answer.lines().rev().take(4).collect();
    assert_eq!(tail[0], "MN", "{answer}");
    assert!(tail[1..3].iter().all(|line| *line == OVER_ADDRESS), "one for the set, one for `ms`: {answer}");
}

#[test]
fn each_key_of_a_get_counts_and_a_reply_that_has_begun_ends() {
    let node = Node::start(&["--address-operations", "100"]);
    let keys: Vec<String> = (0..5_000).map(|number| format!("key:{number}")).collect();
    let line = format!("get {}\r\n", keys.join(" "));
    assert_eq!(ask(node.address(), &line), "END\r\n");
    // It owes 50 seconds now.
    assert!(ask(node.address(), "get a\r\n").starts_with(OVER_ADDRESS));
}

#[test]
fn bytes_and_connections_of_an_address_have_limits_too() {
    let node = Node::start(&["--address-bytes", "100k", "--address-connections", "3"]);
    let set = format!("set k 0 0 50000\r\n{}\r\n", "x".repeat(50_000));
    let answer = ask(node.address(), &set.repeat(40));
    let (stored, over) =
        (answer.matches("STORED").count(), answer.matches("SERVER_ERROR over the limit of bytes").count());
    assert!(stored >= 2 && over > 20 && stored + over == 40, "{stored} {over}");
    assert_eq!(metric(&node, "moneta_address_limits_refused_total{what=\"bytes\"} "), over);

    let mut open: Vec<_> = (0..3).map(|_| connect(node.address())).collect();
    for stream in &mut open {
        stream.write_all(b"mn\r\n").expect("it reads");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("it answers");
    }
    let mut more = connect(node.address());
    let mut answer = String::new();
    more.read_to_string(&mut answer).expect("it is told why");
    assert_eq!(answer, "ERROR Too many open connections from this address\r\n");
    assert!(metric(&node, "moneta_address_limits_refused_total{what=\"connections\"} ") >= 1);
}

#[test]
fn a_listener_has_limits_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "max_operations = 5\n[[listener]]\naddress = \"127.0.0.1:0\"\nmax_operations = 0\n";
    let node = Node::start(&["--config", &file(folder.path(), "node.toml", config)]);
    let [limited, free] = listeners(&node)[..] else { panic!("two listeners: {:?}", node.screen) };
    let gets = "get a\r\n".repeat(100);
    assert_eq!(ask(free, &gets), "END\r\n".repeat(100));
    let over =
        ask(limited, &gets).matches("SERVER_ERROR over the limit of operations a second of this listener").count();
    assert!(over > 50, "{over}");
    let name = format!("moneta_listener_limits_refused_total{{listener=\"tcp:{limited}\",what=\"operations\"}} ");
    assert_eq!(metric(&node, &name), over);
}

#[test]
fn an_app_that_does_too_much_costs_no_other_app() {
    let folder = tempfile::tempdir().expect("a folder");
    let node =
        Node::run(moneta(&["serve", "-p", "0", "--admin", "off"]).args(["--cluster", "--threads", "1", "-m", "64"]));
    let topology = format!("epoch = 1\n[[replica]]\nzone = \"a\"\nnodes = [\"0={}\"]\n", node.address());
    let topology = file(folder.path(), "topology.toml", &topology);
    let config = format!(
        "topology = \"{topology}\"\n\
         [[app]]\nname = \"greedy\"\nprefix = \"greedy:\"\napp_operations = 10\n\
         [[app]]\nname = \"large\"\nprefix = \"large:\"\napp_bytes = \"100k\"\n\
         [[app]]\nname = \"direct\"\napp_connections = 1\n\
         [[app]]\nname = \"rest\"\nprefix = \"\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\napp = \"direct\"\n",
    );
    let config = file(folder.path(), "proxy.toml", &config);
    let arguments = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--threads", "1", "--config", &config];
    let proxy = Node::run(&mut moneta(&arguments));
    let answer = ask(proxy.address(), &"get greedy:a\r\nget other:a\r\n".repeat(200));
    let over = answer.matches(OVER_APP).count();
    assert!(over > 100, "{over}");
    assert_eq!(answer.matches("END\r\n").count(), 400 - over);
    assert_eq!(metric(&proxy, "moneta_app_limits_refused_total{app=\"greedy\",what=\"operations\"} "), over);
    // A `get` of several apps' keys is refused whole.
    let several = format!("{}get other:a greedy:a\r\n", "get greedy:a\r\n".repeat(50));
    assert!(ask(proxy.address(), &several).ends_with(&format!("{OVER_APP}\r\n")));

    // What an app reads counts as much as what it writes.
    let set = format!("set large:k 0 0 50000\r\n{}\r\n", "x".repeat(50_000));
    assert_eq!(ask(proxy.address(), &set), "STORED\r\n");
    let mut over = 0;
    for _ in 0..40 {
        over += ask(proxy.address(), "get large:k\r\n").matches("SERVER_ERROR over the limit of bytes").count();
    }
    assert!(over > 0, "{over}");
    assert_eq!(metric(&proxy, "moneta_app_limits_refused_total{app=\"large\",what=\"bytes\"} "), over);
    assert_eq!(ask(proxy.address(), "get other:a\r\n"), "END\r\n");

    let direct = listeners(&proxy)[1];
    let mut only = connect(direct);
    only.write_all(b"mn\r\n").and_then(|()| only.read_exact(&mut [0; 4])).expect("it answers");
    let mut answer = String::new();
    connect(direct).read_to_string(&mut answer).expect("it is told why");
    assert_eq!(answer, "ERROR Too many open connections\r\n");
    assert_eq!(ask(proxy.address(), "get other:a\r\n"), "END\r\n");
}

#[test]
fn an_app_without_limits_gets_them_while_its_clients_are_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    let node =
        Node::run(moneta(&["serve", "-p", "0", "--admin", "off"]).args(["--cluster", "--threads", "1", "-m", "64"]));
    let topology = format!("epoch = 1\n[[replica]]\nzone = \"a\"\nnodes = [\"0={}\"]\n", node.address());
    let topology = file(folder.path(), "topology.toml", &topology);
    let arguments = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--threads", "1", "--topology", &topology];
    let proxy = Node::run(&mut moneta(&arguments));
    let set = |option: &str, value: &str| printed(&mut moneta(&["set-option", &admin(&proxy), option, value]));
    let mut open = connect(proxy.address());
    let mut over = |request: &str, over: &str| {
        let mut answers = Vec::new();
        open.write_all(format!("{}mn\r\n", request.repeat(200)).as_bytes()).expect("it reads");
        while !answers.ends_with(b"MN\r\n") {
            let mut piece = [0; 4096];
            let bytes = open.read(&mut piece).expect("it answers");
            assert!(bytes > 0, "it is closed");
            answers.extend_from_slice(&piece[..bytes]);
        }
        String::from_utf8_lossy(&answers).matches(over).count()
    };
    assert_eq!(over("get a\r\n", OVER_APP), 0);
    set("app_operations", "10");
    let refused = over("get a\r\n", OVER_APP);
    assert!(refused > 100, "{refused}");
    assert_eq!(metric(&proxy, "moneta_app_limits_refused_total{app=\"default\",what=\"operations\"} "), refused);
    set("app_operations", "0");
    assert_eq!(over("get a\r\n", OVER_APP), 0);
    set("app_bytes", "1k");
    let refused = over(&format!("set a 0 0 100\r\n{}\r\n", "x".repeat(100)), "SERVER_ERROR over the limit of bytes");
    assert!(refused > 100, "{refused}");
    set("app_bytes", "0");

    set("app_connections", "1");
    let mut answer = String::new();
    connect(proxy.address()).read_to_string(&mut answer).expect("it is told why");
    assert_eq!(answer, "ERROR Too many open connections\r\n");
    assert_eq!(over("get a\r\n", "SERVER_ERROR"), 0, "one that was open stays");
    set("app_connections", "2");
    assert_eq!(ask(proxy.address(), "mn\r\n"), "MN\r\n");
}

#[test]
fn connections_of_an_app_without_listeners_cannot_be_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "topology = \"t.toml\"\n[[app]]\nname = \"a\"\nprefix = \"\"\napp_connections = 1\n";
    let config = file(folder.path(), "proxy.toml", config);
    assert!(refused(&mut moneta(&["proxy", "--config", &config]), 2).contains("app_connections needs a [[listener]]"));
}
