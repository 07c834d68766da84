//! Batches of regions that recovery lists in memory at once.

use moneta_device::format::record::HEADER_BYTES;
use moneta_device::regions::survey::Use;

/// Most regions in a batch: enough to keep all threads busy even if regions have few records.
const REGIONS_MAX: usize = 256;
/// Most records in a batch, unless one region has more: 96 MiB of listed records.
const RECORDS_MAX: usize = 4 << 20;

/// Bytes of the smallest record: a header and a key of one byte.
const RECORD_BYTES_MIN: usize = HEADER_BYTES + 1;

/// Cuts regions into batches, in their order. `region_bytes` is the size of one.
pub(crate) fn batches(used: &[(usize, Use)], region_bytes: usize) -> impl Iterator<Item = &[(usize, Use)]> {
    batches_by(used, move |(_, used)| match used.trailer {
        Some(trailer) => trailer.records as usize,
        // The region was open: assume it is full of the smallest records.
        None => region_bytes / RECORD_BYTES_MIN,
    })
}

fn batches_by<T>(mut rest: &[T], records: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut left = RECORDS_MAX;
        let fits = |region: &&T| {
            let remaining = left.checked_sub(records(region));
            left = remaining.unwrap_or(left);
            remaining.is_some()
        };
        let count = rest.iter().take(REGIONS_MAX).take_while(fits).count();
        let (batch, behind) = rest.split_at(count.max(1).min(rest.len()));
        rest = behind;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(records: &[usize]) -> Vec<usize> {
        let batches: Vec<&[usize]> = batches_by(records, |records| *records).collect();
        assert_eq!(batches.concat(), records, "each region is in one batch, in order");
        batches.iter().map(|batch| batch.len()).collect()
    }

    #[test]
    fn a_batch_has_no_more_records_than_fit_and_no_more_regions_than_needed() {
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[10; 600]), [256, 256, 88], "few records each");
        // Regions of 8 MiB full of records of 40 bytes: 256 of them would be 1.2 GiB.
        assert_eq!(sizes(&[200_000; 41]), [20, 20, 1]);
        assert_eq!(sizes(&[RECORDS_MAX + 1, 1, RECORDS_MAX, 1]), [1, 1, 1, 1], "a region alone may have more");
    }
}
