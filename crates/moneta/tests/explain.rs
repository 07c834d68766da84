//! Guards against a drawing of another stack than the one that is served.

mod common;

use common::{Node, file, moneta, printed};

fn drawn(arguments: &[&str]) -> String {
    printed(&mut moneta(&[&["config", "--explain"], arguments].concat()))
}

/// The lines that contain each of `parts`, in that order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut lines = text.lines();
    for part in parts {
        assert!(lines.any(|line| line.contains(part)), "{part:?} comes not, or too early, in\n{text}");
    }
}

#[test]
fn a_node_in_ram_is_one_store() {
    let text = drawn(&["-m", "100", "-t", "3"]);
    assert_in_order(&text, &["127.0.0.1:11211  online", "3 worker threads", "store      memory  100MiB"]);
    assert!(!text.contains("L2"), "{text}");
}

#[test]
fn two_tiers_are_drawn_with_every_listener() {
    let folder = tempfile::tempdir().unwrap();
    let listener = "[[listener]]\naddress = \"/run/bulk.sock\"\npolicy = \"batch\"\n";
    let path = file(folder.path(), "moneta.toml", &format!("flash = [\"/x:1g\"]\npromote = \"25%\"\n{listener}"));
    let text = drawn(&["--config", &path, "--batch-port", "11212", "-s", "/run/m.sock", "-l", "127.0.0.1"]);
    let clients = ["127.0.0.1:11211  online", "/run/m.sock  online", "127.0.0.1:11212  batch", "/run/bulk.sock  batch"];
    let tiers = ["tiered", "L1  memory  64MiB", "L2  flash   /x:1GiB"];
    assert_in_order(&text, &[&clients[..], &tiers].concat());
    assert!(text.contains("comes up: 25%"), "{text}");
}

#[test]
fn the_file_may_ask_for_any_stack() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        "moneta.toml",
        "l1 = \"remote:/run/memcached.sock\"\nl2 = \"remote:10.0.0.7:11300\"\nremote_timeout = \"50ms\"\n",
    );
    let text = drawn(&["--config", &path]);
    assert_in_order(&text, &["L1  remote  /run/memcached.sock", "L2  remote  10.0.0.7:11300, meta"]);
    assert_eq!(text.matches("answers within 50ms").count(), 2, "{text}");
}

#[test]
fn a_proxy_is_one_remote_store() {
    let text = drawn(&["--l1", "none", "--l2", "remote:127.0.0.1:11311"]);
    assert_in_order(&text, &["store      remote  127.0.0.1:11311"]);
}

/// What is drawn without options is told apart from what is running.
#[test]
fn without_options_the_process_at_the_admin_port_is_drawn() {
    let node = Node::run(&mut moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "-m", "77m", "-t", "3"]));
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    let admin = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
    let text = drawn(&["--admin", admin]);
    assert!(text.starts_with(&format!("What the process with the admin port {admin} serves.\n")), "{text}");
    assert_in_order(&text, &["3 worker threads", "store      memory  77MiB", "background tasks", "admin", "1 running"]);
    let address = admin.to_owned();
    drop(node);
    let text = drawn(&["--admin", &address]);
    assert!(text.starts_with("No process draws its stack at the admin port"), "{text}");
    assert_in_order(&text, &["store      memory  64MiB"]);
    let text = drawn(&["-m", "100m"]);
    assert!(text.starts_with("What these options would start; no running process was asked.\n"), "{text}");
}

/// `-h` is short enough to be read; `--help` has everything.
#[test]
fn the_short_help_has_the_common_options_and_the_long_one_all() {
    for (command, first, not) in [("serve", "--flash ", "--topology"), ("proxy", "--topology", "--flash ")] {
        let short = printed(&mut moneta(&[command, "-h"]));
        let long = printed(&mut moneta(&[command, "--help"]));
        let options = |help: &str| help.lines().filter(|line| line.trim_start().starts_with('-')).count();
        assert!((20..=24).contains(&options(&short)), "{short}");
        assert!(options(&long) > 80, "{long}");
        assert!(short.contains(first) && !short.contains(not) && long.contains(not), "{short}");
    }
}
