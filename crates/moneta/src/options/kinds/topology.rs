//! The kinds of what says where a topology comes from, and of an address in one.

use std::path::PathBuf;

use moneta_net::Address;
use moneta_options::kinds::Kind;
use moneta_options::kinds::words::Name;

/// The address of a server; may be left out.
pub struct Server;

impl Kind for Server {
    type Value = Option<Address>;

    fn read(&self, text: &str) -> Option<Option<Address>> {
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn write(&self, address: &Option<Address>) -> String {
        address.as_ref().map_or_else(String::new, ToString::to_string)
    }

    fn range(&self) -> String {
        "HOST:PORT, or the path of a Unix socket".into()
    }

    fn placeholder(&self) -> String {
        "ADDRESS".into()
    }
}

/// `FILE`, `evcache:FILE`, `evcache:FILE#PROPERTY`, `dns:ZONE=NAME,ZONE=NAME`, or `control:APP`; may be left out.
pub struct TopologySource;

/// Where a topology comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A TOML file.
    Toml(PathBuf),
    /// A file with EVCache's list of nodes, or with properties of which this one is it.
    Evcache(PathBuf, Option<String>),
    /// Zones, and the names of their nodes in DNS.
    Dns(Vec<(String, String)>),
    /// An app's, of the control plane.
    Control(String),
}

impl Kind for TopologySource {
    type Value = Option<Source>;

    fn read(&self, text: &str) -> Option<Option<Source>> {
        if text.is_empty() {
            return Some(None);
        }
        if let Some(zones) = text.strip_prefix("dns:") {
            let pair = |zone: &str| {
                let (zone, name) = zone.split_once('=')?;
                (!zone.is_empty() && !name.is_empty()).then(|| (zone.to_owned(), name.to_owned()))
            };
            return zones.split(',').map(pair).collect::<Option<_>>().map(|zones| Some(Source::Dns(zones)));
        }
        if let Some(app) = text.strip_prefix("control:") {
            return Name.read(app).flatten().map(|app| Some(Source::Control(app)));
        }
        Some(Some(match text.strip_prefix("evcache:") {
            None => Source::Toml(text.into()),
            Some(file) => match file.split_once('#') {
                None => Source::Evcache(file.into(), None),
                Some((file, property)) => Source::Evcache(file.into(), Some(property.to_owned())),
            },
        }))
    }

    fn write(&self, source: &Option<Source>) -> String {
        match source {
            None => String::new(),
            Some(Source::Toml(path)) => path.display().to_string(),
            Some(Source::Evcache(path, None)) => format!("evcache:{}", path.display()),
            Some(Source::Evcache(path, Some(property))) => format!("evcache:{}#{property}", path.display()),
            Some(Source::Dns(zones)) => {
                let zones: Vec<String> = zones.iter().map(|(zone, name)| format!("{zone}={name}")).collect();
                format!("dns:{}", zones.join(","))
            }
            Some(Source::Control(app)) => format!("control:{app}"),
        }
    }

    fn range(&self) -> String {
        "the path of a TOML file, `evcache:FILE`, `evcache:FILE#PROPERTY`, `dns:ZONE=NAME,ZONE=NAME`, or `control:APP`"
            .into()
    }

    fn placeholder(&self) -> String {
        "SOURCE".into()
    }
}
