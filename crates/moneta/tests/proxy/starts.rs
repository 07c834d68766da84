//! What a proxy meets at its start: another one's hints, and a zone that is not there.

use crate::common::{Node, file, moneta, refused};
use crate::path;

/// Two processes that append to the same files of hints, and rewrite them, would lose what nodes have missed.
#[test]
fn hints_are_not_shared() {
    let folder = tempfile::tempdir().expect("a folder");
    let topology = file(folder.path(), "one.toml", "[[replica]]\nzone = \"a\"\nnodes = [\"0=127.0.0.1:1\"]\n");
    let hints = folder.path().join("hints");
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--topology", &topology, "--hint-dir", path(&hints)];
    let first = Node::run(&mut moneta(&arguments));
    let said = refused(&mut moneta(&arguments), 1);
    assert!(said.contains("locked by another process") && said.contains("hint_dir"), "{said}");
    let other = Node::run(moneta(&arguments).args(["--app", "other"]));
    drop((first, other));
    drop(Node::run(&mut moneta(&arguments)));
}

#[test]
fn a_zone_that_no_copy_is_in_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = |zone: &str, port: u16| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0=127.0.0.1:{port}\"]\n");
    let topology = file(folder.path(), "two.toml", &format!("{}{}", replica("b", 1), replica("a", 2)));
    let log = |zone| {
        let arguments = ["proxy", "-p", "0", "--admin", "off", "--topology", &topology, "--zone", zone];
        let proxy = Node::run(&mut moneta(&arguments));
        // Behind all that is said of topologies.
        proxy.wait_for_log(" listening");
        proxy.log()
    };
    let misspelt = log("aa");
    assert!(misspelt.contains("no copy in this zone") && misspelt.contains("a, b"), "{misspelt}");
    let right = log("a");
    assert!(right.contains("topology taken") && !right.contains("no copy in this zone"), "{right}");
}
