//! A segment comes back as it was written, or not at all.

use bytes::Bytes;
use moneta_item::{Expiry, ItemMeta, Version};
use moneta_segments::{Header, SegmentError, SegmentReader, SegmentWriter, record};
use moneta_store::feed::{Change, Gap, GapCause, Set};
use moneta_store::versions::Floor;
use proptest::collection::vec;
use proptest::prelude::*;

const BLOCK_MAX: usize = 4 << 20;

fn header(compression: &str) -> Header {
    Header {
        source: "10.0.0.1:11211".into(),
        from: "7-12".into(),
        begun: 1_700_000_000_000,
        compression: compression.into(),
        listed: false,
    }
}

fn written(changes: &[Change], compression: &str) -> Vec<u8> {
    let mut writer = SegmentWriter::begin(Vec::new(), &header(compression)).unwrap();
    for (number, change) in changes.iter().enumerate() {
        writer.add(change, 1000 + number as u64).unwrap();
    }
    let (bytes, footer, length) = writer.end("7-99", 55).unwrap();
    assert_eq!((bytes.len() as u64, footer.to.as_str(), footer.watermark), (length, "7-99", 55));
    bytes
}

fn read(bytes: &[u8]) -> Result<(Vec<Change>, Vec<u64>), SegmentError> {
    let mut reader = SegmentReader::open("s", bytes, BLOCK_MAX)?;
    let (mut changes, mut times) = (Vec::new(), Vec::new());
    while let Some(block) = reader.block()? {
        changes.extend(block.changes);
        times.push(block.read_at);
    }
    assert_eq!(reader.footer().unwrap().to, "7-99");
    Ok((changes, times))
}

fn change() -> impl Strategy<Value = Change> {
    let key = || vec(any::<u8>(), 1..=250).prop_map(Bytes::from);
    let value = prop_oneof![Just(None), vec(any::<u8>(), 0..2000).prop_map(|value| Some(Bytes::from(value)))];
    let meta = any::<(u32, u32, u64, bool, bool)>().prop_map(|(flags, expiry, cas, stale, unversioned)| ItemMeta {
        flags,
        expiry: Expiry(expiry),
        cas,
        stale,
        unversioned,
        ..ItemMeta::default()
    });
    let cause = proptest::option::of((0..GapCause::ALL.len()).prop_map(|at| GapCause::ALL[at]));
    prop_oneof![
        8 => (key(), meta, value, any::<Option<u64>>()).prop_map(|(key, meta, value, as_of)| {
            Change::Set(Set { key, meta, value, as_of })
        }),
        2 => (key(), any::<u64>()).prop_map(|(key, version)| Change::Delete { key, version: Version(version) }),
        1 => any::<(u64, u32)>().prop_map(|(version, second)| Change::Flush(Floor { version: Version(version), second })),
        1 => (any::<u64>(), cause).prop_map(|(since, cause)| Change::Gap(Gap { since, cause })),
        1 => any::<u64>().prop_map(|until| Change::Lost { until }),
    ]
}

proptest! {
    #[test]
    fn records_come_back(changes in vec(change(), 0..20)) {
        let mut bytes = Vec::new();
        for change in &changes {
            let before = bytes.len();
            record::write(change, &mut bytes);
            prop_assert_eq!(bytes.len() - before, record::size(change));
        }
        let mut rest = Bytes::from(bytes);
        for change in changes {
            prop_assert_eq!(record::read(&mut rest), Some(change));
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(record::read(&mut rest), None);
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        let mut rest = Bytes::from(bytes.clone());
        while record::read(&mut rest).is_some() {}
        prop_assert!(read(&bytes).is_err());
        let mut after = written(&[], "")[..40].to_vec();
        after.extend(bytes);
        prop_assert!(read(&after).is_err());
    }

    #[test]
    fn segments_come_back(changes in vec(change(), 0..100), compresses in any::<bool>()) {
        let bytes = written(&changes, if compresses { "zstd" } else { "" });
        prop_assert_eq!(read(&bytes).unwrap().0, changes);
    }
}

fn sets(count: u32, value: usize) -> Vec<Change> {
    let set = |number: u32| {
        Change::Set(Set {
            key: Bytes::from(format!("key{number}")),
            meta: ItemMeta { cas: u64::from(number), ..ItemMeta::default() },
            value: Some(Bytes::from(vec![number as u8; value])),
            as_of: None,
        })
    };
    (0..count).map(set).collect()
}

#[test]
fn blocks_have_256_kib_or_one_record() {
    let mut changes = sets(300, 10_000);
    changes.extend(sets(1, 3 << 20));
    let (read, times) = read(&written(&changes, "zstd")).unwrap();
    assert_eq!(read, changes);
    // 26 records of 10,036 bytes fit; the last is alone, and each block has the time of its first.
    let begun: Vec<_> = (0..300).step_by(26).chain([300]).map(|number| 1000 + number).collect();
    assert_eq!(times, begun);
    let bytes = written(&changes, "");
    let mut small = SegmentReader::open("s", &bytes[..], 2 << 20).unwrap();
    let refused = std::iter::from_fn(|| small.block().transpose()).find_map(Result::err).unwrap();
    assert!(refused.to_string().contains("too large"), "{refused}");
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen() {
    for compression in ["", "zstd"] {
        let changes = sets(5, 40);
        let bytes = written(&changes, compression);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(read(&flipped).is_err(), "byte {at} of {}", bytes.len());
            assert!(read(&bytes[..at]).is_err(), "{at} of {} bytes", bytes.len());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer).is_err());
        assert_eq!(read(&bytes).unwrap().0, changes);
    }
}

#[test]
fn a_later_form_is_named() {
    let mut bytes = written(&[], "");
    bytes[7] = 2;
    assert_eq!(read(&bytes).unwrap_err().to_string(), "s has form 2, and this build reads form 1");
}
