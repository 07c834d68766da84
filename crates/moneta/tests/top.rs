//! Guards what a script reads of processes that run: `moneta top --once`, `moneta slowlog`, completions and manual pages.

mod common;

use std::fs;
use std::io::Write;

use common::{Node, file, moneta, output, printed};
use serde_json::Value;

fn admin(node: &Node) -> String {
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address").to_owned()
}

/// The host of this name in what `moneta top --once --json` prints.
fn host<'a>(page: &'a Value, name: &str) -> &'a Value {
    let hosts = page["hosts"].as_array().expect("a list");
    hosts.iter().find(|host| host["host"] == name).unwrap_or_else(|| panic!("no {name} in {page}"))
}

#[test]
fn a_proxy_is_shown_with_its_nodes_and_one_that_is_gone() {
    let node = Node::start(&["--cluster"]);
    let folder = tempfile::tempdir().unwrap();
    let topology = format!("epoch = 1\n[[replica]]\nname = \"a\"\nzone = \"a\"\nnodes = [\"{}\"]\n", node.address());
    let topology = file(folder.path(), "topology.toml", &topology);
    let arguments = ["proxy", "--topology", &topology, "--zone", "a", "-p", "0", "--admin", "127.0.0.1:0"];
    let proxy = Node::run(&mut moneta(&arguments));
    let (proxy_admin, gone) = (admin(&proxy), "127.0.0.1:1");
    let mut stream = proxy.connect();
    let traffic = std::thread::spawn(move || {
        // Until the test ends.
        while stream.write_all(b"set k 0 0 1\r\nx\r\nget k\r\n").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let mut answers = [0; 4096];
            if !matches!(std::io::Read::read(&mut stream, &mut answers), Ok(1..)) {
                return;
            }
        }
    });
    let json = printed(&mut moneta(&["top", "--once", "--json", "--interval", "1s", &proxy_admin, gone]));
    let page: Value = serde_json::from_str(&json).unwrap();
    let shown = host(&page, &proxy_admin);
    assert!(shown["operations"].as_f64() > Some(0.0) && shown["ready"] == true, "{shown}");
    assert!(shown["hot_keys"]["by_requests"].is_array(), "{shown}");
    let of_node = host(&page, &node.address().to_string());
    assert_eq!((&of_node["zone"], &of_node["state_by_proxy"]), (&"a".into(), &"up".into()), "{of_node}");
    assert!(of_node["by_command"]["get"].as_f64() > Some(0.0), "by memcached's stats: {of_node}");
    assert!(host(&page, gone)["failure"].as_str().is_some_and(|why| !why.is_empty()), "{page}");
    let table = printed(&mut moneta(&["top", "--once", "--interval", "200ms", &admin(&node)]));
    assert!(table.lines().count() == 2 && table.starts_with("NODE"), "{table}");
    drop((proxy, node));
    traffic.join().unwrap();
    let silent = output(&mut moneta(&["top", "--once", gone]));
    assert_eq!(silent.status.code(), Some(1), "{silent:?}");
}

#[test]
fn a_node_that_goes_away_while_it_is_looked_at_costs_its_own_line() {
    let (stays, goes) = (Node::start(&[]), Node::start(&[]));
    let (stays_admin, goes_admin) = (admin(&stays), admin(&goes));
    let mut top = moneta(&["top", "--once", "--json", "--interval", "3s", &stays_admin, &goes_admin]);
    let top = top.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // After the first of two looks, on any machine that is not stopped for three seconds; before it, the line is the same.
    std::thread::sleep(std::time::Duration::from_millis(500));
    goes.signal(common::Signal::SIGKILL);
    let ended = top.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let page: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(host(&page, &goes_admin)["failure"].as_str().is_some_and(|why| !why.is_empty()), "{page}");
    assert!(host(&page, &stays_admin)["ready"] == true && host(&page, &stays_admin)["failure"].is_null(), "{page}");
}

#[test]
fn large_values_are_shown_by_slowlog_and_its_options_change_on_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "moneta.toml", "slow_log_bytes = \"1k\"\n");
    let node = Node::start(&["--config", &config]);
    let value = "v".repeat(1024);
    node.exchange(&format!("set large 0 0 1024\r\n{value}\r\n"));
    let text = printed(&mut moneta(&["slowlog", &admin(&node)]));
    assert!(text.starts_with("0 waited (from 100 ms), 1 were large (from 1024 bytes), 0 are not kept\n"), "{text}");
    assert!(text.lines().nth(2).is_some_and(|line| line.ends_with(" large") && line.contains(" 1024 set")), "{text}");
    fs::write(&config, "slow_log_bytes = 0\nhot_keys = \"off\"\n").unwrap();
    node.signal(common::Signal::SIGHUP);
    node.wait_for_log("reloaded");
    node.exchange(&format!("set larger 0 0 1024\r\n{value}\r\n"));
    let page: Value = serde_json::from_str(&printed(&mut moneta(&["slowlog", "--json", &admin(&node)]))).unwrap();
    assert_eq!((&page["large"], &page["from_bytes"]), (&1.into(), &Value::Null), "{page}");
    assert!(node.exchange("stats hotkeys\r\n").contains("hotkeys_enabled no"));
}

#[test]
fn shells_and_manuals_have_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    printed(&mut moneta(&["man", pages.to_str().unwrap()]));
    for page in ["moneta.1", "moneta-serve.1", "moneta-top.1", "moneta-proxy-status.1"] {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&mut moneta(&["completions", shell]));
        assert!(text.contains("slowlog") && text.contains("memcached-conf"), "{shell}");
    }
}

#[test]
fn a_node_takes_the_file_of_debians_memcached() {
    let folder = tempfile::tempdir().unwrap();
    let conf = "# memcached default config file\n-d\nlogfile /var/log/memcached.log\n-m 32\n-l 127.0.0.1\n";
    let path = file(folder.path(), "memcached.conf", conf);
    let node = Node::start(&["--memcached-conf", &path]);
    assert!(node.exchange("stats settings\r\n").contains(&format!("STAT maxbytes {}\r\n", 32 << 20)));
    let listed = printed(&mut moneta(&["config", "--memcached-conf", &path]));
    assert!(listed.lines().any(|line| line.starts_with("memory ") && line.contains("32MiB")), "{listed}");
}
