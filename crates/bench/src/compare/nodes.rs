//! Nodes behind the servers that are compared, which are proxies then: the same for both, and for all rounds.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::address::Address;
use crate::error::{BenchError, Result};
use crate::placement::FIRST_NODE;
use crate::server::{Origin, Server};

/// In how many zones `{zones}` puts the nodes, where so many divide them.
const ZONES: usize = 3;

/// The nodes a comparison is to have.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// How they are started, with a number each for `{number}`, and where they run.
    pub origins: Vec<Origin>,
    /// How many are started with each command line.
    pub count: usize,
    /// CPUs of those that are started.
    pub cpus: Vec<usize>,
}

/// Nodes that answer, and files that name them. All of it ends with this value.
#[derive(Debug)]
pub struct Nodes {
    servers: Vec<Server>,
    directory: TempDir,
}

impl Nodes {
    /// Starts the nodes.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn start(settings: &NodeSettings) -> Result<Self> {
        let directory = TempDir::new().map_err(|error| BenchError::system("create a temporary folder", error))?;
        let all = settings.origins.iter().flat_map(|origin| {
            let count = if matches!(origin, Origin::Started(_)) { settings.count } else { 1 };
            std::iter::repeat_n(origin, count)
        });
        let open = |(number, origin): (usize, &Origin)| {
            let origin = match origin {
                Origin::Started(line) => Origin::Started(line.replace("{number}", &number.to_string())),
                running @ Origin::Running(_) => running.clone(),
            };
            Server::open(&origin, None, &settings.cpus)
        };
        let servers = all.enumerate().map(open).collect::<Result<_>>()?;
        Ok(Self { servers, directory })
    }

    /// The origin of a server whose command line names the nodes: `{topology}` is a file for `moneta proxy` with all of them in
    /// one zone, `{zones}` one with a third of them in each of `zone0` to `zone2`, `{twemproxy}` and `{mcrouter}` are such
    /// programs' files. `{node}` alone is the first node itself.
    ///
    /// # Errors
    /// [`BenchError::Option`] when three zones do not divide the nodes, [`BenchError::System`] when a file cannot be written.
    pub fn name_in(&self, origin: &Origin) -> Result<Origin> {
        let Origin::Started(line) = origin else { return Ok(origin.clone()) };
        if line == FIRST_NODE {
            return Ok(Origin::Running(self.servers[0].address().clone()));
        }
        let mut line = line.clone();
        for (name, text) in FILES {
            if line.contains(name) {
                let path = self.file(name, &text(&self.addresses())?)?;
                // Its own port is known when it is started.
                line = line.replace(name, &format!("{{file:{}}}", path.display()));
            }
        }
        Ok(Origin::Started(line))
    }

    fn addresses(&self) -> Vec<&Address> {
        self.servers.iter().map(Server::address).collect()
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name.trim_matches(['{', '}']));
        fs::write(&path, text).map_err(|error| BenchError::system("write a proxy's file", error))?;
        Ok(path)
    }
}

type Text = fn(&[&Address]) -> Result<String>;

/// What stands for files in command lines.
const FILES: [(&str, Text); 4] = [
    ("{topology}", |nodes| Ok(replica("a", nodes))),
    ("{zones}", zones),
    ("{twemproxy}", |nodes| Ok(twemproxy(nodes))),
    ("{mcrouter}", |nodes| Ok(mcrouter(nodes))),
];

fn replica(zone: &str, nodes: &[&Address]) -> String {
    let slots = nodes.iter().enumerate().map(|(slot, node)| format!("\"{slot}={node}\""));
    format!("[[replica]]\nzone = \"{zone}\"\nnodes = [{}]\n", slots.collect::<Vec<_>>().join(", "))
}

fn zones(nodes: &[&Address]) -> Result<String> {
    if !nodes.len().is_multiple_of(ZONES) {
        return Err(BenchError::option("nodes", nodes.len(), "three zones need a multiple of 3 for {zones}"));
    }
    let zones = nodes.chunks(nodes.len() / ZONES).enumerate();
    Ok(zones.map(|(number, nodes)| replica(&format!("zone{number}"), nodes)).collect())
}

/// As its users run it: ketama over all nodes, none ejected.
fn twemproxy(nodes: &[&Address]) -> String {
    let servers: String = nodes.iter().map(|node| format!("   - {node}:1\n")).collect();
    let settings = "  hash: fnv1a_64\n  distribution: ketama\n  timeout: 1000\n";
    format!("alpha:\n  listen: 127.0.0.1:{{port}}\n{settings}  servers:\n{servers}")
}

fn mcrouter(nodes: &[&Address]) -> String {
    let servers: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    serde_json::json!({ "pools": { "all": { "servers": servers } }, "route": "PoolRoute|all" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::names_nodes;

    fn addresses() -> Vec<Address> {
        (1..=6).map(|port| format!("127.0.0.1:{port}").parse().unwrap()).collect()
    }

    #[test]
    fn every_proxy_is_given_all_nodes() {
        let nodes = addresses();
        let nodes: Vec<&Address> = nodes.iter().collect();
        for (name, text) in FILES {
            let text = text(&nodes).unwrap();
            assert!(nodes.iter().all(|node| text.contains(&node.to_string())), "{name}: {text}");
        }
        assert_eq!(zones(&nodes).unwrap().matches("[[replica]]").count(), ZONES);
        assert!(zones(&nodes[..4]).is_err());
    }

    #[test]
    fn command_lines_that_name_nodes_are_told_apart() {
        assert!(FILES.iter().all(|(name, _)| names_nodes(&format!("proxy -c {name}"))) && names_nodes(FIRST_NODE));
        assert!(!names_nodes("memcached -p {port}"));
    }
}
