//! Workloads made from published figures of production caches.

mod meta_kvcache;
mod twitter;

use crate::error::{BenchError, Result};
use crate::operation::Operation;
use crate::popularity::Popularity;
use crate::weighted::Weighted;

/// A named workload; every part can be overridden on the command line.
#[derive(Debug, Clone)]
pub struct Profile {
    /// How it is called.
    pub name: String,
    /// What it stands for, and where its numbers are from.
    pub about: String,
    /// Number of keys.
    pub keys: u64,
    /// Key length in bytes.
    pub key_length: usize,
    /// Value sizes in bytes.
    pub sizes: Weighted<u32>,
    /// Expiration times in seconds.
    pub ttls: Weighted<u32>,
    /// Operations.
    pub mix: Weighted<Operation>,
    /// How often each key is asked for.
    pub popularity: Popularity,
    /// Share of requests to keys asked for only once, 0 to 1.
    pub once_share: f64,
}

/// Every profile's name with one line about it.
pub fn list() -> Vec<(String, String)> {
    let mut profiles = vec![(meta_kvcache::NAME.to_owned(), meta_kvcache::ABOUT.to_owned())];
    profiles.extend(twitter::CLUSTERS.iter().map(|cluster| (cluster.name.to_owned(), cluster.about.to_owned())));
    profiles
}

/// The profile with this name.
///
/// # Errors
/// [`BenchError::Option`] when there is none, [`BenchError::File`] or [`BenchError::Format`] when its files cannot be used.
pub fn find(name: &str) -> Result<Profile> {
    if name == meta_kvcache::NAME {
        return meta_kvcache::profile();
    }
    if let Some(cluster) = twitter::CLUSTERS.iter().find(|cluster| cluster.name == name) {
        return Ok(cluster.profile());
    }
    let names: Vec<_> = list().into_iter().map(|(name, _)| name).collect();
    Err(BenchError::option("profile", name, format!("expected one of {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_profile_can_be_found_and_has_unique_keys_that_fit() {
        for (name, _) in list() {
            let profile = find(&name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.key_length >= crate::keys::shortest_length(1 << 48), "{name}");
        }
        assert!(find("nothing").unwrap_err().to_string().contains("twitter-4"));
    }
}
