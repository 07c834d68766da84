//! Several apps behind one proxy: which app a key or a listener leads to, what the nodes get, and what is refused.

mod common;

use std::io::{Read, Write};

use common::{Node, connect, file, moneta, output, printed, refused};

/// A node of one app.
fn node(writer: usize) -> Node {
    let arguments = ["--cluster", "--writer-id", &writer.to_string(), "--threads", "1", "-m", "64"];
    Node::run(moneta(&["serve", "-p", "0", "--admin", "off"]).args(arguments))
}

fn topology(folder: &tempfile::TempDir, name: &str, node: &Node) -> String {
    let text = format!("epoch = 1\n[[replica]]\nzone = \"a\"\nnodes = [\"0={}\"]\n", node.address());
    file(folder.path(), name, &text)
}

/// Sends commands on one connection, and quits.
fn ask(address: std::net::SocketAddr, commands: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(format!("{commands}\r\nquit\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn page(node: &Node, path: &str) -> String {
    let mut stream = connect(admin_of(node));
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

fn admin_of(node: &Node) -> String {
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned()
}

struct Proxied {
    nodes: [Node; 3],
    proxy: Node,
    /// Where the app `direct` is reached.
    direct: String,
    _folder: tempfile::TempDir,
}

/// Three apps: one by a prefix that stays, one by a prefix that goes or by a listener, one for the rest.
fn proxied() -> Proxied {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = [1, 2, 3].map(node);
    let [kept, direct, rest] = ["kept", "direct", "rest"].map(|name| format!("{name}.toml"));
    let socket = folder.path().join("direct.sock").display().to_string();
    let config = format!(
        "[[app]]\nname = \"kept\"\nprefix = \"kept:\"\ntopology = \"{}\"\nack = \"all\"\ndisable_flush_all = true\n\
         [[app]]\nname = \"direct\"\nprefix = \"kept:not:\"\nstrip_prefix = true\ntopology = \"{}\"\n\
         [[app]]\nname = \"rest\"\nprefix = \"\"\ntopology = \"{}\"\n\
         [[listener]]\naddress = \"{socket}\"\napp = \"direct\"\n",
        topology(&folder, &kept, &nodes[0]),
        topology(&folder, &direct, &nodes[1]),
        topology(&folder, &rest, &nodes[2]),
    );
    let config = file(folder.path(), "proxy.toml", &config);
    let arguments = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--threads", "1", "--config", &config];
    let proxy = Node::run(&mut moneta(&arguments));
    Proxied { nodes, proxy, direct: socket, _folder: folder }
}

fn ask_unix(path: &str, commands: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    stream.write_all(format!("{commands}\r\nquit\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_key_or_a_listener_leads_to_an_app() {
    let Proxied { nodes: [kept, direct, rest], proxy, direct: socket, _folder } = proxied();
    let address = proxy.address();
    let stored = "STORED\r\n";
    assert_eq!(ask(address, "set kept:k 0 0 1\r\n1"), stored);
    assert_eq!(ask(address, "set kept:not:k 0 0 1\r\n2"), stored);
    assert_eq!(ask(address, "set k3 0 0 1\r\n3"), stored);
    assert_eq!(ask_unix(&socket, "set kept:k 0 0 1\r\n4"), stored);
    // One multi-get over all apps, in the order asked; keys are answered as they were sent.
    let all = "VALUE k3 0 1\r\n3\r\nVALUE kept:not:k 0 1\r\n2\r\nVALUE kept:k 0 1\r\n1\r\nEND\r\n";
    assert_eq!(ask(address, "get k3 kept:not:k kept:none kept:k"), all);
    // What the nodes hold: the longest prefix won, and was stripped where the app says so, not behind its listener.
    assert_eq!(ask(kept.address(), "get kept:k k"), "VALUE kept:k 0 1\r\n1\r\nEND\r\n");
    assert_eq!(ask(direct.address(), "get k kept:k"), "VALUE k 0 1\r\n2\r\nVALUE kept:k 0 1\r\n4\r\nEND\r\n");
    assert_eq!(ask(rest.address(), "get k3 k"), "VALUE k3 0 1\r\n3\r\nEND\r\n");
    assert_eq!(ask_unix(&socket, "get k kept:not:k"), "VALUE k 0 1\r\n2\r\nEND\r\n");
    // A prefix that would be stripped to nothing is no key of that app, nor of another.
    assert_eq!(ask(address, "set kept:not: 0 0 1\r\nx"), "SERVER_ERROR no app has such keys\r\n");
    // A text get has no place for an error among values: such a key is a miss.
    assert_eq!(ask(address, "get kept:not: k3"), "VALUE k3 0 1\r\n3\r\nEND\r\n");
    // Flushes: of the app behind a listener alone; of all where each may be flushed.
    assert_eq!(ask_unix(&socket, "flush_all"), "OK\r\n");
    assert_eq!(ask(address, "get k3 kept:not:k"), "VALUE k3 0 1\r\n3\r\nEND\r\n");
    assert_eq!(ask(address, "flush_all"), "SERVER_ERROR the app kept is not flushed through this proxy\r\n");
    assert_eq!(ask(address, "get k3"), "VALUE k3 0 1\r\n3\r\nEND\r\n");
    let metrics = page(&proxy, "/metrics");
    for line in [
        "moneta_apps_unrouted_total 2",
        "moneta_cluster_epoch{app=\"kept\"} 1",
        "moneta_cluster_epoch{app=\"rest\"} 1",
        // The first request of a worker is timed.
        "moneta_cluster_request_duration_seconds_count{app=\"kept\",command=\"set\"} 61",
        "moneta_cluster_request_duration_seconds_count{app=\"rest\",command=\"set\"} 0",
        &format!("moneta_remote_up{{server=\"{}\",app=\"direct\"}} 1", direct.address()),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    proxy.wait_for_log("app=\"kept\"");
}

/// The longest key counts with its prefix, also where the nodes get it without.
#[test]
fn a_key_of_250_bytes_with_a_prefix() {
    let Proxied { nodes: [kept, direct, _rest], proxy, direct: socket, _folder } = proxied();
    let address = proxy.address();
    for (prefix, node, stripped) in [("kept:", &kept, false), ("kept:not:", &direct, true)] {
        let rest = "k".repeat(250 - prefix.len());
        let key = format!("{prefix}{rest}");
        assert_eq!(ask(address, &format!("set {key} 0 0 1\r\n1")), "STORED\r\n");
        assert_eq!(ask(address, &format!("incr {key} 1")), "2\r\n");
        assert_eq!(ask(address, &format!("get {key}")), format!("VALUE {key} 0 1\r\n2\r\nEND\r\n"));
        let there = if stripped { rest } else { key.clone() };
        assert_eq!(ask(node.address(), &format!("get {there}")), format!("VALUE {there} 0 1\r\n2\r\nEND\r\n"));
        for refused in [format!("get {key}k"), format!("mg {key}k v"), format!("delete {key}k")] {
            assert!(ask(address, &refused).starts_with("CLIENT_ERROR"), "{refused}");
        }
    }
    // Behind an app's listener nothing is a prefix.
    let key = "k".repeat(250);
    assert_eq!(ask_unix(&socket, &format!("set {key} 0 0 1\r\n3")), "STORED\r\n");
    assert_eq!(ask(direct.address(), &format!("get {key}")), format!("VALUE {key} 0 1\r\n3\r\nEND\r\n"));
}

#[test]
fn a_proxy_tells_where_a_key_goes_and_how_its_nodes_are() {
    let Proxied { nodes, proxy, direct: socket, _folder } = proxied();
    let told = ask(proxy.address(), "stats route kept:not:some");
    let lines =
        ["app direct", "key some", "copies 1", "0:zone a", "0:replica a", "0:slot 0", "0:reads yes", "0:state up"];
    for line in lines.map(|line| format!("STAT {line}\r\n")) {
        assert!(told.contains(&line), "{line} in {told}");
    }
    assert!(told.contains(&format!("STAT 0:node {}\r\n", nodes[1].address())) && told.ends_with("END\r\n"), "{told}");
    assert!(ask_unix(&socket, "stats route kept:x").starts_with("STAT app direct\r\nSTAT key kept:x\r\n"));
    assert_eq!(ask(proxy.address(), "stats route kept:not:"), "STAT app none\r\nEND\r\n");
    assert_eq!(ask(proxy.address(), "stats route"), "CLIENT_ERROR usage: stats route <key>\r\n");
    assert_eq!(ask(nodes[0].address(), "stats route k"), "ERROR\r\n", "a node keeps its keys");

    let admin = admin_of(&proxy);
    let screen = printed(&mut moneta(&["proxy", "status", &admin]));
    assert!(screen.contains("app kept: keys kept:*, topology of epoch 1\n"), "{screen}");
    assert!(screen.contains("app rest: all other keys"), "{screen}");
    let row = screen.lines().find(|line| line.contains(&nodes[2].address().to_string())).expect("the node is there");
    assert!(row.starts_with("a ") && row.ends_with("  up"), "{row}");
    let json = printed(&mut moneta(&["proxy", "status", "--json", &admin]));
    assert!(json.contains("\"ejected_since\":null") && json.contains("\"in_flight\":"), "{json}");

    // A node that is gone is ejected after a few failures; the command says so by its exit status, too.
    let [kept, ..] = nodes;
    drop(kept);
    let gone = || {
        assert!(ask(proxy.address(), "mg kept:k v").starts_with("SERVER_ERROR"));
        page(&proxy, "/proxy").contains("\"state\":\"ejected\"")
    };
    proxy.wait_for(gone, "the node is ejected");
    let status = output(&mut moneta(&["proxy", "status", &admin]));
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&status.stdout).contains("ejected for "));
    let route = ask(proxy.address(), "stats route kept:k");
    assert!(route.contains("STAT 0:state ejected\r\n"), "{route}");
    assert!(page(&proxy, "/readyz").contains("\"ready\":true"), "the other apps are served");
}

fn config(folder: &tempfile::TempDir, text: &str) -> String {
    file(folder.path(), "apps.toml", text)
}

#[test]
fn apps_that_cannot_be_had_together_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = "[[app]]\nname = \"a\"\nprefix = \"x:\"\ntopology = \"t.toml\"\n";
    let app = |lines: &str| format!("{one}[[app]]\nname = \"b\"\n{lines}\n");
    for (text, why) in [
        (app("prefix = \"x:\"\ntopology = \"t\""), "apps.toml:5) is refused: app `a` has the prefix `x:` already"),
        (format!("{one}{one}"), "another app has this name"),
        (app("topology = \"t\""), "nothing leads to it"),
        (app("prefix = \"y:\""), "it needs a topology"),
        (app("prefix = \"\"\nstrip_prefix = true\ntopology = \"t\""), "strip_prefix needs a prefix"),
        (
            app("prefix = \"y:\"\ntopology = \"t\"\nack = \"some\""),
            "apps.toml:9) is refused: it must be one of none, one",
        ),
        (app("prefix = \"y:\"\ntopology = \"t\"\nacks = \"one\""), "did you mean `ack`?"),
        (app("prefix = \"a b\"\ntopology = \"t\""), "bytes that a key may have"),
        (format!("[[app]]\nprefix = \"x:\"\n{}", ""), "it needs a name"),
        (format!("app = \"c\"\n{one}"), "this is not TOML"),
        (format!("{one}[[listener]]\naddress = \"/run/x.sock\"\napp = \"c\"\n"), "it must be the name of an [[app]]"),
        (
            format!("disable_flush_all = true\n{one}disable_flush_all = false\n"),
            "disable_flush_all cannot be false for an app",
        ),
        (
            "[[app]]\nname = \"a\"\ntopology = \"t\"\n[[listener]]\naddress = \"/run/x.sock\"\napp = \"a\"\n".into(),
            "no app has a prefix, so nothing would answer there",
        ),
    ] {
        let config = config(&folder, &text);
        let said = refused(&mut moneta(&["proxy", "--config", &config]), 2);
        assert!(said.contains(why), "{said} should say {why}");
    }
    let one = config(&folder, one);
    assert!(refused(&mut moneta(&["serve", "--config", &one]), 2).contains("moneta proxy"));
    assert!(
        refused(&mut moneta(&["proxy", "--config", &one, "--app", "c"]), 2).contains("each app has its name there")
    );
}

#[test]
fn apps_are_drawn_and_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(
        &folder,
        "zone = \"a\"\ntopology = \"t.toml\"\n[[app]]\nname = \"one\"\nprefix = \"x:\"\nstrip_prefix = true\nack = \"all\"\n\
         [[app]]\nname = \"two\"\n[[listener]]\naddress = \"/run/two.sock\"\napp = \"two\"\n",
    );
    let drawn = printed(&mut moneta(&["config", "--explain", "--config", &config]));
    for line in [
        "   |-- one\n",
        "keys that begin with `x:`: the nodes get them without it\n",
        "cluster t.toml: zone a first, reads go on: miss, writes wait for: all",
        "   `-- two\n",
        "all that comes through /run/two.sock\n",
        "other keys are refused\n",
    ] {
        assert!(drawn.contains(line), "{line} in\n{drawn}");
    }
    let listed = printed(&mut moneta(&["config", "--config", &config]));
    assert!(listed.contains("one (keys x:*, stripped, ack all)"), "{listed}");
    assert!(listed.contains("two (its listeners)") && listed.contains("/run/two.sock (online, app two)"), "{listed}");
}

/// A flush takes all that a node has. Each app is of its own proxy here, and these know of each other by the nodes alone.
#[test]
fn a_flush_of_one_app_takes_nothing_of_another_ones_on_the_same_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "-p", "0", "--admin", "off", "--cluster", "--threads", "1", "-m", "64"];
    let nodes = [(); 2].map(|()| Node::run(moneta(&arguments).args(["--admin-commands", "none"])));
    let replica =
        |(node, zone): (&Node, &str)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", node.address());
    let replicas: String = nodes.iter().zip(["a", "b"]).map(replica).collect();
    let topology = file(folder.path(), "topology.toml", &format!("epoch = 1\n{replicas}"));
    let proxy = |name: &str| {
        let text =
            format!("[[app]]\nname = \"{name}\"\nprefix = \"{name}:\"\ntopology = \"{topology}\"\nack = \"all\"\n");
        let config = file(folder.path(), &format!("{name}.toml"), &text);
        Node::run(&mut moneta(&["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--config", &config]))
    };
    let set =
        |proxy: &Node, key: &str| assert_eq!(ask(proxy.address(), &format!("set {key} 0 0 1\r\nx")), "STORED\r\n");
    let flush = |proxy: &Node| ask(proxy.address(), "flush_all");
    let is_refused =
        |proxy: &Node, other: &str| flush(proxy).contains(&format!(" have {other}, too, an app of another"));
    let held =
        |key: &str| nodes.iter().filter(|node| ask(node.address(), &format!("get {key}")).contains("VALUE")).count();

    let one = proxy("one");
    set(&one, "one:k");
    assert_eq!((&*flush(&one), held("one:k")), ("OK\r\n", 0), "it is alone");
    set(&one, "one:k");
    // Another app comes later.
    let two = proxy("two");
    assert!(is_refused(&two, "one"), "as soon as it serves");
    one.wait_for(|| is_refused(&one, "two"), "it has not heard of it");
    set(&one, "one:k");
    set(&two, "two:k");
    // Each proxy that starts knows of the other app, whose proxies may be gone.
    drop(two);
    let another = proxy("one");
    assert!(is_refused(&another, "two") && is_refused(&one, "two"));
    // One of a proxy of its own, without a table.
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--app", "three", "--topology", &topology];
    let refused = flush(&Node::run(&mut moneta(&arguments)));
    assert!(refused.contains(" have one, too, an app of another") || refused.contains(" have two, too, "), "{refused}");
    for node in &nodes {
        assert_eq!(ask(node.address(), "flush_all"), "CLIENT_ERROR flush_all not allowed\r\n");
    }
    assert_eq!([held("one:k"), held("two:k")], [2, 2]);
}
