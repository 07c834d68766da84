//! An instance of the fleet as Eureka's clients see it, and the reverse.

use std::collections::BTreeMap;
use std::net::IpAddr;

use moneta_eureka::{DataCenter, Instance, Port, Status as Told, mapping};
use moneta_net::HostPort;
use serde_json::{Value, json};

use crate::record::{InstanceKind, Record, Status};
use crate::state::Known;

/// The field of a record that has what a client of Eureka registered.
const FIELD: &str = "eureka";

/// The port of memcached, which EVCache's client takes where none is named.
const EVCACHE_PORT: &str = "evcache.port";

/// The record of what a client registers.
pub(super) fn record(instance: &Instance) -> Record {
    let zone = instance.data_center.metadata.get("availability-zone").cloned();
    let mut record = Record {
        v: 1,
        kind: InstanceKind::Other,
        zone: zone.filter(|zone| crate::names::check("a zone", zone).is_ok()),
        status: status(instance.status),
        renew_every_s: Some(instance.lease.renewal_s.clamp(1, 300)),
        ..Record::default()
    };
    record.rest.insert(FIELD.to_owned(), mapping::value(instance));
    record
}

/// What a client of Eureka registered, as it did; `None`: another kind of client did.
pub(super) fn registered(record: &Record) -> Option<Instance> {
    mapping::instance(record.rest.get(FIELD)?).ok()
}

/// The status that a client tells. One that it does not know is no promise to serve.
pub(super) fn status(told: Told) -> Status {
    match told {
        Told::Up => Status::Up,
        Told::Starting | Told::Unknown => Status::Starting,
        Told::OutOfService => Status::OutOfService,
        Told::Down => Status::Down,
    }
}

fn told(status: Status) -> Told {
    match status {
        Status::Up => Told::Up,
        Status::Starting => Told::Starting,
        Status::OutOfService => Told::OutOfService,
        Status::Down => Told::Down,
    }
}

/// An instance as clients are told; `None` if it is not registered, or is away.
pub(super) fn described(app: &str, id: &str, known: &Known, environment: &str) -> Option<Instance> {
    let (_, record) = known.record.as_ref().filter(|_| known.away.is_none())?;
    let mut instance = registered(record).unwrap_or_else(|| of_moneta(app, id, record, environment));
    instance.status = known.effective().map_or(Told::Unknown, told);
    instance.overridden = known.status_override.as_ref().map_or(Told::Unknown, |word| told(word.status));
    instance.updated_ms = record.since.unwrap_or(0);
    instance.lease.registered_ms = record.since.unwrap_or(0);
    instance.lease.up_ms = if instance.status == Told::Up { instance.updated_ms } else { 0 };
    instance.action = None;
    Some(instance)
}

/// A process of Moneta as EVCache's client expects a node: in Amazon's cloud, the replica as the group that scales it.
fn of_moneta(app: &str, id: &str, record: &Record, environment: &str) -> Instance {
    let place = |name: &str| record.addresses.get(name).and_then(|text| text.parse::<HostPort>().ok());
    let cache = place(crate::record::CACHE).or_else(|| place(crate::record::ADMIN));
    let (host, port) = cache.map_or((String::new(), 0), |place| (place.host.to_string(), place.port));
    let mut machine = BTreeMap::from([
        ("instance-id".to_owned(), id.to_owned()),
        ("public-hostname".to_owned(), host.clone()),
        ("vpc-id".to_owned(), environment.to_owned()),
    ]);
    if let Some(zone) = &record.zone {
        machine.insert("availability-zone".to_owned(), zone.clone());
    }
    // The client takes this for a number, and asks no name server.
    let ip = host.parse::<IpAddr>().map(|ip| ip.to_string()).unwrap_or_else(|_| host.clone());
    machine.insert("local-ipv4".to_owned(), ip.clone());
    let mut metadata: BTreeMap<String, String> = record
        .rest
        .get("metadata")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    metadata.insert(EVCACHE_PORT.to_owned(), port.to_string());
    metadata.insert("moneta.kind".to_owned(), json!(record.kind).as_str().unwrap_or_default().to_owned());
    for (name, of) in [("moneta.replica", &record.replica), ("moneta.slot", &record.slot)] {
        if let Some(of) = of {
            metadata.insert(name.to_owned(), of.clone());
        }
    }
    let mut instance = Instance::new(app, id);
    instance.host = host;
    instance.ip = ip;
    instance.port = Port { number: port, enabled: port != 0 };
    instance.data_center = DataCenter { name: DataCenter::AMAZON.to_owned(), metadata: machine };
    instance.lease.renewal_s = record.renew_every_s.unwrap_or(30);
    instance.lease.duration_s = instance.lease.renewal_s.saturating_mul(3);
    instance.vip = Some(app.to_owned());
    instance.asg.clone_from(&record.replica);
    instance.metadata = metadata;
    instance.dirty_ms = record.since.unwrap_or(0);
    instance
}
