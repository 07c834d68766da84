//! Nodes by name.

use std::net::Ipv4Addr;
use std::time::Duration;

use moneta_cluster::RingKind;
use moneta_cluster::sources::{DnsConfig, DnsSource, DnsZone, GuardConfig, Guarded, TopologySource};

use super::server::{Data, Server};
use super::{LONG, addresses, changed, read, slots};

fn a(last: u8) -> Data {
    Data::A(Ipv4Addr::new(10, 0, 0, last))
}

fn zone(zone: &str, name: &str) -> DnsZone {
    DnsZone { zone: zone.into(), name: name.into(), port: 11211 }
}

fn config(server: &Server, zones: &[(&str, &str)]) -> DnsConfig {
    let mut config = DnsConfig::new(zones.iter().map(|(name, host)| zone(name, host)).collect());
    config.servers = vec![server.address];
    config.at_least = Duration::from_millis(1);
    config.timeout = Duration::from_secs(20);
    config
}

fn source(server: &Server, zones: &[(&str, &str)]) -> DnsSource {
    DnsSource::new(config(server, zones)).unwrap()
}

#[test]
fn a_zone_is_a_replica_whose_nodes_are_the_addresses_of_its_name() {
    let server = Server::start();
    server.says("a.cache.test", 0, [a(2), a(1)]);
    server.says("b.cache.test", 0, [Data::Aaaa("fd00::1".parse().unwrap())]);
    // Of both kinds: one node, by its A record.
    server.says("c.cache.test", 0, [a(3), Data::Aaaa("fd00::3".parse().unwrap())]);
    let mut source = source(&server, &[("a", "a.cache.test"), ("b", "b.cache.test."), ("c", "c.cache.test")]);
    let topology = read(&mut source).unwrap().unwrap();
    assert_eq!(topology.replicas.iter().map(|replica| replica.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let wanted = ["10.0.0.1:11211", "10.0.0.2:11211", "[fd00::1]:11211", "10.0.0.3:11211"];
    assert_eq!((slots(&topology), addresses(&topology)), (wanted.to_vec(), wanted.map(String::from).to_vec()));

    server.says("a.cache.test", 0, [a(1), a(9), a(2)]);
    let topology = read(&mut source).unwrap().unwrap();
    assert_eq!(slots(&topology)[..3], ["10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.9:11211"]);
}

#[test]
fn services_are_slots_by_their_hosts_and_keep_them_when_their_addresses_change() {
    let server = Server::start();
    let srv = |port, host: &str| Data::Srv(port, host.into());
    server.says("_mc._tcp.cache.test", 0, [srv(11311, "n1.cache.test"), srv(11311, "n0.cache.test")]);
    server.says("n0.cache.test", 0, [a(1)]);
    server.says("n1.cache.test", 0, [a(2)]);
    let mut services = source(&server, &[("a", "_mc._tcp.cache.test")]);
    let topology = read(&mut services).unwrap().unwrap();
    assert_eq!(slots(&topology), ["n0.cache.test", "n1.cache.test"]);
    assert_eq!(addresses(&topology), ["10.0.0.1:11311", "10.0.0.2:11311"]);

    server.says("n1.cache.test", 0, [a(7)]);
    let topology = read(&mut services).unwrap().unwrap();
    assert_eq!(slots(&topology), ["n0.cache.test", "n1.cache.test"]);
    assert_eq!(addresses(&topology), ["10.0.0.1:11311", "10.0.0.7:11311"]);

    // A host without an address is no node; two services of a host are two.
    server.forgets("n1.cache.test");
    server.says("_mc._tcp.cache.test", 0, [srv(1, "n0.cache.test"), srv(2, "n0.cache.test"), srv(1, "n1.cache.test")]);
    let topology = read(&mut services).unwrap().unwrap();
    assert_eq!(slots(&topology), ["n0.cache.test:1", "n0.cache.test:2"]);
}

#[test]
fn slots_are_named_as_the_ring_names_nodes() {
    let server = Server::start();
    server.says("a.cache.test", 0, [a(1)]);
    server.says("_mc._tcp.cache.test", 0, [Data::Srv(11211, "n0.cache.test".into())]);
    server.says("n0.cache.test", 0, [a(2)]);
    let zones = [("a", "a.cache.test"), ("b", "_mc._tcp.cache.test")];
    for (ring, wanted) in [
        (RingKind::Slots, ["10.0.0.1:11211", "n0.cache.test"]),
        (RingKind::Libketama, ["10.0.0.1", "n0.cache.test"]),
        (RingKind::Evcache, ["a.cache.test/10.0.0.1", "n0.cache.test/10.0.0.2"]),
    ] {
        let mut source = DnsSource::new(DnsConfig { ring, ..config(&server, &zones) }).unwrap();
        assert_eq!(slots(&read(&mut source).unwrap().unwrap()), wanted, "{ring:?}");
    }
}

#[test]
fn a_name_is_resolved_again_when_its_records_have_lived() {
    let server = Server::start();
    server.says("a.cache.test", 3600, [a(1)]);
    let hour = Duration::from_secs(3600);
    let zones = [("a", "a.cache.test")];
    let mut source = DnsSource::new(DnsConfig { at_most: hour, ..config(&server, &zones) }).unwrap();
    assert!(read(&mut source).unwrap().is_some());
    let asked = server.asked();
    assert!(source.next(Duration::from_millis(50)).unwrap().is_none());
    assert_eq!(server.asked(), asked);

    // But not later than that, and then not out of a cache.
    let soon = Duration::from_millis(1);
    let mut source = DnsSource::new(DnsConfig { at_most: soon, ..config(&server, &zones) }).unwrap();
    assert!(read(&mut source).unwrap().is_some());
    server.says("a.cache.test", 3600, [a(2)]);
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["10.0.0.2:11211"]);
}

#[test]
fn a_name_server_that_is_gone_changes_nothing() {
    let server = Server::start();
    server.says("a.cache.test", 0, [a(1)]);
    let mut config = config(&server, &[("a", "a.cache.test")]);
    config.timeout = Duration::from_millis(200);
    let mut source = Guarded::new(DnsSource::new(config).unwrap(), GuardConfig::default());
    assert_eq!(slots(&changed(&mut source)), ["10.0.0.1:11211"]);
    server.is_silent(true);
    let error = read(&mut source).unwrap_err().to_string();
    assert!(error.starts_with("name \"a.cache.test\": "), "{error}");
    assert!(source.counts().status().failing);
    server.is_silent(false);
    server.says("a.cache.test", 0, [a(1), a(2)]);
    assert_eq!(slots(&changed(&mut source)), ["10.0.0.1:11211", "10.0.0.2:11211"]);
    assert!(!source.counts().status().failing);
}

#[test]
fn names_that_are_gone_are_no_topology_and_one_of_several_waits_for_its_confirmation() {
    let server = Server::start();
    server.says("a.cache.test", 0, [a(1), a(2)]);
    server.says("b.cache.test", 0, [a(3), a(4)]);
    let source = source(&server, &[("a", "a.cache.test"), ("b", "b.cache.test")]);
    let guard = GuardConfig { reads: 3, hold: Duration::ZERO, kept: None };
    let mut source = Guarded::new(source, guard);
    assert_eq!(source.first(LONG).unwrap().replicas.len(), 2);
    server.forgets("b.cache.test");
    assert_eq!([read(&mut source).unwrap(), read(&mut source).unwrap()], [None, None]);
    server.forgets("a.cache.test");
    assert_eq!(read(&mut source).unwrap_err().to_string(), "the topology has no replicas");
    server.says("a.cache.test", 0, [a(1), a(2)]);
    assert_eq!([read(&mut source).unwrap(), read(&mut source).unwrap()], [None, None]);
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["10.0.0.1:11211", "10.0.0.2:11211"]);
}
