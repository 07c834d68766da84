//! Values to and from bytes.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::applications::{Application, Applications};
use crate::error::EurekaError;
use crate::instance::Instance;
use crate::mapping;
use crate::xml;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// JSON.
    Json,
    /// XML, which Eureka answers with where JSON is not asked for.
    Xml,
}

impl Encoding {
    /// What an `Accept` header asks for: JSON if it names it, else XML.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.to_ascii_lowercase().contains("json") => Self::Json,
            _ => Self::Xml,
        }
    }

    /// What a body is by its `Content-Type`: XML if that names it, else JSON.
    pub fn sent(content_type: Option<&str>) -> Self {
        match content_type {
            Some(kind) if kind.to_ascii_lowercase().contains("xml") => Self::Xml,
            _ => Self::Json,
        }
    }

    /// The `Content-Type` of an answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
        }
    }

    /// The instance that a client registers.
    ///
    /// # Errors
    /// If it is no instance.
    pub fn read_instance(self, body: &[u8]) -> Result<Instance, EurekaError> {
        let value = match self {
            Self::Json => serde_json::from_slice(body)
                .map_err(|error| EurekaError::Syntax { encoding: "JSON", reason: error.to_string() })?,
            Self::Xml => xml::read(body)?,
        };
        // JSON has the instance under its name; so has XML, whose root it is. Some clients in other languages leave the name out.
        mapping::instance(value.get("instance").unwrap_or(&value))
    }

    /// One instance.
    pub fn write_instance(self, instance: &Instance) -> Vec<u8> {
        self.write("instance", self.instance(instance))
    }

    /// One application.
    pub fn write_application(self, application: &Application) -> Vec<u8> {
        self.write("application", self.application(application))
    }

    /// All applications, or a delta.
    pub fn write_applications(self, all: &Applications) -> Vec<u8> {
        let applications: Vec<Value> =
            all.applications.iter().map(|application| self.application(application)).collect();
        let value = json!({
            "versions__delta": all.version.to_string(),
            "apps__hashcode": all.hash,
            "application": applications,
        });
        self.write("applications", value)
    }

    fn application(self, application: &Application) -> Value {
        let instances: Vec<Value> = application.instances.iter().map(|instance| self.instance(instance)).collect();
        json!({ "name": application.name, "instance": instances })
    }

    fn instance(self, instance: &Instance) -> Value {
        let mut value = mapping::value(instance);
        if self == Self::Xml
            && let Some(fields) = value.as_object_mut()
        {
            // Its XML has this word in lower case; clients read both in JSON.
            let overridden = fields.remove("overriddenStatus").unwrap_or_default();
            fields.insert("overriddenstatus".to_owned(), overridden);
        }
        value
    }

    fn write(self, name: &str, value: Value) -> Vec<u8> {
        match self {
            Self::Json => {
                let mut named = Map::new();
                named.insert(name.to_owned(), value);
                // Writing to memory does not fail.
                serde_json::to_vec(&Ordered(&Value::Object(named))).unwrap_or_default()
            }
            Self::Xml => xml::write(name, &value),
        }
    }
}

/// A value whose objects begin with their class and name: Netflix's own client reads the place of an instance by that order.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 2] = ["@class", "name"];
        match self.0 {
            Value::Array(several) => serializer.collect_seq(several.iter().map(Ordered)),
            Value::Object(fields) => {
                let first = FIRST.iter().filter_map(|name| fields.get_key_value(*name));
                let rest = fields.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
                serializer.collect_map(first.chain(rest).map(|(name, value)| (name, Ordered(value))))
            }
            other => other.serialize(serializer),
        }
    }
}
