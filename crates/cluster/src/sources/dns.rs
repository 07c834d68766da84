//! Nodes by name: for each zone a name, whose records are the zone's nodes.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use moneta_net::Address;
use tokio::runtime::Handle;

use super::source::{SourceError, TopologySource};
use crate::topology::{Node, Replica, RingKind, Topology};

/// The names, and how they are resolved.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// The zones and their names.
    pub zones: Vec<DnsZone>,
    /// The ring. Slots are named after what the names give; see [`DnsZone::name`].
    pub ring: RingKind,
    /// Name servers; none: those of the system's `/etc/resolv.conf`, with its search list.
    pub servers: Vec<SocketAddr>,
    /// Names are resolved again when the first record's life is over, but not within this time.
    pub at_least: Duration,
    /// And after this time whatever the records' lives are.
    pub at_most: Duration,
    /// How long a server is waited for. It is asked twice.
    pub timeout: Duration,
}

impl DnsConfig {
    /// With the defaults: the system's servers, resolved again after 1 to 60 seconds.
    pub fn new(zones: Vec<DnsZone>) -> Self {
        Self {
            zones,
            ring: RingKind::default(),
            servers: Vec::new(),
            at_least: Duration::from_secs(1),
            at_most: Duration::from_secs(60),
            timeout: Duration::from_secs(2),
        }
    }
}

/// A zone and the name of its nodes.
#[derive(Clone, Debug)]
pub struct DnsZone {
    /// The zone, and the name of its replica.
    pub zone: String,
    /// A name whose first character is an underscore (`_memcache._tcp.cache.example`) has SRV records: nodes by host and port.
    /// Slots are the hosts' names, or `HOST:PORT` where a host has several; so a host may change its address. Weights and
    /// priorities of the records are not looked at. Other names have A records, or AAAA if they have none of these: nodes that
    /// have `port`, in slots by address. The rings of other clients name slots as these clients do.
    pub name: String,
    /// The port of nodes found by A and AAAA records.
    pub port: u16,
}

/// A source that is the name service.
pub struct DnsSource {
    config: DnsConfig,
    /// The event loop of the process's tasks.
    runtime: Handle,
    resolver: TokioResolver,
    due: Instant,
}

/// What has to be known of an answer.
struct Answer<T> {
    records: Vec<T>,
    valid_until: Instant,
}

impl DnsSource {
    /// A source that has asked nothing yet.
    ///
    /// # Errors
    /// When the system's configuration cannot be read, or there can be no event loop.
    pub fn new(config: DnsConfig) -> Result<Self, SourceError> {
        let runtime = moneta_background::runtime::handle().map_err(SourceError::Start)?;
        let wrong =
            |error: NetError| SourceError::Dns { name: "/etc/resolv.conf".to_owned(), error: error.to_string() };
        let mut builder = if config.servers.is_empty() {
            TokioResolver::builder_tokio().map_err(wrong)?
        } else {
            let servers = config.servers.iter().map(|server| name_server(*server)).collect();
            TokioResolver::builder_with_config(
                ResolverConfig::from_parts(None, Vec::new(), servers),
                TokioRuntimeProvider::default(),
            )
        };
        set(builder.options_mut(), config.timeout);
        let resolver = builder.build().map_err(wrong)?;
        Ok(Self { config, runtime, resolver, due: Instant::now() })
    }

    fn read(&mut self) -> Result<Topology, SourceError> {
        // An answer out of the cache would confirm itself.
        self.resolver.clear_cache();
        let mut valid_until = Instant::now() + self.config.at_most;
        let mut replicas = Vec::new();
        for zone in &self.config.zones {
            let found = self.runtime.block_on(nodes(&self.resolver, zone, self.config.ring));
            let Answer { mut records, valid_until: until } =
                found.map_err(|error| SourceError::Dns { name: zone.name.clone(), error: error.to_string() })?;
            valid_until = valid_until.min(until);
            // The order of an answer changes from time to time.
            records.sort_by(|a, b| a.slot.cmp(&b.slot));
            records.dedup();
            if !records.is_empty() {
                let name = zone.zone.clone();
                replicas.push(Replica { name: name.clone(), zone: name, write_only: false, nodes: records });
            }
        }
        let topology = Topology { epoch: 0, ring: self.config.ring, replicas };
        topology.check()?;
        self.due = valid_until.max(Instant::now() + self.config.at_least);
        Ok(topology)
    }
}

