//! Instances to and from values.
//!
//! What clients send is read leniently: numbers and booleans as themselves or as strings, as clients in Java, Go, Python and
//! JavaScript write them; what is not known is left out; what lacks has Eureka's default. What is written is what Eureka's own
//! server writes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::error::EurekaError;
use crate::instance::{Action, DataCenter, Instance, Lease, Port, Status};

/// The most entries of a map of metadata.
pub const METADATA_MAX: usize = 256;

/// The longest text of a field, in bytes.
pub const TEXT_MAX: usize = 8 << 10;

/// The instance that `value` means.
///
/// # Errors
/// If it is no object, lacks an application and a host, or a text is longer than [`TEXT_MAX`] or a number none.
pub fn instance(value: &Value) -> Result<Instance, EurekaError> {
    let fields = value.as_object().ok_or(wrong("instance", "it is no object"))?;
    let app = text(fields, "app")?.ok_or(wrong("app", "it is missing"))?;
    let host = text(fields, "hostName")?.unwrap_or_default();
    let data_center = data_center(fields.get("dataCenterInfo"))?;
    let id = match text(fields, "instanceId")? {
        Some(id) => id,
        // As clients of before 1.4 are known: by the machine in Amazon's cloud, else by the host.
        None => data_center.metadata.get("instance-id").cloned().unwrap_or_else(|| host.clone()),
    };
    if id.is_empty() {
        return Err(wrong("instanceId", "it is missing, and so is the host's name"));
    }
    let overridden = match text(fields, "overriddenStatus")? {
        Some(word) => Some(word),
        None => text(fields, "overriddenstatus")?,
    };
    let new = Instance::new(&app, &id);
    Ok(Instance {
        ip: text(fields, "ipAddr")?.unwrap_or_default(),
        status: text(fields, "status")?.map_or(Status::Up, |word| Status::of(&word)),
        overridden: overridden.map_or(Status::Unknown, |word| Status::of(&word)),
        port: port(fields, "port", new.port)?,
        secure_port: port(fields, "securePort", new.secure_port)?,
        country: number(fields, "countryId")?.unwrap_or(1),
        lease: lease(fields.get("leaseInfo"))?,
        metadata: metadata(fields.get("metadata"))?,
        vip: text(fields, "vipAddress")?,
        secure_vip: text(fields, "secureVipAddress")?,
        asg: text(fields, "asgName")?,
        app_group: text(fields, "appGroupName")?.map(|name| name.to_ascii_uppercase()),
        home_page: text(fields, "homePageUrl")?,
        status_page: text(fields, "statusPageUrl")?,
        health_check: text(fields, "healthCheckUrl")?,
        secure_health_check: text(fields, "secureHealthCheckUrl")?,
        updated_ms: unsigned(fields, "lastUpdatedTimestamp")?,
        dirty_ms: unsigned(fields, "lastDirtyTimestamp")?,
        action: text(fields, "actionType")?.and_then(|word| Action::of(&word)),
        host,
        data_center,
        ..new
    })
}

/// The value that means `instance`.
pub fn value(instance: &Instance) -> Value {
    let mut data_center = json!({ "@class": instance.data_center.class(), "name": instance.data_center.name });
    if !instance.data_center.metadata.is_empty() {
        data_center["metadata"] = json!(instance.data_center.metadata);
    }
    let metadata = match instance.metadata.is_empty() {
        true => json!({ "@class": "java.util.Collections$EmptyMap" }),
        false => json!(instance.metadata),
    };
    let lease = &instance.lease;
    let mut value = json!({
        "instanceId": instance.id,
        "hostName": instance.host,
        "app": instance.app,
        "ipAddr": instance.ip,
        "status": instance.status.word(),
        "overriddenStatus": instance.overridden.word(),
        "port": { "$": instance.port.number, "@enabled": instance.port.enabled.to_string() },
        "securePort": { "$": instance.secure_port.number, "@enabled": instance.secure_port.enabled.to_string() },
        "countryId": instance.country,
        "dataCenterInfo": data_center,
        "leaseInfo": {
            "renewalIntervalInSecs": lease.renewal_s,
            "durationInSecs": lease.duration_s,
            "registrationTimestamp": lease.registered_ms,
            "lastRenewalTimestamp": lease.renewed_ms,
            "evictionTimestamp": lease.evicted_ms,
            "serviceUpTimestamp": lease.up_ms,
        },
        "metadata": metadata,
        "isCoordinatingDiscoveryServer": "false",
        "lastUpdatedTimestamp": instance.updated_ms.to_string(),
        "lastDirtyTimestamp": instance.dirty_ms.to_string(),
    });
    let fields = value.as_object_mut().expect("an object");
    let texts = [
        ("appGroupName", &instance.app_group),
        ("homePageUrl", &instance.home_page),
        ("statusPageUrl", &instance.status_page),
        ("healthCheckUrl", &instance.health_check),
        ("secureHealthCheckUrl", &instance.secure_health_check),
        ("vipAddress", &instance.vip),
        ("secureVipAddress", &instance.secure_vip),
        ("asgName", &instance.asg),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            fields.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    if let Some(action) = instance.action {
        fields.insert("actionType".to_owned(), Value::from(action.word()));
    }
    value
}

fn wrong(field: &'static str, reason: &str) -> EurekaError {
    EurekaError::Field { field, reason: reason.to_owned() }
}

/// The text of a field; `None` where it lacks, is null or empty.
fn text(fields: &Map<String, Value>, field: &'static str) -> Result<Option<String>, EurekaError> {
    let text = match fields.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => plain(value).ok_or(wrong(field, "it is no text"))?,
    };
    match text.len() {
        0 => Ok(None),
        length if length > TEXT_MAX => Err(wrong(field, "it is too long")),
        _ => Ok(Some(text)),
    }
}

