//! A topology in a file, or given once and for all.
//!
//! The file is read once a second and its text compared, rather than its times: files of some KiB cost nothing to read, two
//! changes within a file system's tick are seen, and so is a file that was renamed over the old one, or a link that was turned
//! (as in a mounted ConfigMap).

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use moneta_net::HostPort;

use super::source::{SourceError, TopologySource};
use crate::topology::Topology;

/// How often the file is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the hosts of a node list are resolved again: as often as EVCache's client refreshes its pools.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(60);

/// What a file says, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// [`Topology::from_toml`].
    Toml,
    /// EVCache's node list, as the whole file, or as the property of this key in a Java properties file. Hosts listed by name are
    /// resolved by the system.
    Evcache(Option<String>),
}

/// A source that is a text: a file's, read again and again, or a given one.
pub struct FileSource {
    place: TextPlace,
    format: Format,
    interval: Duration,
    /// When it is read next.
    due: Instant,
    /// What was read last, and when that was made a topology of.
    last: Option<(String, Topology, Instant)>,
}

enum TextPlace {
    File(PathBuf),
    Given(String),
}

impl FileSource {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>, format: Format) -> Self {
        Self::of(TextPlace::File(path.into()), format)
    }

    /// The text `given`, whose hosts may still change their numbers. The [`Format::Evcache`] of a text that was given is the list
    /// itself.
    pub fn given(text: impl Into<String>, format: Format) -> Self {
        Self::of(TextPlace::Given(text.into()), format)
    }

    fn of(place: TextPlace, format: Format) -> Self {
        Self { place, format, interval: INTERVAL, due: Instant::now(), last: None }
    }

    /// Reads it every `interval` instead of every second.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    fn read(&mut self) -> Result<Topology, SourceError> {
        let text = match &self.place {
            TextPlace::Given(text) => text.clone(),
            TextPlace::File(path) => {
                let wrong = |source| SourceError::File { path: path.clone(), source };
                let text = fs::read_to_string(path).map_err(wrong)?;
                match &self.format {
                    Format::Evcache(Some(key)) => property(&text, key)
                        .ok_or_else(|| SourceError::Property { path: path.clone(), property: key.clone() })?
                        .to_owned(),
                    _ => text,
                }
            }
        };
        if let Some((last, topology, since)) = &self.last
            && *last == text
            && (self.format == Format::Toml || since.elapsed() < RESOLVE_INTERVAL)
        {
            return Ok(topology.clone());
        }
        let topology = match self.format {
            Format::Toml => Topology::from_toml(&text)?,
            Format::Evcache(_) => {
                let last = self.last.as_ref().map(|(_, topology, _)| topology);
                Topology::from_evcache(&text, |host| resolve(host, last))?
            }
        };
        self.last = Some((text, topology.clone(), Instant::now()));
        Ok(topology)
    }
}

impl TopologySource for FileSource {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        let wait = self.due.saturating_duration_since(Instant::now());
        thread::sleep(wait.min(timeout));
        if wait > timeout {
            return Ok(None);
        }
        self.due = Instant::now() + self.interval;
        self.read().map(Some)
    }

    fn hurry(&mut self) {
        self.due = Instant::now();
    }

    fn name(&self) -> String {
        match &self.place {
            TextPlace::File(path) => format!("file {}", path.display()),
            TextPlace::Given(_) => "option".to_owned(),
        }
    }
}

/// The value of `key` in the text of a Java properties file: `key=value` or `key: value`, without its escapes, which node lists
/// do not need.
fn property<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = |line: &'a str| {
        let rest = line.trim().strip_prefix(key)?.trim_start();
        rest.strip_prefix(['=', ':']).map(str::trim)
    };
    // The last one counts, as in Java.
    text.lines().filter_map(line).next_back()
}

/// The number of `host`; the one it had, as long as it has that one too or the name server does not answer.
fn resolve(host: &str, last: Option<&Topology>) -> Option<IpAddr> {
    let had: Option<IpAddr> = last
        .and_then(|last| last.nodes().find_map(|node| node.slot.strip_prefix(host)?.strip_prefix('/')?.parse().ok()));
    match HostPort::new(host, 0).resolve() {
        Ok(found) => {
            let found: Vec<IpAddr> = found.into_iter().map(|address| address.ip()).collect();
            had.filter(|had| found.contains(had)).or(found.into_iter().min())
        }
        Err(error) => {
            tracing::debug!(host, %error, "the host has no number now");
            had
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_property_is_found_by_its_whole_key() {
        let text =
            "# APP-NODES=no\nMYAPP-NODES=no\n APP-NODES = SG1=h:1,h:2;SG2=h:3 \nAPP-NODES.x=no\nOTHER-NODES: b=h:4";
        assert_eq!(property(text, "APP-NODES"), Some("SG1=h:1,h:2;SG2=h:3"));
        assert_eq!(property(text, "OTHER-NODES"), Some("b=h:4"));
        assert_eq!(property(text, "NODES"), None);
        assert_eq!(property("A=1\nA=2", "A"), Some("2"));
    }
}
