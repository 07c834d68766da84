//! EVCache's node list: the property `<APP>-NODES` of its simple node list provider.
//!
//! `SG1=host:port,name/ip:port;SG2=…`: server groups, each of which is a full copy, and their nodes.

use std::net::IpAddr;

use moneta_net::{Address, AddressError};

use super::error::TopologyError;
use super::replicas::{Node, Replica, RingKind, Topology};

impl Topology {
    /// The topology of a node list `property`, with epoch 0. A group is a replica and, since the list does not say where it
    /// stands, the zone of that name. Nodes are placed by the ring `evcache`, in slots `name/ip`; `resolve` is asked for the
    /// number of a host that is listed by name only, since the ring needs it. (EVCache's client asks the name server for the name
    /// of a host listed by number only, and takes the number for a name if it has none, as is done here.)
    ///
    /// # Errors
    /// What is no such list, as a whole properties file; a host that `resolve` does not know, or what [`Topology::check`]
    /// refuses. Two nodes on one host have one slot, since EVCache does not place them by their ports.
    pub fn from_evcache(
        property: &str,
        mut resolve: impl FnMut(&str) -> Option<IpAddr>,
    ) -> Result<Self, TopologyError> {
        let wrong = |text: String| Err(TopologyError::Text(text));
        let mut replicas = Vec::new();
        for group in property.split(';').map(str::trim).filter(|group| !group.is_empty()) {
            let Some((name, list)) = group.split_once('=') else {
                return wrong(format!("\"{group}\" is not GROUP=NODES"));
            };
            let name = name.trim();
            // A line of a properties file reads as a group, and its first group as a node of that.
            if list.contains('=') || name.contains(|letter: char| letter.is_whitespace() || letter == ':') {
                return wrong(format!(
                    "\"{name}\" is no group of nodes but looks like a property's name: of a properties file, name the property, as \
                     evcache:FILE#{}",
                    likely_property(property)
                ));
            }
            if name.is_empty() {
                return wrong(format!("the group of \"{list}\" has no name"));
            }
            let mut nodes = Vec::new();
            for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
                nodes.push(node(text, &mut resolve).map_err(|error| TopologyError::Replica {
                    replica: name.to_owned(),
                    error: Box::new(TopologyError::Text(error)),
                })?);
            }
            replicas.push(Replica { name: name.to_owned(), zone: name.to_owned(), write_only: false, nodes });
        }
        let topology = Self { epoch: 0, ring: RingKind::Evcache, replicas };
        topology.check()?;
        Ok(topology)
    }
}

/// Of the text of a properties file, the property that most looks like a list: the one with the most groups.
fn likely_property(text: &str) -> &str {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
    let line = lines.max_by_key(|line| line.matches('=').count()).unwrap_or_default();
    line.split(['=', ':', ' ']).next().unwrap_or_default()
}

/// The node that `text` lists: `host:port` or `name/ip:port`.
fn node(text: &str, resolve: &mut impl FnMut(&str) -> Option<IpAddr>) -> Result<Node, String> {
    let format = || format!("\"{text}\" is neither HOST:PORT nor NAME/IP:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(format)?;
    let (name, ip) = match host.split_once('/') {
        Some((name, ip)) => (name, without_brackets(ip).parse().map_err(|_| format())?),
        None => {
            let name = without_brackets(host);
            match name.parse() {
                Ok(ip) => (name, ip),
                Err(_) => (name, resolve(name).ok_or_else(|| format!("the host \"{name}\" is not known"))?),
            }
        }
    };
    if name.is_empty() {
        return Err(format());
    }
    let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let address: Address = format!("{host}:{port}").parse().map_err(|error: AddressError| error.to_string())?;
    Ok(Node { slot: format!("{name}/{ip}"), address, admin: None, weight: 1 })
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
