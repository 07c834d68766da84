//! What a server says of its tiers in `stats`: memcached with extstore, and Moneta, which takes extstore's names where it can.

use std::collections::BTreeMap;

use moneta_bench::Result;
use moneta_bench::address::Address;
use moneta_bench::control::Control;

/// Counters and gauges of one moment. What a server does not report is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SsdCounters {
    /// Keys read that were there.
    pub hits: u64,
    /// Of these, answered from the SSD tier.
    pub ssd_hits: u64,
    /// Items that can be read.
    pub items: u64,
    /// Items that were let go to make room, of either tier, and lost.
    pub lost: u64,
    /// Bytes written to the device, as the server counts them.
    pub device_written: u64,
    /// Bytes of keys and values carried forward out of regions that were emptied; memcached does not tell what its compaction
    /// moved.
    pub carried: Option<u64>,
    /// Bytes of RAM of the index of the SSD tier; memcached does not tell what the headers of such items take.
    pub index: Option<u64>,
    /// Bytes of RAM for fixed buffers of the SSD tier.
    pub buffers: u64,
    /// Duration of the recovery at start in microseconds.
    pub recovery_microseconds: u64,
    /// Bytes it read.
    pub recovery_read: u64,
    /// Bytes of the device it answered for.
    pub recovery_covered: u64,
}

impl SsdCounters {
    /// Asks the server.
    ///
    /// # Errors
    /// As [`Control::stats`].
    pub fn read(address: &Address) -> Result<Self> {
        Ok(Self::parse(&Control::connect(address)?.stats()?))
    }

    fn parse(stats: &BTreeMap<String, String>) -> Self {
        let known = |name: &str| stats.get(name).and_then(|value| value.parse::<u64>().ok());
        let number = |name: &str| known(name).unwrap_or(0);
        let index = known("flash_index_bytes");
        // Moneta has every item on SSD, and its evictions from RAM lose nothing; memcached's are lost wherever they happen.
        let (items, lost) = match index {
            Some(_) => (number("extstore_objects_used"), number("extstore_objects_evicted")),
            None => {
                let losses = ["evictions", "extstore_objects_evicted", "extstore_compact_lost"];
                (number("curr_items"), losses.into_iter().map(number).sum())
            }
        };
        Self {
            hits: number("get_hits"),
            ssd_hits: number("get_extstore"),
            items,
            lost,
            device_written: number("extstore_bytes_written"),
            carried: known("flash_carried_bytes"),
            index,
            buffers: number("flash_buffer_bytes"),
            recovery_microseconds: number("flash_recovery_microseconds"),
            recovery_read: number("flash_recovery_read_bytes"),
            recovery_covered: number("flash_recovered_regions") * number("flash_region_bytes"),
        }
    }

    /// The share of the hits since `earlier` that the SSD tier answered, 0 to 1.
    pub fn ssd_share_since(&self, earlier: &Self) -> f64 {
        let hits = self.hits.saturating_sub(earlier.hits);
        self.ssd_hits.saturating_sub(earlier.ssd_hits) as f64 / hits.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stats: &[(&str, &str)]) -> SsdCounters {
        SsdCounters::parse(&stats.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn both_programs_names_are_known() {
        let peer = parse(&[
            ("get_hits", "100"),
            ("get_extstore", "90"),
            ("curr_items", "7"),
            ("evictions", "3"),
            ("extstore_objects_evicted", "2"),
        ]);
        assert_eq!((peer.ssd_hits, peer.items, peer.index, peer.lost), (90, 7, None, 5));
        let node = parse(&[
            ("get_hits", "100"),
            ("get_extstore", "80"),
            ("curr_items", "3"),
            ("extstore_objects_used", "9"),
            ("evictions", "3"),
            ("flash_index_bytes", "50"),
            ("flash_region_bytes", "8"),
            ("flash_recovered_regions", "4"),
        ]);
        assert_eq!((node.ssd_hits, node.items, node.index, node.lost), (80, 9, Some(50), 0));
        assert_eq!(node.recovery_covered, 32);
    }

    #[test]
    fn the_share_of_the_ssd_is_of_the_hits_in_between() {
        let before = SsdCounters { hits: 100, ssd_hits: 100, ..SsdCounters::default() };
        let after = SsdCounters { hits: 200, ssd_hits: 125, ..SsdCounters::default() };
        assert_eq!(after.ssd_share_since(&before), 0.25);
        assert_eq!(before.ssd_share_since(&before), 0.0);
    }
}
