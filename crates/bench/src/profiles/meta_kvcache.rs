//! Meta's key-value cache, as published with CacheLib's cachebench.
//!
//! Source: `cachelib/cachebench/test_configs/hit_ratio/kvcache_reg` of <https://github.com/facebook/CacheLib>: `config.json`,
//! `pop.json` and `sizes.json`. They are read from `$MONETA_WORKLOADS/meta-kvcache` if that is set. Otherwise the constants below
//! stand in for them: the same data with neighbouring buckets merged, so that objects, requests and mean size stay the same.
//!
//! How cachebench draws from them: an object by `popularityWeights` over `popularityBuckets`, its size by
//! `valSizeRangeProbability` over `valSizeRange`, fixed for each object; `getRatio` to `loneGetRatio` is the proportion of gets
//! of such objects to gets of keys never asked for again. Reads that miss are followed by a write (`enableLookaside`).

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Profile;
use crate::error::{BenchError, Result};
use crate::operation::Operation;
use crate::popularity::{Groups, Popularity};
use crate::sizes::read_sizes;
use crate::weighted::Weighted;

pub(super) const NAME: &str = "meta-kvcache";
pub(super) const ABOUT: &str =
    "reads with look-aside filling, sizes from 95 B with a long tail (Meta, CacheLib kvcache_reg)";

/// The variable that names the folder with published workloads.
const WORKLOADS: &str = "MONETA_WORKLOADS";
/// The middle of `keySizeRange`, 16 to 255 bytes with even probability; this load's keys all have one length.
const KEY_LENGTH: usize = 135;
const GET_RATIO: f64 = 0.984_528_312_027_565_7;
const LONE_GET_RATIO: f64 = 0.134_716_879_724_342_54;

/// Objects and requests to them.
const POPULARITY: [(u64, f64); 37] = [
    (1, 27638685.0),
    (1, 17015731.0),
    (1, 11027400.0),
    (1, 5522005.0),
    (1, 4087968.0),
    (4, 13374624.0),
    (5, 9329743.0),
    (9, 9945330.0),
    (13, 10063753.0),
    (21, 6541927.0),
    (32, 6295477.0),
    (49, 6628789.0),
    (78, 7894926.0),
    (119, 8806248.0),
    (182, 9814917.0),
    (289, 11008797.0),
    (442, 11326982.0),
    (682, 11741756.0),
    (1041, 12051554.0),
    (1650, 12718882.0),
    (2553, 12896787.0),
    (3963, 13050470.0),
    (6138, 13064987.0),
    (9328, 12674883.0),
    (14660, 12521526.0),
    (22669, 11990830.0),
    (35482, 11614312.0),
    (53965, 11139630.0),
    (85354, 11134374.0),
    (129905, 10885565.0),
    (206606, 11427438.0),
    (313498, 11601969.0),
    (520398, 12618142.0),
    (916030, 13629921.0),
    (1490434, 12864176.0),
    (2300492, 11019430.0),
    (4367546, 10259886.0),
];

/// Value sizes in bytes and how many objects have them.
const SIZES: [(u32, f64); 38] = [
    (95, 2255996.0),
    (127, 4088142.0),
    (159, 8366545.0),
    (191, 724067.0),
    (223, 272432.0),
    (255, 142789.0),
    (287, 138503.0),
    (319, 120192.0),
    (351, 87170.0),
    (383, 75832.0),
    (431, 79273.0),
    (505, 168613.0),
    (556, 83976.0),
    (650, 94032.0),
    (714, 81278.0),
    (815, 63938.0),
    (996, 47639.0),
    (1234, 34557.0),
    (1640, 24931.0),
    (2346, 18846.0),
    (3380, 14224.0),
    (4400, 10441.0),
    (5962, 7810.0),
    (9653, 5859.0),
    (15859, 4365.0),
    (27329, 3273.0),
    (86558, 2454.0),
    (188975, 1842.0),
    (237252, 1381.0),
    (273076, 1036.0),
    (301098, 776.0),
    (334752, 582.0),
    (373732, 437.0),
    (426890, 327.0),
    (472448, 246.0),
    (519492, 368.0),
    (523455, 365.0),
    (523487, 2.0),
];