/// A text, number or boolean as text; also one with attributes beside it.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Object(fields) => fields.get("$").and_then(plain).or_else(|| fields.is_empty().then(String::new)),
        Value::Null | Value::Array(_) => None,
    }
}

fn number(fields: &Map<String, Value>, field: &'static str) -> Result<Option<i64>, EurekaError> {
    let number = text(fields, field)?;
    number.map(|text| text.trim().parse().map_err(|_| wrong(field, "it is no number"))).transpose()
}

/// A number that is not negative; 0 where it lacks, or is.
fn unsigned(fields: &Map<String, Value>, field: &'static str) -> Result<u64, EurekaError> {
    Ok(number(fields, field)?.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
}

fn port(fields: &Map<String, Value>, field: &'static str, default: Port) -> Result<Port, EurekaError> {
    let number = match number(fields, field)? {
        Some(number) => u16::try_from(number).map_err(|_| wrong(field, "it is no port"))?,
        None => default.number,
    };
    let enabled = fields.get(field).and_then(|port| port.get("@enabled")).and_then(plain);
    let enabled = enabled.map_or(default.enabled, |word| word.eq_ignore_ascii_case("true"));
    Ok(Port { number, enabled })
}

fn metadata(value: Option<&Value>) -> Result<BTreeMap<String, String>, EurekaError> {
    let Some(Value::Object(fields)) = value else { return Ok(BTreeMap::new()) };
    if fields.len() > METADATA_MAX {
        return Err(EurekaError::TooLarge { reason: "there are too many entries of metadata" });
    }
    let mut metadata = BTreeMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with('@')) {
        let Some(text) = plain(value) else { continue };
        if name.len() + text.len() > TEXT_MAX {
            return Err(wrong("metadata", "an entry is too long"));
        }
        metadata.insert(name.clone(), text);
    }
    Ok(metadata)
}

fn data_center(value: Option<&Value>) -> Result<DataCenter, EurekaError> {
    let Some(Value::Object(fields)) = value else { return Ok(DataCenter::default()) };
    let name = text(fields, "name")?.unwrap_or_else(|| DataCenter::default().name);
    Ok(DataCenter { name, metadata: metadata(fields.get("metadata"))? })
}

fn lease(value: Option<&Value>) -> Result<Lease, EurekaError> {
    let Some(Value::Object(fields)) = value else { return Ok(Lease::default()) };
    let seconds = |field, default: u32| -> Result<u32, EurekaError> {
        Ok(number(fields, field)?.and_then(|number| u32::try_from(number).ok()).filter(|s| *s > 0).unwrap_or(default))
    };
    let default = Lease::default();
    Ok(Lease {
        renewal_s: seconds("renewalIntervalInSecs", default.renewal_s)?,
        duration_s: seconds("durationInSecs", default.duration_s)?,
        registered_ms: unsigned(fields, "registrationTimestamp")?,
        renewed_ms: unsigned(fields, "lastRenewalTimestamp")?,
        evicted_ms: unsigned(fields, "evictionTimestamp")?,
        up_ms: unsigned(fields, "serviceUpTimestamp")?,
    })
}
