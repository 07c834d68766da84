//! The split topology: memcached as L1, Moneta on SSD as L2, and a Moneta in front of both, each a separate process on a Unix
//! socket, so that one that is started again is where it was.

use std::ffi::OsString;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use moneta_testkit::process::Signal;
use tempfile::TempDir;

use crate::client::{Address, Client};
use crate::options::Kind;
use crate::server::Server;

/// How long a write may wait in the RAM of L2.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How long the front waits for a connection: more than a busy machine ever takes.
const CONNECT_TIMEOUT: &str = "10s";
/// How often it is asked whether the parts are in use, and the pause between.
const ATTEMPTS: usize = 1200;
const PAUSE: Duration = Duration::from_millis(50);

/// One of the three processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// memcached: the hot items.
    L1,
    /// Moneta on SSD: every item.
    L2,
    /// Moneta: what clients talk to.
    Front,
}

/// The three processes, which end with this value.
#[derive(Debug)]
pub struct Split {
    /// Each may be down.
    l1: Option<Server>,
    l2: Option<Server>,
    front: Option<Server>,
    remote_timeout: Duration,
    folder: TempDir,
}

impl Part {
    fn kind(self) -> Kind {
        if self == Self::L1 { Kind::Memcached } else { Kind::Moneta }
    }
}

impl Split {
    /// Starts the front first: none needs another one to start. `remote_timeout`: how long it waits for another process.
    pub fn start(remote_timeout: Duration) -> Result<Self> {
        let mut split = Self { l1: None, l2: None, front: None, remote_timeout, folder: tempfile::tempdir()? };
        std::fs::create_dir(split.folder.path().join("items"))?;
        for part in [Part::Front, Part::L2, Part::L1] {
            split.start_again(part)?;
        }
        split.wait_until_in_use()?;
        Ok(split)
    }

    /// Waits until the front reads and writes L2 again, and keeps in L1 what it reads.
    pub fn wait_until_in_use(&self) -> Result<()> {
        let (mut front, mut l1) = (self.connect(Part::Front)?, self.connect(Part::L1)?);
        for _ in 0..ATTEMPTS {
            if front.set("probe", b"1")? == "STORED" {
                let hits = l1.stat("get_hits")?;
                if front.get("probe")?.is_some() && l1.stat("get_hits")? > hits {
                    return Ok(());
                }
            }
            sleep(PAUSE);
        }
        bail!("the front does not use both tiers")
    }

    fn socket(&self, part: Part) -> PathBuf {
        self.folder.path().join(format!("{part:?}.sock"))
    }

    /// Where a part listens, also while it is down.
    pub fn address(&self, part: Part) -> Address {
        Address::Unix(self.socket(part))
    }

    /// A connection to a part.
    pub fn connect(&self, part: Part) -> Result<Client> {
        Client::connect(&self.address(part))
    }

    fn slot(&mut self, part: Part) -> &mut Option<Server> {
        match part {
            Part::L1 => &mut self.l1,
            Part::L2 => &mut self.l2,
            Part::Front => &mut self.front,
        }
    }

    /// Starts a part that is down, and waits until it answers.
    pub fn start_again(&mut self, part: Part) -> Result<()> {
        let socket = self.socket(part);
        let mut line: Vec<OsString> = match part {
            // More than a test writes, so that it evicts nothing.
            Part::L1 => words("-u root -U 0 -t 2 -m 512"),
            Part::L2 => words("serve --admin off -t 2 --l1 none --flash-region-size 4m"),
            Part::Front => words("serve --admin off -t 2"),
        };
        line.extend(["-s".into(), socket.into()]);
        match part {
            Part::L1 => {}
            Part::L2 => {
                // More than clients write in the half minute that a test may wait on a slow machine: what was never read goes first
                // when room is short, and tests look for such keys.
                let place = format!("{}:1g", self.folder.path().join("items").display());
                let interval = format!("{}ms", FLUSH_INTERVAL.as_millis());
                line.extend(["--flash".into(), place.into(), "--flash-flush-interval".into(), interval.into()]);
            }
            Part::Front => {
                let remote = |part| format!("remote:{}", self.socket(part).display()).into();
                let timeout = format!("{}ms", self.remote_timeout.as_millis());
                line.extend(["--l1".into(), remote(Part::L1), "--l2".into(), remote(Part::L2)]);
                line.extend(["--remote-timeout".into(), timeout.into()]);
                line.extend(["--remote-connect-timeout".into(), CONNECT_TIMEOUT.into()]);
            }
        }
        let server = Server::start_with(part.kind(), &line, self.address(part))?;
        *self.slot(part) = Some(server);
        Ok(())
    }

    /// Ends a part by a signal, and waits until it is gone.
    pub fn end(&mut self, part: Part, signal: Signal) -> Result<()> {
        self.slot(part).take().map_or(Ok(()), |mut server| server.stop_by_signal(signal).map(|_| ()))
    }

    /// Sends a part a signal that it lives through.
    pub fn signal(&mut self, part: Part, signal: Signal) -> Result<()> {
        if let Some(server) = self.slot(part) {
            server.process()?.signal(signal);
        }
        Ok(())
    }
}

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}
