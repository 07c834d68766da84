//! Options that are set by hand on a node that runs. The silent failures guarded against: a value that is refused and takes effect, one
//! that outlasts a restart though it was not saved, one that a reload loses, and a user without the right who sets it.

mod common;

use common::{Node, Signal, file, moneta, printed, refused, until};
use moneta_users::secret;

fn admin(node: &Node) -> String {
    let line =
        node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it says where its admin side is");
    line.split(['/', ' ']).next().unwrap().to_owned()
}

/// The line of an option in what a node has in force: name, value, from.
fn in_force(node: &Node, name: &str) -> String {
    let table = printed(&mut moneta(&["config", "--from", &admin(node)]));
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name)).expect("it is listed");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn set(node: &Node, arguments: &[&str]) -> String {
    printed(&mut moneta(&[&["set-option", &admin(node)], arguments].concat()))
}

#[test]
fn what_is_set_is_in_force_at_once_and_gone_at_a_restart_unless_it_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved").join("options.toml").display().to_string();
    let config = file(folder.path(), "moneta.toml", "idle_timeout = \"9m\"\nmax_connections = 700\n");
    let start = || Node::start(&["--config", &config, "--saved-options", &saved, "--dump-timeout", "8s"]);
    let mut node = start();
    assert_eq!(in_force(&node, "idle_timeout"), format!("idle_timeout 9m {config}:1"));
    let said = set(&node, &["idle_timeout", "5m"]);
    assert!(said.contains(": idle_timeout is 5m (set by 127.0.0.1 at Unix second "), "{said}");
    assert!(node.exchange("stats settings\r\n").contains("STAT idle_timeout 300\r\n"));
    // Stronger than a flag, too.
    set(&node, &["dump_timeout", "11s"]);
    assert!(in_force(&node, "dump_timeout").starts_with("dump_timeout 11s set by"));
    set(&node, &["max_connections", "800", "--save"]);
    // What makes no sense changes nothing, and is not saved.
    for (arguments, why) in [
        (&["idle_timeout", "soon"][..], "idle_timeout: `soon` is refused: it must be"),
        (&["max_connections", "0", "--save"], "it must be"),
        (&["idle_timeouts", "1m"], "did you mean `idle_timeout`?"),
        (&["listen", "0.0.0.0:1", "--save"], "takes effect at a restart"),
        (&["users", "/tmp/users"], "who may do what"),
        (&["output_limit", "--unset"], "was not set by hand"),
        (&["../x", "1"], "no name of an option"),
    ] {
        let said = refused(&mut moneta(&[&["set-option", &admin(&node)], arguments].concat()), 1);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    assert!(in_force(&node, "max_connections").starts_with("max_connections 800 set by"));
    // A reload keeps it, unless the file has changed that option.
    std::fs::write(&config, "idle_timeout = \"10m\"\nmax_connections = 700\n").unwrap();
    node.signal(Signal::SIGHUP);
    until("the file counts", || in_force(&node, "idle_timeout") == format!("idle_timeout 10m {config}:1"));
    assert!(in_force(&node, "dump_timeout").starts_with("dump_timeout 11s set by"));
    set(&node, &["dump_timeout", "--unset"]);
    assert_eq!(in_force(&node, "dump_timeout"), "dump_timeout 8s flag --dump-timeout");
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());

    let node = start();
    assert_eq!(in_force(&node, "max_connections"), format!("max_connections 800 saved {saved}:2"));
    assert_eq!(in_force(&node, "idle_timeout"), format!("idle_timeout 10m {config}:1"));
    set(&node, &["max_connections", "--unset", "--save"]);
    assert_eq!(in_force(&node, "max_connections"), format!("max_connections 700 {config}:2"));
}

