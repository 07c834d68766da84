//! The stacks of tiers a node can be built of, and the processes each needs. [`on_every_stack!`](crate::on_every_stack) is
//! the table: it makes a test of each.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use crate::client::Address;
use crate::options::{Kind, Options};
use crate::server::Server;

/// What a place on disk is given: more than any test writes.
const SIZE: &str = "512m";
const ONLY_THE_OWNER: &str = "700";
/// How long a node waits for another server: more than a busy machine ever takes, as nothing hangs here.
const REMOTE_TIMEOUT: &str = "20s";

/// The tier that has the hot items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// There is none.
    None,
    /// RAM of the node.
    Memory,
    /// A memcached, on a Unix socket.
    Memcached,
}

/// The tier that has every item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// There is none.
    None,
    /// Regions on SSD.
    Flash,
    /// RocksDB.
    Rocks,
    /// LMDB.
    Lmdb,
    /// A memcached, on a Unix socket.
    Memcached,
    /// Another Moneta, on a Unix socket, which has everything on SSD.
    Moneta,
}

/// A stack of tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Above.
    pub upper: Upper,
    /// Below.
    pub lower: Lower,
}

/// A node on a [`Stack`], and what it needs. All of it ends with this value.
#[derive(Debug)]
pub struct Node {
    /// The node, with a listener for online traffic.
    pub server: Server,
    /// Its listener for batch traffic.
    pub batch: Address,
    _peers: Vec<Server>,
    _folder: TempDir,
}

impl Stack {
    /// A stack of these two.
    pub const fn new(upper: Upper, lower: Lower) -> Self {
        Self { upper, lower }
    }

    /// Whether items are held in RAM of the node.
    pub fn has_memory(self) -> bool {
        self.upper == Upper::Memory
    }

    /// Starts a node on this stack. Other servers it needs are started before it, with the same `options`.
    pub fn start(self, options: &Options) -> Result<Node> {
        let folder = tempfile::tempdir()?;
        let mut peers = Vec::new();
        let mut tiers = vec!["--l1".into()];
        tiers.push(match self.upper {
            Upper::None => "none".into(),
            Upper::Memory => "memory".into(),
            Upper::Memcached => peer(Kind::Memcached, folder.path().join("upper.sock"), options, &mut peers)?,
        });
        let place = place(&folder.path().join("items"))?;
        tiers.extend(match self.lower {
            Lower::None => vec!["--l2".into(), "none".into()],
            Lower::Flash => vec!["--flash".into(), place],
            Lower::Rocks => vec!["--rocks".into(), place],
            Lower::Lmdb => vec!["--lmdb".into(), place],
            Lower::Memcached => {
                let socket = folder.path().join("lower.sock");
                vec!["--l2".into(), peer(Kind::Memcached, socket, options, &mut peers)?]
            }
            Lower::Moneta => {
                let tiers = ["--l1".into(), "none".into(), "--flash".into(), place].into();
                let options = Options { tiers, ..options.clone() };
                let socket = folder.path().join("lower.sock");
                vec!["--l2".into(), peer(Kind::Moneta, socket, &options, &mut peers)?]
            }
        });
        let batch = folder.path().join("batch.sock");
        let file = folder.path().join("moneta.toml");
        std::fs::write(&file, format!("[[listener]]\naddress = \"{}\"\npolicy = \"batch\"\n", batch.display()))?;
        tiers.extend(["--config".into(), file.into()]);
        if !peers.is_empty() {
            tiers.extend(
                ["--remote-timeout", REMOTE_TIMEOUT, "--remote-connect-timeout", REMOTE_TIMEOUT].map(OsString::from),
            );
        }
        let server = Server::start(Kind::Moneta, &Options { tiers, ..options.clone() })?;
        Ok(Node { server, batch: Address::Unix(batch), _peers: peers, _folder: folder })
    }
}

/// Starts a server on `socket`, and says how it is named as a tier.
fn peer(kind: Kind, socket: PathBuf, options: &Options, peers: &mut Vec<Server>) -> Result<OsString> {
    let name = format!("remote:{}", socket.display()).into();
    peers
        .push(Server::start(kind, &Options { unix_socket: Some((socket, ONLY_THE_OWNER.into())), ..options.clone() })?);
    Ok(name)
}

fn place(folder: &Path) -> Result<OsString> {
    std::fs::create_dir(folder)?;
    Ok(format!("{}:{SIZE}", folder.display()).into())
}

/// Makes a test of every stack: a function of its name, which calls `$check` with it.
#[macro_export]
macro_rules! on_every_stack {
    ($check:path) => {
        $crate::on_stacks! { $check;
            memory: Memory, None;
            flash: None, Flash;
            memory_and_flash: Memory, Flash;
            memcached_and_flash: Memcached, Flash;
            memory_and_remote_flash: Memory, Moneta;
            memcached_and_remote_flash: Memcached, Moneta;
            proxy_of_memcached: None, Memcached;
        }
        #[cfg(feature = "engines")]
        $crate::on_stacks! { $check;
            rocks: None, Rocks;
            lmdb: None, Lmdb;
            memory_and_rocks: Memory, Rocks;
            memory_and_lmdb: Memory, Lmdb;
        }
    };
}

/// The stacks of [`on_every_stack!`](crate::on_every_stack), a line each.
#[macro_export]
macro_rules! on_stacks {
    ($check:path; $($name:ident: $upper:ident, $lower:ident;)+) => {
        $(
            #[test]
            fn $name() -> anyhow::Result<()> {
                let (upper, lower) = ($crate::stacks::Upper::$upper, $crate::stacks::Lower::$lower);
                $check($crate::stacks::Stack::new(upper, lower))
            }
        )+
    };
}
