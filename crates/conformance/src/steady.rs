//! Whether a node goes on writing to its device. A disk that many use may take seconds for a sync; what a node had to have
//! written by some moment can only be said while that was not so.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::client::{Address, Client};

/// How long a disk may take before the writing counts as held up.
const HELD_UP: Duration = Duration::from_millis(1_500);
/// How long it is waited for a disk in all.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A node under a load of writes, as it is seen to write.
#[derive(Debug)]
pub struct Steady {
    client: Client,
    bytes: u64,
    /// When it was last seen to have written more.
    grown: Instant,
    /// Since when it was not held up.
    since: Instant,
}

impl Steady {
    /// Begins to look at a node.
    pub fn new(address: &Address) -> Result<Self> {
        let mut client = Client::connect(address)?;
        let bytes = written(&mut client)?;
        Ok(Self { client, bytes, grown: Instant::now(), since: Instant::now() })
    }

    /// Looks, and says for how long the node has not been held up. To be called often.
    pub fn look(&mut self) -> Result<Duration> {
        let bytes = written(&mut self.client)?;
        let now = Instant::now();
        if now - self.grown > HELD_UP {
            self.since = now;
        }
        if bytes > self.bytes {
            (self.bytes, self.grown) = (bytes, now);
        }
        Ok(now - self.since)
    }

    /// Waits until the node has not been held up for this long, and does `meanwhile` again and again. False on a machine where
    /// that does not come about, though the node writes.
    pub fn wait(&mut self, long: Duration, mut meanwhile: impl FnMut() -> Result<()>) -> Result<bool> {
        let (start, before) = (Instant::now(), self.bytes);
        while self.look()? < long {
            if start.elapsed() > PATIENCE {
                ensure!(self.bytes > before, "the node writes nothing to its device");
                return Ok(false);
            }
            meanwhile()?;
            sleep(POLL);
        }
        Ok(true)
    }
}

fn written(client: &mut Client) -> Result<u64> {
    client.stat("extstore_bytes_written")
}
