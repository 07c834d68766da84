//! The client against nodes in RAM behind real servers: handles on several threads, and a node that ends.

use std::sync::Arc;
use std::time::Duration;

use moneta_cluster_client::{Ack, Client, Error, Set, Topology};
use moneta_memory::{Memory, MemoryConfig};
use moneta_server::auth::Authenticator;
use moneta_server::config::{ListenAddress, Listener, ServerConfig};
use moneta_server::node::{Node, NodeSettings};
use moneta_server::server::{RunningServer, Server};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, KeyHash, Origin};

/// A node starts with a horizon that is half a second away: before that it creates nothing that came from elsewhere.
const HORIZON: Duration = Duration::from_secs(1);

fn node(writer: u8) -> (RunningServer, String) {
    let clock = Arc::new(Clock::system());
    let origin = Origin::new(0, writer);
    let versioning = Versioning { origin, cluster: true, ..Versioning::default() };
    let config = MemoryConfig {
        limit: 64 << 20,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: None,
        seed: KeyHash::seeded(writer.into()),
        versioning,
    };
    let memory = Memory::new(&config, Arc::clone(&clock)).expect("memory");
    let settings = NodeSettings { cluster: true, origin, ..NodeSettings::default() };
    let node = Arc::new(Node::new(settings, clock, Authenticator::default()));
    let listeners = vec![Listener::tcp(([127, 0, 0, 1], 0).into())];
    let config = ServerConfig { listeners, workers: 1, ..ServerConfig::default() };
    let server = Server::start(&config, Arc::new(memory), node).expect("it starts");
    let address = match &server.listen_addresses()[0] {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix { .. } => unreachable!("it is on TCP"),
    };
    (server, address)
}

fn three() -> (Vec<RunningServer>, Topology) {
    let (servers, addresses): (Vec<_>, Vec<_>) = (1..=3).map(node).unzip();
    let replica =
        |(zone, address): (&str, &String)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={address}\"]\n");
    let text: String = ["a", "b", "c"].into_iter().zip(&addresses).map(replica).collect();
    std::thread::sleep(HORIZON);
    (servers, Topology::from_toml(&text).expect("a topology"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_every_kind_end_as_on_one_server() {
    let (_servers, topology) = three();
    let builder = Client::builder("app").topology(topology).zone("a").ack(Ack::All).allow_flush(true);
    let client = builder.node_timeout(Duration::from_secs(20)).connect().await.expect("it starts");
    assert_eq!(client.get("none").await.expect("an answer"), None);
    let first = client.set("k", "one", Set { flags: 7, expires_in: None }).await.expect("stored");
    let found = client.get("k").await.expect("an answer").expect("a hit");
    assert_eq!((found.value.as_slice(), found.flags, found.version), (&b"one"[..], 7, first));
    assert!(!client.add("k", "two", Set::default()).await.expect("an answer"));
    assert!(client.append("k", "!").await.expect("an answer"));
    assert!(!client.compare_and_set("k", "x", first, Set::default()).await.expect("an answer"));
    let found = client.get("k").await.expect("an answer").expect("a hit");
    assert_eq!((found.value.as_slice(), found.flags), (&b"one!"[..], 7));
    assert!(client.compare_and_set("k", "5", found.version, Set::default()).await.expect("an answer"));
    assert_eq!(client.increment("k", 3).await.expect("a number"), Some(8));
    assert_eq!(client.decrement("k", 10).await.expect("a number"), Some(0));
    assert_eq!(client.increment("none", 1).await.expect("an answer"), None);
    assert_eq!(client.increment_or("fresh", 1, 41, Set::default()).await.expect("a number"), 41);
    assert!(client.set("text", "a", Set::default()).await.is_ok());
    assert!(matches!(client.increment("text", 1).await, Err(Error::NotANumber)));
    assert!(client.touch("text", Some(Duration::from_secs(90))).await.expect("an answer"));
    let values = client.get_many(&["text", "none", "k"]).await.expect("answers");
    let values: Vec<_> = values.into_iter().map(|found| found.map(|found| found.value)).collect();
    assert_eq!(values, [Some(b"a".to_vec()), None, Some(b"0".to_vec())]);
    assert!(client.delete("text").await.expect("an answer") && !client.delete("text").await.expect("an answer"));
    assert!(matches!(client.get("").await, Err(Error::Key)));
    assert!(matches!(client.get("x".repeat(251)).await, Err(Error::Key)));
    assert!(matches!(client.set("large", vec![0; (1 << 20) + 1], Set::default()).await, Err(Error::TooLarge)));
    client.flush_all().await.expect("flushed");
    assert_eq!(client.get("k").await.expect("an answer"), None);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_on_many_tasks_count_each_increment_once() {
    let (_servers, topology) = three();
    let builder = Client::builder("app").topology(topology).in_flight(8).node_timeout(Duration::from_secs(20));
    let client = builder.connect().await.expect("it starts");
    client.set("count", "0", Set::default()).await.expect("stored");
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.increment("count", 1).await })
        })
        .collect();
    let mut sums = Vec::new();
    for task in tasks {
        sums.push(task.await.expect("it ends").expect("a number").expect("there is one"));
    }
    sums.sort_unstable();
    assert_eq!(sums, (1..=50).collect::<Vec<_>>(), "each sum is told once");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_costs_no_item_and_is_seen() {
    let (mut servers, topology) = three();
    let client = Client::builder("app").topology(topology).zone("a").connect().await.expect("it starts");
    for key in 0..50 {
        client.set(format!("k{key}"), "v", Set::default()).await.expect("stored");
    }
    drop(servers.remove(0));
    for key in 0..50 {
        let found = client.get(format!("k{key}")).await.expect("another copy answers").expect("it has the item");
        assert_eq!(found.value, b"v");
        client.set(format!("k{key}"), "w", Set::default()).await.expect("two copies are a quorum");
    }
    let status = client.status().await;
    let near = status.nodes.iter().find(|node| node.zone == "a").expect("it is listed");
    assert!(!near.up && near.ejected_since.is_some() && near.hints == 50, "{near:?}");
    assert!(client.route("k1").iter().any(|copy| copy.node.zone == "a" && copy.lacks_write));
    drop(servers);
    let error = client.set("k1", "x", Set::default()).await.expect_err("no copy is left");
    assert!(error.is_unknown(), "{error}");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_host_has_no_address_is_one_that_is_away() {
    let (_servers, mut topology) = three();
    topology.replicas[2].nodes[0].address = "moneta-node.invalid:11211".parse().expect("an address");
    let client = Client::builder("app").topology(topology).zone("c").connect().await.expect("it starts");
    client.set("k", "v", Set::default()).await.expect("two copies are a quorum");
    let found = client.get("k").await.expect("another copy answers").expect("it has the item");
    assert_eq!(found.value, b"v");
    let status = client.status().await;
    let unknown = status.nodes.iter().find(|node| node.zone == "c").expect("it is listed");
    assert_eq!(unknown.hints, 1, "{unknown:?}");
    client.close().await;
}

#[tokio::test]
async fn without_a_topology_there_is_no_client() {
    assert!(Client::builder("app").connect().await.is_err());
    let missing = Client::builder("app").topology_file("/nowhere/topology.toml").connect().await;
    assert!(missing.is_err());
}
