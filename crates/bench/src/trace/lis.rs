//! Traces of the ARC paper (Megiddo, Modha: "ARC: a self-tuning, low overhead replacement cache", FAST 2003).
//!
//! A line holds four numbers: first block, number of blocks, a field to ignore, request number. It stands for one request for
//! each of its blocks, which are 512 bytes long.

use std::io::BufRead;
use std::path::PathBuf;

use super::{TraceRequest, malformed, unreadable};
use crate::error::Result;

/// Size of a block in bytes.
const BLOCK: u32 = 512;

pub(super) struct Reader<R> {
    reader: R,
    path: PathBuf,
    text: String,
    line: u64,
    next: u64,
    left: u64,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(reader: R, path: PathBuf) -> Self {
        Self { reader, path, text: String::new(), line: 0, next: 0, left: 0 }
    }

    /// Reads the next line with blocks in it; false at the end.
    fn advance(&mut self) -> Result<bool> {
        while self.left == 0 {
            self.text.clear();
            let count = self.reader.read_line(&mut self.text).map_err(|error| unreadable(&self.path, error))?;
            if count == 0 {
                return Ok(false);
            }
            self.line += 1;
            let mut fields = self.text.split_ascii_whitespace().map(str::parse::<u64>);
            match (fields.next(), fields.next(), fields.count()) {
                (Some(Ok(first)), Some(Ok(blocks)), 2) => (self.next, self.left) = (first, blocks),
                (None, _, _) => {}
                _ => {
                    let reason = format!("line {}: {:?} is not four numbers", self.line, self.text.trim_end());
                    return Err(malformed(&self.path, reason));
                }
            }
        }
        Ok(true)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<TraceRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        let object = self.next;
        self.next = self.next.wrapping_add(1);
        self.left -= 1;
        Some(Ok(TraceRequest { object, size: BLOCK }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(text: &str) -> Vec<Result<u64>> {
        Reader::new(text.as_bytes(), "test.lis".into()).map(|request| request.map(|request| request.object)).collect()
    }

    #[test]
    fn a_line_is_one_request_for_each_block() {
        let found: Vec<_> =
            objects("110765 3 0 0\n5 1 0 1\n\n9 0 0 2\n6 1 0 3\n").into_iter().map(Result::unwrap).collect();
        assert_eq!(found, [110765, 110766, 110767, 5, 6]);
    }

    #[test]
    fn a_line_that_is_none_is_refused_with_its_number() {
        for wrong in ["1 1 0 0\nfive 1 0 1\n", "1 1 0 0\n5 1 0\n", "1 1 0 0\n5 1 0 1 9\n"] {
            let found = objects(wrong);
            assert!(found[0].is_ok());
            assert!(found[1].as_ref().unwrap_err().to_string().contains("line 2"), "{wrong:?}");
        }
    }
}
