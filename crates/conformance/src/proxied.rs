//! A proxy over three zones with a node each: all Moneta, or all memcached.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::differential::tiers::Tiers;
use crate::options::{Kind, Options};
use crate::server::Server;

/// Zones, each with a node. The proxy is in the first one.
const ZONES: [&str; 3] = ["a", "b", "c"];
/// For half of this a Moneta node that has just started creates nothing that came from elsewhere.
const HORIZON: Duration = Duration::from_secs(1);
/// How long the proxy waits for a node: more than a busy machine ever takes, as nothing hangs here.
const NODE_TIMEOUT: &str = "20s";
/// Largest item where the options name none, in KiB.
const ITEM_KIBIBYTES: u32 = 1024;

/// The proxy and its nodes. All of it ends with this value.
#[derive(Debug)]
pub struct Proxied {
    /// The proxy.
    pub server: Server,
    _nodes: Vec<Server>,
    _folder: TempDir,
}

impl Proxied {
    /// What a proxy over such nodes may answer otherwise than a server that holds the items itself.
    pub fn tiers(nodes: Kind) -> Tiers {
        Tiers {
            no_memory_limit: true,
            fetched_unknown: true,
            stale_items_change: nodes == Kind::Memcached,
            effects_come_late: true,
            is_cluster: true,
            ends_are_absolute: nodes == Kind::Memcached,
        }
    }

    /// Starts nodes of this kind with `options`, and the proxy on a free port of 127.0.0.1.
    pub fn start(nodes: Kind, options: &Options) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut topology = String::from("epoch = 1\n");
        let mut running = Vec::new();
        for (number, zone) in ZONES.iter().enumerate() {
            let socket = folder.path().join(format!("{zone}.sock"));
            topology += &format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", socket.display());
            running.push(node(nodes, number, &socket, options)?);
        }
        let file = folder.path().join("topology.toml");
        std::fs::write(&file, topology)?;
        if nodes == Kind::Moneta {
            sleep(HORIZON);
        }
        let item = format!("{}k", options.item_kibibytes.unwrap_or(ITEM_KIBIBYTES));
        let server = Server::start_moneta(|port| {
            let port = port.to_string();
            let arguments = ["proxy", "--admin", "off", "-p", &port, "--zone", ZONES[0], "--threads", "1", "-I", &item];
            // Nor is a node given up for being slow: what is compared is answers.
            let rest = ["--node-timeout", NODE_TIMEOUT, "--eject-slow", "0", "--topology"];
            arguments.iter().chain(&rest).map(Into::into).chain([file.clone().into()]).collect()
        })?;
        Ok(Self { server, _nodes: running, _folder: folder })
    }
}

fn node(kind: Kind, number: usize, socket: &Path, options: &Options) -> Result<Server> {
    let tiers = ["--cluster".into(), "--writer-id".into(), number.to_string().into()].into();
    let unix_socket = Some((socket.to_owned(), "700".into()));
    Server::start(kind, &Options { tiers, unix_socket, ..options.clone() })
}
