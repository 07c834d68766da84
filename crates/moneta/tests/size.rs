//! Guards what is bought by `moneta size`: what it says of a node must be what that node measured, and a load that no nodes can serve
//! must not get a plan.

mod common;

use common::{Node, file, moneta, output, printed};
use serde_json::Value;

fn admin(node: &Node) -> String {
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address").to_owned()
}

fn size(arguments: &[&str]) -> Value {
    let arguments = [&["size", "--json"], arguments].concat();
    serde_json::from_str(&printed(&mut moneta(&arguments))).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let refused = output(&mut moneta(&[&["size"], arguments].concat()));
    assert!(!refused.status.success(), "{refused:?}");
    String::from_utf8(refused.stderr).unwrap()
}

#[test]
fn a_node_is_sized_by_the_curve_that_it_keeps_under_its_load() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "moneta.toml", "memory = \"64m\"\n");
    let node = Node::start(&["--config", &config]);
    let (address, admin) = (node.address().to_string(), admin(&node));
    assert!(refused(&["--from", &admin]).contains("has no curve of misses"));
    let load = ["bench", "--server", &address, "--keys", "50000", "--key-size", "30", "--value-size", "500", "--fill"];
    let load =
        [&load[..], &["-n", "400000", "--distribution", "zipf:0.9", "--warmup", "0", "--quiet", "-c", "4"]].concat();
    printed(&mut moneta(&load));
    // Nothing was evicted and every key was set before: with room for all, all are hits.
    let curve: Value = size(&["--from", &admin, "--curve", "--rate", "1000"]);
    let points = curve["by_bytes"].as_array().unwrap();
    assert!(points.len() > 50 && points.last().unwrap()[1].as_f64() < Some(0.02), "{curve}");
    let page = size(&["--from", &admin, "--rate", "100000", "--sets", "1000", "--hit-rate", "0.9"]);
    assert!(page["item_bytes"].as_f64().is_some_and(|bytes| (bytes - 554.0).abs() < 1.0), "{page}");
    let plan = &page["plans"][0];
    assert_eq!((&plan["tier"], &plan["nodes"]), (&"ram".into(), &1.into()), "{plan}");
    // Half of the gets are of few keys; the rarest tenth needs most of the RAM. A hundred such nodes hold a hundred times as much.
    let fleet = size(&["--from", &admin, "--rate", "100000", "--sets", "1000", "--hit-rate", "0.9", "--fleet", "1000"]);
    let all = |plan: &Value| plan["items"].as_f64().unwrap();
    assert!((all(&fleet["plans"][0]) / all(plan) / 1000.0 - 1.0).abs() < 0.01, "{fleet}");
    let text = printed(&mut moneta(&["size", "--from", &admin, "--rate", "1000", "--curve"]));
    assert!(text.contains("MiB 0.") && text.lines().all(|line| line.len() < 130), "{text}");
    std::fs::write(&config, "memory = \"64m\"\nmiss_curve = \"off\"\n").unwrap();
    node.signal(common::Signal::SIGHUP);
    node.wait_for_log("reloaded");
    assert!(node.exchange("stats mrc\r\n").contains("mrc_enabled no"));
    assert!(refused(&["--from", &admin]).contains("miss_curve is off"));
}

#[test]
fn figures_and_prices_decide_between_ram_and_ssd() {
    let load = ["--items", "500000000", "--value-size", "1000", "--rate", "1000000", "--hit-rate", "0.98"];
    let with = |more: &[&str]| size(&[&load[..], more].concat());
    let dear = with(&["--ram-price", "5"]);
    let plan = &dear["plans"][0];
    assert_eq!(plan["tier"], "ram_over_ssd", "{dear}");
    // RAM for the index: ten bytes an item, beside that for blocks and buffers.
    let (items, nodes) = (plan["items"].as_f64().unwrap(), plan["nodes"].as_f64().unwrap());
    assert!(plan["ssd_ram"].as_f64().unwrap() * nodes > 10.0 * items, "{plan}");
    assert!(plan["ssd"].as_f64().unwrap() * nodes > items * 1030.0, "{plan}");
    assert!(plan["ssd_reads"].as_f64() <= Some(100_000.5), "{plan}");
    assert!(
        plan["why"].as_array().unwrap().iter().any(|why| why.as_str().unwrap().contains("devices keep up")),
        "{plan}"
    );
    let cheap = with(&["--ram-price", "0.1", "--ssd-price", "0.2", "--node-ram", "2000g"]);
    assert_eq!(cheap["plans"][0]["tier"], "ram", "{cheap}");
    assert_eq!(with(&["--node-ssd", "0"])["plans"].as_array().map(Vec::len), Some(1));
    // What is to stay unread for a week takes the room of what is written in it.
    let week = with(&["--keep", "7d", "--sets", "200000", "--node-price", "1"]);
    let kept = &week["plans"].as_array().unwrap().iter().find(|plan| plan["tier"] == "ram_over_ssd").unwrap();
    assert!(kept["ssd"].as_f64().unwrap() * kept["nodes"].as_f64().unwrap() > 7.0 * 86_400.0 * 2e5 * 1000.0, "{kept}");
    let text = printed(&mut moneta(&[&["size"], &load[..], &["--copies", "3"]].concat()));
    assert!(text.contains("in each of 3 copies") && text.contains("moneta serve -m "), "{text}");
}

#[test]
fn what_no_nodes_can_serve_is_refused_and_why() {
    assert!(
        refused(&["--items", "1000000", "--ttl", "60", "--rate", "1000", "--hit-rate", "0.99"]).contains("at most 0.")
    );
    let small = ["--items", "1000000000", "--node-ram", "300m", "--node-ssd", "0"];
    assert!(refused(&small).contains("too few"));
    assert!(refused(&["--items", "10", "--hit-rate", "1.5"]).contains("a share from 0 to 1"));
    assert!(refused(&["--items", "10", "--from", "127.0.0.1:1"]).contains("cannot be used with"));
    assert!(refused(&[]).contains("required"));
    assert!(refused(&["--from", "127.0.0.1:1"]).contains("does not answer"));
}

#[test]
fn a_trace_is_sized_by_all_of_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    // Blocks 0 to 9999 three times over.
    let trace = file(folder.path(), "loop.lis", &"0 10000 0 0\n".repeat(3));
    let curve = size(&["--trace", &trace, "--curve"]);
    assert!((curve["cold"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{curve}");
    let page = size(&["--trace", &trace, "--hit-rate", "0.66", "--rate", "1000"]);
    assert_eq!(page["item_bytes"], 512.0 + 30.0 + 24.0, "{page}");
    assert!(page["plans"][0]["items"].as_f64().is_some_and(|items| (9_000.0..=10_500.0).contains(&items)), "{page}");
}
