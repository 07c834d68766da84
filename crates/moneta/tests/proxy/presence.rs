//! What `proxy status` and `/readyz` say is so without a request of a client: a node that is gone, one that never was, and a
//! topology that cannot be read, or that other proxies have replaced.

use crate::common::{Node, file, moneta, output};
use crate::{Cluster, admin_of, metric, page};

/// What `moneta proxy status` prints, and how it ends.
fn status(admin: &str) -> (String, Option<i32>) {
    let output = output(&mut moneta(&["proxy", "status", admin]));
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn a_node_that_is_gone_is_seen_without_a_request() {
    let mut cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let admin = admin_of(&proxy);
    proxy.wait_for(|| status(&admin).1 == Some(0), "all nodes are up");
    cluster.kill(1, 0);
    proxy.wait_for(|| metric(&admin, "cluster_node_up") == 5, "it is seen that the node is gone");
    let (text, code) = status(&admin);
    assert!(code == Some(1) && text.contains("ejected for "), "{text}");
    cluster.restart(1, 0);
    proxy.wait_for(|| status(&admin).1 == Some(0), "it is seen that the node is back");
}

#[test]
fn a_node_that_never_was_is_seen_without_a_request() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let real = &cluster.addresses[0][0];
    let text =
        format!("[[replica]]\nzone = \"a\"\nnodes = [\"0={real}\", \"1=127.0.0.1:1\", \"2=no-such-host.invalid:1\"]\n");
    let topology = file(folder.path(), "one.toml", &text);
    let proxy = Node::run(&mut moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", &topology]));
    let admin = admin_of(&proxy);
    proxy.wait_for(|| metric(&admin, "cluster_node_up") == 1, "it is seen that nothing listens there");
    assert_eq!(status(&admin).1, Some(1));
}

#[test]
fn a_topology_that_cannot_be_read_is_told() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let admin = admin_of(&proxy);
    proxy.wait_for(|| status(&admin).1 == Some(0), "all is well");
    let path = cluster.folder.path().join("topology.toml");
    let good = std::fs::read(&path).expect("it is there");
    for broken in [Some("[[replica]]\nzone ="), None] {
        match broken {
            Some(text) => std::fs::write(&path, text).expect("it can be written"),
            None => std::fs::remove_file(&path).expect("it is there"),
        }
        proxy.wait_for(|| status(&admin).1 == Some(1), "it is told");
        let (text, _) = status(&admin);
        assert!(text.contains("CANNOT BE READ") && text.contains("topology"), "{text}");
        let ready = page(&admin, "/readyz");
        assert!(ready.starts_with("HTTP/1.0 200") && ready.contains("the topology of epoch 1 stays"), "{ready}");
        std::fs::write(&path, &good).expect("it can be written");
        proxy.wait_for(|| status(&admin).1 == Some(0), "all is well again");
        assert!(!page(&admin, "/readyz").contains("stays"));
    }
}

#[test]
fn a_topology_that_another_proxy_has_replaced_is_told() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let admin = admin_of(&proxy);
    proxy.wait_for(|| status(&admin).1 == Some(0), "all is well");
    let path = cluster.folder.path().join("topology.toml");
    let old = std::fs::read_to_string(&path).expect("it is there");
    let new = format!("{}write_only = true\n", old.replace("epoch = 1", "epoch = 2"));
    let replaced = file(cluster.folder.path(), "newer.toml", &new);
    let other = Node::run(&mut moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", &replaced]));
    let others = admin_of(&other);
    proxy.wait_for(|| status(&admin).1 == Some(1), "it is told");
    let (text, _) = status(&admin);
    assert!(text.contains("THE TOPOLOGY is behind"), "{text}");
    let ready = page(&admin, "/readyz");
    assert!(ready.starts_with("HTTP/1.0 200") && ready.contains("the topology of epoch 1 is behind"), "{ready}");
    assert_eq!((metric(&admin, "cluster_topology_agrees"), metric(&others, "cluster_topology_agrees")), (0, 1));
    std::fs::write(&path, &new).expect("it can be written");
    proxy.wait_for(|| status(&admin).1 == Some(0) && metric(&admin, "cluster_epoch") == 2, "all is well again");
    assert_eq!(metric(&admin, "cluster_topology_agrees"), 1);
}
