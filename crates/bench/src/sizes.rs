//! Distributions of value sizes: given on the command line, or read from a file.

use std::path::Path;

use serde::Deserialize;

use crate::error::{BenchError, Result};
use crate::weighted::{Weighted, parse_weighted};

/// The largest value a load may store, in bytes: memcached's upper limit for `-I`.
pub const MAX_VALUE: u32 = 1 << 30;

/// A histogram of sizes as CacheLib's cachebench writes it: `valSizeRange[i]` bytes with weight `valSizeRangeProbability[i]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachebenchSizes {
    val_size_range: Vec<f64>,
    val_size_range_probability: Vec<f64>,
}

/// Parses `SIZE`, `SIZE:WEIGHT,SIZE:WEIGHT` or `@FILE`.
///
/// # Errors
/// [`BenchError::Option`] for a text, [`BenchError::File`] or [`BenchError::Format`] for a file that cannot be used.
pub fn parse_sizes(text: &str) -> Result<Weighted<u32>> {
    match text.strip_prefix('@') {
        Some(path) => read_sizes(Path::new(path)),
        None => parse_weighted(text, parse_size).map_err(|reason| BenchError::option("value-size", text, reason)),
    }
}

/// Reads a histogram of sizes: cachebench's JSON, or lines of `SIZE WEIGHT` with `#` starting a comment.
///
/// # Errors
/// [`BenchError::File`] when it cannot be read, [`BenchError::Format`] when it is neither.
pub fn read_sizes(path: &Path) -> Result<Weighted<u32>> {
    let text = std::fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    let parsed = if text.trim_start().starts_with('{') { sizes_from_json(&text) } else { sizes_from_lines(&text) };
    parsed.map_err(|reason| BenchError::Format { path: path.to_owned(), reason })
}

fn sizes_from_json(text: &str) -> Result<Weighted<u32>, String> {
    let sizes: CachebenchSizes = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let (range, weights) = (sizes.val_size_range, sizes.val_size_range_probability);
    if range.len() == weights.len() {
        return Weighted::new(range.into_iter().map(|size| size as u32).zip(weights));
    }
    if range.len() == weights.len() + 1 {
        // Cachebench spreads such a bucket evenly between its bounds; its middle has the same mean.
        return Weighted::new(range.windows(2).map(|bounds| ((bounds[0] + bounds[1]) / 2.0) as u32).zip(weights));
    }
    Err(format!("{} sizes do not go with {} weights", range.len(), weights.len()))
}

fn sizes_from_lines(text: &str) -> Result<Weighted<u32>, String> {
    let mut items = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bad = || format!("line {}: {line:?} is not `SIZE WEIGHT`", index + 1);
        let (size, weight) = line.split_once(char::is_whitespace).ok_or_else(bad)?;
        items.push((parse_size(size)?, weight.trim().parse().map_err(|_| bad())?));
    }
    Weighted::new(items)
}

fn parse_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size) if size <= MAX_VALUE => Ok(size),
        _ => Err(format!("{text:?} is not a size in bytes of at most {MAX_VALUE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sizes: &Weighted<u32>) -> Vec<(u32, f64)> {
        sizes.shares().map(|(size, share)| (*size, share)).collect()
    }

    #[test]
    fn reads_cachebench_histograms_discrete_and_by_ranges() {
        let discrete = r#"{"valSizeRange": [31, 63], "valSizeRangeProbability": [3, 1]}"#;
        assert_eq!(shares(&sizes_from_json(discrete).unwrap()), [(31, 0.75), (63, 0.25)]);
        let ranges = r#"{"valSizeRange": [0, 100, 300], "valSizeRangeProbability": [1, 1]}"#;
        assert_eq!(shares(&sizes_from_json(ranges).unwrap()), [(50, 0.5), (200, 0.5)]);
        assert!(sizes_from_json(r#"{"valSizeRange": [1], "valSizeRangeProbability": [1, 1, 1]}"#).is_err());
    }

    #[test]
    fn reads_lines_of_size_and_weight() {
        assert_eq!(shares(&sizes_from_lines("# sizes\n100 1\n\n1024 3 # big\n").unwrap()), [(100, 0.25), (1024, 0.75)]);
        assert!(sizes_from_lines("100\n").unwrap_err().contains("line 1"));
    }
}
