//! `moneta backup verify`: starts the empty node, and ends it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_backup::{moment, verify as verifying};
use moneta_bulk::Server;
use moneta_net::{Address, Endpoint};

use super::super::archives;
use super::super::moving::{Screen, print};
use super::{VerifyArgs, opened};

/// How long the node may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes that an item takes on the node beside its key and value.
const EACH: u64 = 256;
/// Bytes of items up to which they are kept in RAM alone.
const IN_RAM: u64 = 256 << 20;
/// Memory that the node is given beside that for items and for values on their way.
const MEMORY_REST: u64 = 64 << 20;

/// Restores, compares, notes it down.
pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    let archive = archives::to_write(&args.of.from)?;
    let archive = opened(archive, args.identity.as_deref())?;
    let (items, bytes) = verifying::size(&archive, args.at)?;
    let folder = tempfile::tempdir().context("there is no folder for temporary files")?;
    let mut node = Node::start(folder.path(), bytes.saturating_add(items.saturating_mul(EACH)), args.value_max)?;
    let screen = Screen::new("backup verify")?;
    let endpoint = node.endpoint()?;
    let verified = verifying::verify(&archive, args.at, &endpoint, usize::try_from(args.value_max)?, &screen);
    screen.end();
    drop(node);
    let Some(verified) = verified? else { bail!("it was stopped before all was compared") };
    let text = format!(
        "verified: {} items, {} bytes, as of {}",
        verified.items,
        verified.bytes,
        moment::text(verified.point())
    );
    print(&verified, args.of.json, &text)
}

/// A node that ends when this is dropped.
struct Node {
    process: Child,
    socket: String,
}

impl Node {
    /// Starts one with room for so many bytes of items, and for values so large, on a Unix socket in `folder`.
    fn start(folder: &Path, bytes: u64, value_max: u64) -> anyhow::Result<Self> {
        let socket = folder.join("verify.sock").display().to_string();
        let program = std::env::current_exe().context("this program does not know its path")?;
        let room = bytes.saturating_mul(2);
        let mut command = Command::new(program);
        // The largest that a node takes.
        let value_max = value_max.clamp(1 << 20, 1 << 30);
        command.args([
            "serve",
            "--cluster",
            "-s",
            &socket,
            "--admin",
            "off",
            "--threads",
            "2",
            "-I",
            &value_max.to_string(),
        ]);
        // A node wants room for two of them and their bookkeeping.
        let least = MEMORY_REST + 3 * value_max;
        let is_in_ram = bytes <= IN_RAM;
        let memory = if is_in_ram { least.saturating_add(room) } else { least };
        command.args(["-m", &(memory >> 20).to_string()]);
        if !is_in_ram {
            // Of regions that have room for the largest value, a tier has 16 at least.
            let tier =
                format!("{}:{}m", folder.join("tier").display(), (room.saturating_add(80 * value_max) >> 20) + 1024);
            command.args(["--flash", &tier]);
        }
        let log = std::fs::File::create(folder.join("log")).context("the folder for temporary files takes no file")?;
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().context("the node that verifies cannot be started")?;
        Ok(Self { process, socket })
    }

    /// Its address, once it serves.
    fn endpoint(&mut self) -> anyhow::Result<Endpoint> {
        let address: Address = self.socket.parse().context("the folder for temporary files has no plain name")?;
        // Not by what the command was told of users and TLS: the node is its own.
        let endpoint = Endpoint::new(address);
        let begun = Instant::now();
        loop {
            match Server::look(&endpoint) {
                Ok(server) if server.has_versions => return Ok(endpoint),
                Ok(_) => bail!("the node that verifies knows no versions"),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error).context(self.log()),
                Err(_) => {}
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("the node that verifies ended with {status}: {}", self.log());
            }
            sleep(PAUSE);
        }
    }

    fn log(&self) -> String {
        let log = Path::new(&self.socket).with_file_name("log");
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().last().unwrap_or("it says nothing").to_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It holds nothing that anyone wants.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