#[derive(Debug, Deserialize)]
struct Config {
    test_config: TestConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TestConfig {
    get_ratio: f64,
    set_ratio: f64,
    del_ratio: f64,
    lone_get_ratio: f64,
    key_size_range: [f64; 2],
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PopularityFile {
    popularity_buckets: Vec<u64>,
    popularity_weights: Vec<f64>,
}

pub(super) fn profile() -> Result<Profile> {
    match std::env::var_os(WORKLOADS) {
        Some(folder) => from_files(&Path::new(&folder).join(NAME)),
        None => Ok(embedded()),
    }
}

fn embedded() -> Profile {
    let usable = "the constants are positive";
    let ratios = TestConfig {
        get_ratio: GET_RATIO,
        set_ratio: 0.0,
        del_ratio: 0.0,
        lone_get_ratio: LONE_GET_RATIO,
        key_size_range: [KEY_LENGTH as f64; 2],
    };
    let groups = Groups::new(POPULARITY).expect(usable);
    assemble(&ratios, groups, Weighted::new(SIZES).expect(usable)).expect(usable)
}

fn from_files(folder: &Path) -> Result<Profile> {
    let format = |name: &str, reason: String| BenchError::Format { path: folder.join(name), reason };
    let config: Config = read_json(&folder.join("config.json"))?;
    let popularity: PopularityFile = read_json(&folder.join("pop.json"))?;
    let (buckets, weights) = (popularity.popularity_buckets, popularity.popularity_weights);
    if buckets.len() != weights.len() {
        return Err(format("pop.json", format!("{} buckets do not go with {} weights", buckets.len(), weights.len())));
    }
    let groups = Groups::new(buckets.into_iter().zip(weights)).map_err(|reason| format("pop.json", reason))?;
    let sizes = read_sizes(&folder.join("sizes.json"))?;
    assemble(&config.test_config, groups, sizes).map_err(|reason| format("config.json", reason))
}

fn assemble(ratios: &TestConfig, groups: Groups, sizes: Weighted<u32>) -> Result<Profile, String> {
    let gets = ratios.get_ratio + ratios.lone_get_ratio;
    let mix = [(Operation::Get, gets), (Operation::Set, ratios.set_ratio), (Operation::Delete, ratios.del_ratio)];
    let key_length = ((ratios.key_size_range[0] + ratios.key_size_range[1]) / 2.0) as usize;
    Ok(Profile {
        name: NAME.to_owned(),
        about: ABOUT.to_owned(),
        keys: groups.objects(),
        key_length,
        sizes,
        ttls: Weighted::only(0),
        mix: Weighted::new(mix)?,
        popularity: Popularity::Groups(Arc::new(groups)),
        once_share: ratios.lone_get_ratio / gets,
    })
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| BenchError::Format { path: path.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_keep_what_they_were_merged_from() {
        let profile = embedded();
        assert_eq!(profile.keys, 10_483_642);
        let mean: f64 = profile.sizes.shares().map(|(size, share)| f64::from(*size) * share).sum();
        assert!((mean - 335.19).abs() < 0.1, "{mean}");
        assert!((profile.once_share - 0.1204).abs() < 0.0001);
    }

    #[test]
    fn reads_the_files_cachebench_publishes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "config.json",
            r#"{"cache_config": {}, "test_config": {"getRatio": 0.9, "loneGetRatio": 0.1, "setRatio": 0, "delRatio": 0,
                "keySizeRange": [16, 64]}}"#,
        );
        write("pop.json", r#"{"popularityBuckets": [1, 9], "popularityWeights": [5, 5], "oneHits": 0.1}"#);
        write("sizes.json", r#"{"valSizeRange": [100, 200], "valSizeRangeProbability": [1, 1]}"#);
        let profile = from_files(folder.path()).unwrap();
        assert_eq!((profile.keys, profile.key_length), (10, 40));
        assert!((profile.once_share - 0.1).abs() < 1e-9);
        write("pop.json", r#"{"popularityBuckets": [1], "popularityWeights": [5, 5]}"#);
        assert!(from_files(folder.path()).unwrap_err().to_string().contains("pop.json"));
    }
}
