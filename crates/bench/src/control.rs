//! A slow, simple connection beside the load: asks a server for its version and its statistics.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use moneta_net::Stream;

use crate::address::{Address, Subject};
use crate::error::Result;

/// How long an answer may take before the server counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that speaks the classic text protocol, which every memcached server understands.
#[derive(Debug)]
pub struct Control {
    address: Address,
    stream: BufReader<Stream>,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`].
    pub fn connect(address: &Address) -> Result<Self> {
        let stream = address.connect_for(PATIENCE)?;
        Ok(Self { address: address.clone(), stream: BufReader::new(stream) })
    }

    /// The version the server reports.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`] or [`crate::BenchError::Protocol`].
    pub fn version(&mut self) -> Result<String> {
        self.send("version\r\n")?;
        let line = self.line()?;
        match line.strip_prefix("VERSION ") {
            Some(version) => Ok(version.to_owned()),
            None => Err(self.address.violated(format!("expected VERSION, got {line:?}"))),
        }
    }

    /// The statistics of `stats`, by name.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`] or [`crate::BenchError::Protocol`].
    pub fn stats(&mut self) -> Result<BTreeMap<String, String>> {
        self.send("stats\r\n")?;
        let mut stats = BTreeMap::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(stats);
            }
            match line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) {
                Some((name, value)) => stats.insert(name.to_owned(), value.to_owned()),
                None => return Err(self.address.violated(format!("expected STAT or END, got {line:?}"))),
            };
        }
    }

    /// One statistic that is a count.
    ///
    /// # Errors
    /// As [`Control::stats`], and when the server does not report it.
    pub fn count(&mut self, name: &str) -> Result<u64> {
        let stats = self.stats()?;
        let count = stats.get(name).and_then(|value| value.parse().ok());
        count.ok_or_else(|| self.address.violated(format!("stats has no number {name:?}")))
    }

    fn send(&mut self, command: &str) -> Result<()> {
        self.stream.get_mut().write_all(command.as_bytes()).map_err(|source| self.address.failed(source))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(self.address.failed(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
            Err(source) => Err(self.address.failed(source)),
        }
    }
}
