//! Segments that were changed at random. A reader returns the changes that were written, or an error. An attacker who can write into
//! an archive also corrects the checksums: then the reader returns valid changes, or an error. It must not panic, allocate what a
//! length claims, or return items that were not written.

mod forged;

use bytes::Bytes;
use fastrand::Rng;
use moneta_item::{Expiry, ItemMeta, Version};
use moneta_segments::{Header, SegmentError, SegmentReader, SegmentWriter};
use moneta_store::feed::{Change, Gap, GapCause, Set};
use moneta_store::versions::Floor;

const BLOCK_MAX: usize = 1 << 20;
/// Changed segments of each seed.
const ROUNDS: u32 = 400;

fn written(changes: &[Change], compression: &str) -> Vec<u8> {
    let header = Header {
        source: "10.0.0.1:11211".into(),
        from: "7-12".into(),
        begun: 1_700_000_000_000,
        compression: compression.into(),
        listed: false,
    };
    let mut writer = SegmentWriter::begin(Vec::new(), &header).expect("memory takes it");
    for change in changes {
        writer.add(change, 1000).expect("memory takes it");
    }
    writer.end("7-99", 55).expect("memory takes it").0
}

fn read(bytes: &[u8]) -> Result<Vec<Change>, SegmentError> {
    let mut reader = SegmentReader::open("s", bytes, BLOCK_MAX)?;
    let mut changes = Vec::new();
    while let Some(block) = reader.block()? {
        let size: usize = block.changes.iter().map(Change::size).sum();
        assert!(size <= BLOCK_MAX, "a block of {size} bytes");
        changes.extend(block.changes);
    }
    Ok(changes)
}

fn set(key: usize, length: usize) -> Change {
    let meta = ItemMeta { flags: 7, expiry: Expiry(9), cas: 1000 + key as u64, ..ItemMeta::default() };
    let value = Some(Bytes::from(vec![key as u8; length]));
    Change::Set(Set { key: format!("key-{key}").into(), meta, value, as_of: key.is_multiple_of(3).then_some(5) })
}

/// One kind of record each, several blocks, a record that is larger than a block, nothing.
fn seeds() -> Vec<Vec<u8>> {
    let kinds = vec![
        set(1, 10),
        Change::Delete { key: Bytes::from_static(b"gone"), version: Version(8) },
        Change::Flush(Floor { version: Version(9), second: 10 }),
        Change::Gap(Gap { since: 11, cause: Some(GapCause::ALL[0]) }),
        Change::Lost { until: 12 },
    ];
    let several = (0..12).map(|key| set(key, 40_000)).collect();
    let all = [kinds, several, vec![set(1, 300_000), set(2, 1)], Vec::new()];
    all.iter().flat_map(|changes| ["", "zstd"].map(|compression| written(changes, compression))).collect()
}

/// One change of some bytes.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    // Heads and footers are small: half of all changes are there.
    let near = |rng: &mut Rng, length: usize| match rng.u8(0..4) {
        0 => rng.usize(..length.min(200)),
        1 => length - 1 - rng.usize(..length.min(300)),
        _ => rng.usize(..length),
    };
    if bytes.is_empty() {
        return bytes.extend_from_slice(&other[..rng.usize(..other.len())]);
    }
    let at = near(rng, bytes.len());
    let range = at..(at + 1 + rng.usize(..64)).min(bytes.len());
    match rng.u8(0..7) {
        0 => bytes[at] ^= 1 << rng.u8(0..8),
        1 => bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).expect("one of them"),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(range)),
        4 => drop(bytes.splice(at..at, bytes[range].to_vec())),
        5 => bytes[range].reverse(),
        _ => {
            let from = near(rng, other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

#[test]
fn a_changed_segment_is_an_error_and_one_with_right_checksums_can_be_written_again() {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let (mut rng, seeds, mut taken) = (Rng::with_seed(seed), seeds(), 0);
    for original in &seeds {
        read(original).expect("it is whole");
        for _ in 0..ROUNDS {
            let mut bytes = original.clone();
            for _ in 0..=rng.u8(0..3) {
                let other = rng.usize(..seeds.len());
                change(&mut bytes, &seeds[other], &mut rng);
            }
            assert!(seeds.contains(&bytes) || read(&bytes).is_err(), "what was changed is taken as it is");
            forged::mend(&mut bytes);
            if let Ok(changes) = read(&bytes) {
                assert_eq!(read(&written(&changes, "")).expect("it was written"), changes);
                taken += 1;
            }
        }
    }
    assert!(taken > 100, "{taken} segments were taken: checksums are not made right");
}

#[test]
fn the_seeds_of_the_fuzz_target_are_segments_once_their_checksums_are_right() {
    for (name, is_taken) in [("kinds", true), ("zstd", true), ("empty", true), ("as-it-is", false)] {
        let seed = std::fs::read(format!("../../fuzz/seeds/segment/{name}")).expect("it is committed");
        let (form, segment) = seed.split_first().expect("it has a first byte");
        let mut segment = segment.to_vec();
        if form % 2 == 1 {
            forged::mend(&mut segment);
        }
        let taken = read(&segment);
        assert_eq!(taken.is_ok(), is_taken, "{name}: {taken:?}");
    }
}
