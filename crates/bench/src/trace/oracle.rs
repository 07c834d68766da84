//! Traces in libCacheSim's format `oracleGeneral` (<https://github.com/1a1a11a/libCacheSim>), little-endian and packed.
//!
//! ```text
//! 0            4                        12           16                       24
//! +------------+------------------------+------------+------------------------+
//! | time, s    | object                 | size, B    | next access, -1: none  |
//! +------------+------------------------+------------+------------------------+
//! ```

use std::io::BufRead;
use std::path::PathBuf;

use super::{TraceRequest, malformed, unreadable};
use crate::error::Result;

const RECORD: usize = 24;

pub(super) struct Reader<R> {
    reader: R,
    path: PathBuf,
    records: u64,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(reader: R, path: PathBuf) -> Self {
        Self { reader, path, records: 0 }
    }

    /// Fills `record`; false when the trace ends before its first byte.
    fn read(&mut self, record: &mut [u8; RECORD]) -> Result<bool> {
        let mut filled = 0;
        while filled < RECORD {
            match self.reader.read(&mut record[filled..]).map_err(|error| unreadable(&self.path, error))? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(malformed(&self.path, format!("record {} is cut short", self.records))),
                count => filled += count,
            }
        }
        self.records += 1;
        Ok(true)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<TraceRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = [0; RECORD];
        match self.read(&mut record) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        let [_, _, _, _, object @ .., _, _, _, _, _, _, _, _, _, _, _, _] = record;
        let size = [record[12], record[13], record[14], record[15]];
        Some(Ok(TraceRequest { object: u64::from_le_bytes(object), size: u32::from_le_bytes(size) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
        [&time.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    }

    #[test]
    fn reads_records_of_24_bytes() {
        let bytes = [record(1, 42, 512, 2), record(2, u64::MAX, 69_632, -1)].concat();
        let found: Vec<_> = Reader::new(&bytes[..], "t".into()).map(Result::unwrap).collect();
        assert_eq!(found, [TraceRequest { object: 42, size: 512 }, TraceRequest { object: u64::MAX, size: 69_632 }]);
    }

    #[test]
    fn a_record_cut_short_is_refused() {
        let mut bytes = [record(1, 42, 512, 2), record(2, 43, 512, -1)].concat();
        bytes.pop();
        let found: Vec<_> = Reader::new(&bytes[..], "t".into()).collect();
        assert!(found[0].is_ok() && found[1].as_ref().unwrap_err().to_string().contains("record 1"));
    }
}
