//! Any bytes as a segment of a dump, as they are or with all checksums made right: nothing panics, a block is no larger than it may be,
//! and what is taken comes back when it is written. The first byte says which of both.
#![no_main]

#[path = "../../crates/segments/tests/forged/mod.rs"]
mod forged;

use libfuzzer_sys::fuzz_target;
use moneta_segments::{Header, SegmentError, SegmentReader, SegmentWriter};
use moneta_store::feed::Change;

const BLOCK_MAX: usize = 1 << 20;

fn read(bytes: &[u8]) -> Result<(Header, Vec<Change>), SegmentError> {
    let mut reader = SegmentReader::open("s", bytes, BLOCK_MAX)?;
    let mut changes = Vec::new();
    while let Some(block) = reader.block()? {
        assert!(block.changes.iter().map(Change::size).sum::<usize>() <= BLOCK_MAX);
        changes.extend(block.changes);
    }
    Ok((reader.header().clone(), changes))
}

fuzz_target!(|input: &[u8]| {
    let Some((form, rest)) = input.split_first() else { return };
    let mut segment = rest.to_vec();
    if form % 2 == 1 {
        forged::mend(&mut segment);
    }
    let Ok((header, changes)) = read(&segment) else { return };
    let mut writer = SegmentWriter::begin(Vec::new(), &header).expect("memory takes it");
    for change in &changes {
        writer.add(change, 1).expect("memory takes it");
    }
    let (bytes, ..) = writer.end("", 0).expect("memory takes it");
    assert_eq!(read(&bytes).expect("it was written"), (header, changes));
});