#[test]
fn of_several_hosts_each_is_asked_and_what_refuses_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let users = {
        let (told, stored) = secret::generate().unwrap();
        let path = file(folder.path(), "login", &format!("reader:{told}\n"));
        let (operator, stored_too) = secret::generate().unwrap();
        let text = format!(
            "[[user]]\nname = \"reader\"\nsecrets = [\"{stored}\"]\nrights = [\"stats\"]\n\n\
             [[user]]\nname = \"ops\"\nsecrets = [\"{stored_too}\"]\nrights = [\"stats\", \"operate\"]\n"
        );
        let table = file(folder.path(), "users.toml", &text);
        let ops = file(folder.path(), "ops", &format!("ops:{operator}\n"));
        for path in [&path, &table, &ops] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
        }
        (path, table, ops)
    };
    let (reader, table, ops) = users;
    let (open, guarded) = (Node::start(&[]), Node::start(&["--users", &table]));
    let hosts = format!("{},{}", admin(&open), admin(&guarded));
    let command = |login: &str| {
        let mut command = moneta(&["set-option", &hosts, "idle_timeout", "5m", "--login-file", login]);
        command.env("RUST_BACKTRACE", "0");
        command
    };
    // Without the right `operate` it is refused; the other one has it all the same.
    let said = refused(&mut command(&reader), 1);
    assert!(said.contains(&admin(&guarded)) && said.contains("operate") && said.contains("1 of 2"), "{said}");
    assert!(in_force(&open, "idle_timeout").starts_with("idle_timeout 5m set by 127.0.0.1"));
    let page = |login: &str| printed(&mut moneta(&["config", "--from", &admin(&guarded), "--login-file", login]));
    assert!(!page(&reader).contains("idle_timeout  5m"));
    printed(&mut command(&ops));
    let line = page(&ops).lines().find(|line| line.starts_with("idle_timeout ")).unwrap().to_owned();
    assert!(line.contains("5m") && line.contains("set by ops at"), "{line}");
    // Of a hundred, nonsense is refused by each, and what one refuses is set on the others.
    let hundred = format!("{}{}", format!("{},", admin(&open)).repeat(99), admin(&guarded));
    let said = refused(&mut moneta(&["set-option", &hundred, "idle_timeout", "soon", "--login-file", &ops]), 1);
    assert!(said.contains("100 of 100") && said.contains("`soon` is refused"), "{said}");
    let said = refused(&mut moneta(&["set-option", &hundred, "idle_timeout", "7m", "--login-file", &reader]), 1);
    assert!(said.contains("1 of 100") && said.matches("operate").count() == 1, "{said}");
    assert!(in_force(&open, "idle_timeout").starts_with("idle_timeout 7m"));
    // Without a place for it nothing is saved, and nothing set.
    let said = refused(&mut moneta(&["set-option", &admin(&open), "idle_timeout", "6m", "--save"]), 1);
    assert!(said.contains("saved_options or state_dir says where"), "{said}");
    assert!(in_force(&open, "idle_timeout").starts_with("idle_timeout 7m"));
}

#[test]
fn limits_a_second_change_while_the_node_runs() {
    let node = Node::start(&["--address-operations", "1000000"]);
    let refused = || node.exchange(&"get k\r\n".repeat(300)).matches("over the limit of operations").count();
    assert_eq!(refused(), 0);
    let mut open = node.connect();
    for (option, limit, least) in
        [("address_operations", "7", 100), ("address_operations", "0", 0), ("max_operations", "9", 100)]
    {
        set(&node, &[option, limit]);
        let count = refused();
        assert!(if least == 0 { count == 0 } else { count >= least }, "{option} {limit}: {count}");
    }
    set(&node, &["max_operations", "--unset"]);
    assert_eq!(refused(), 0);
    // A connection that was open before the limit of its address was lowered is under it, too.
    set(&node, &["address_operations", "7"]);
    use std::io::Write;
    open.write_all("get k\r\n".repeat(300).as_bytes()).unwrap();
    assert!(common::exchange(open, "").matches("over the limit of operations").count() >= 100);
}