impl TopologySource for DnsSource {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        let wait = self.due.saturating_duration_since(Instant::now());
        std::thread::sleep(wait.min(timeout));
        if wait > timeout {
            return Ok(None);
        }
        // A failure is asked again after this time.
        self.due = Instant::now() + self.config.at_least;
        self.read().map(Some)
    }

    fn hurry(&mut self) {
        self.due = self.due.min(Instant::now() + self.config.at_least);
    }

    fn name(&self) -> String {
        let names: Vec<&str> = self.config.zones.iter().map(|zone| zone.name.as_str()).collect();
        format!("dns {}", names.join(" "))
    }
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.into())
}

fn set(options: &mut ResolverOpts, timeout: Duration) {
    options.timeout = timeout;
    options.attempts = 2;
    // A node that has numbers of both kinds is one node.
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
}

async fn nodes(resolver: &TokioResolver, zone: &DnsZone, ring: RingKind) -> Result<Answer<Node>, NetError> {
    if zone.name.starts_with('_') {
        return by_service(resolver, &zone.name, ring).await;
    }
    let Answer { records, valid_until } = numbers(resolver, &zone.name).await?;
    let node = |ip: IpAddr| {
        let address = Address::tcp(ip.to_string(), zone.port);
        let named = || format!("{}/{ip}", zone.name.trim_end_matches('.'));
        let slot = if ring == RingKind::Evcache { None } else { ring.slot_of(&address) };
        Node { slot: slot.unwrap_or_else(named), address, admin: None, weight: 1 }
    };
    Ok(Answer { records: records.into_iter().map(node).collect(), valid_until })
}

async fn by_service(resolver: &TokioResolver, name: &str, ring: RingKind) -> Result<Answer<Node>, NetError> {
    let lookup = match resolver.srv_lookup(name).await {
        Ok(lookup) => lookup,
        Err(error) if error.is_no_records_found() => return Ok(none(&error)),
        Err(error) => return Err(error),
    };
    let mut valid_until = lookup.valid_until();
    let mut hosts: Vec<(String, u16)> = lookup
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::SRV(service) => Some((service.target.to_utf8(), service.port)),
            _ => None,
        })
        .collect();
    hosts.sort();
    hosts.dedup();
    let mut records = Vec::with_capacity(hosts.len());
    for (host, port) in &hosts {
        let found = numbers(resolver, host).await?;
        // A host that has no number now cannot be asked; it is there again with its number.
        let Some(ip) = found.records.into_iter().min() else { continue };
        valid_until = valid_until.min(found.valid_until);
        let alone = hosts.iter().filter(|(other, _)| other == host).count() == 1;
        let host = host.trim_end_matches('.');
        let slot = match ring {
            RingKind::Slots if alone => host.to_owned(),
            RingKind::Slots => format!("{host}:{port}"),
            RingKind::Evcache => format!("{host}/{ip}"),
            RingKind::Libketama => ring.slot_of(&Address::tcp(host, *port)).unwrap_or_else(|| host.to_owned()),
        };
        records.push(Node { slot, address: Address::tcp(ip.to_string(), *port), admin: None, weight: 1 });
    }
    Ok(Answer { records, valid_until })
}

/// The numbers of `host`; none, if the name servers say that there are none.
async fn numbers(resolver: &TokioResolver, host: &str) -> Result<Answer<IpAddr>, NetError> {
    match resolver.lookup_ip(host).await {
        Ok(lookup) => Ok(Answer { records: lookup.iter().collect(), valid_until: lookup.valid_until() }),
        Err(error) if error.is_no_records_found() => Ok(none(&error)),
        Err(error) => Err(error),
    }
}

fn none<T>(_: &NetError) -> Answer<T> {
    // How long "there is none" holds, servers do not say reliably: it is asked again soon.
    Answer { records: Vec::new(), valid_until: Instant::now() }
}
