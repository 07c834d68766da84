//! Whatever a feed tells comes out of both encodings as it went in, in whatever pieces. The failure to guard against: a field
//! that only one side knows, which readers would miss without a word.

use bytes::Bytes;
use moneta_feed::text::Decoded;
use moneta_feed::{Begin, Change, Codec, FeedPlace, Gap, GapCause, Line, Mark, Request, Set, Wanted, json, text};
use moneta_store::versions::Floor;
use moneta_store::{Expiry, ItemMeta, Version};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn keys() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 1..=250), "[a-z:é\"\\\\\u{1b}]{1,20}".prop_map(String::into_bytes)]
        .prop_map(Bytes::from)
}

fn causes() -> impl Strategy<Value = Option<GapCause>> {
    option::of(proptest::sample::select(&GapCause::ALL[..]))
}

fn changes() -> impl Strategy<Value = Change> {
    let meta = (any::<u64>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(cas, flags, expiry, stale)| {
        ItemMeta { cas, flags, expiry: Expiry(expiry), stale, ..ItemMeta::default() }
    });
    let values = option::of(vec(any::<u8>(), 0..300).prop_map(Bytes::from));
    let sets = (keys(), meta, values, option::of(1..=u64::MAX))
        .prop_map(|(key, meta, value, as_of)| Change::Set(Set { key, meta, value, as_of }));
    prop_oneof![
        4 => sets,
        2 => (keys(), any::<u64>()).prop_map(|(key, version)| Change::Delete { key, version: Version(version) }),
        1 => (any::<u64>(), any::<u32>())
            .prop_map(|(version, second)| Change::Flush(Floor { version: Version(version), second })),
        1 => (any::<u64>(), causes()).prop_map(|(since, cause)| Change::Gap(Gap { since, cause })),
        1 => any::<u64>().prop_map(|until| Change::Lost { until }),
    ]
}

fn places() -> impl Strategy<Value = FeedPlace> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(incarnation, position, told)| FeedPlace {
        incarnation,
        position,
        told,
    })
}

fn marks() -> impl Strategy<Value = Mark> {
    let numbers = (any::<u64>(), any::<u64>(), option::of(any::<u64>()), any::<bool>());
    (places(), numbers).prop_map(|(place, (watermark, horizon, behind, more))| Mark {
        cursor: place.to_string(),
        watermark,
        horizon,
        behind,
        more,
    })
}

fn lines() -> impl Strategy<Value = Line> {
    prop_oneof![4 => changes().prop_map(Line::Change), 1 => marks().prop_map(Line::Mark)]
}

fn requests() -> impl Strategy<Value = Request> {
    let begin = prop_oneof![Just(Begin::Now), any::<u64>().prop_map(Begin::Since), places().prop_map(Begin::Cursor)];
    let buckets = option::of(
        (any::<u16>(), any::<u16>())
            .prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other)).parse().expect("a range")),
    );
    let wanted =
        (any::<bool>(), "[!-~]{0,20}", option::of(0..16u8), buckets).prop_map(|(values, prefix, region, buckets)| {
            Wanted { values, prefix: prefix.into_bytes(), region, buckets, current: !values }
        });
    (begin, wanted, any::<bool>(), any::<u64>(), any::<bool>(), option::of("[!-~]{1,64}")).prop_map(
        |(begin, wanted, follow, rate, is_compressed, name)| {
            let compress = is_compressed.then_some(Codec::Zstd);
            Request { begin, wanted, follow, rate, compress, name }
        },
    )
}

proptest! {
    #[test]
    fn text_comes_back(lines in vec(lines(), 0..20), piece in 1..200usize) {
        let mut out = Vec::new();
        for line in &lines {
            match line {
                Line::Change(change) => text::write(change, &mut out),
                Line::Mark(mark) => text::write_mark(mark, &mut out),
                Line::End => unreachable!("it is written last"),
            }
        }
        out.extend_from_slice(text::END);
        let out = Bytes::from(out);
        // Whether there is more is told by the end alone.
        let mut expected: Vec<Line> = lines.into_iter().map(|line| match line {
            Line::Mark(mark) => Line::Mark(Mark { more: true, ..mark }),
            line => line,
        }).collect();
        expected.push(Line::End);
        let (mut read, mut at, mut arrived) = (Vec::new(), 0, 0);
        while at < out.len() {
            match text::read(&out.slice(at..arrived), 300).expect("it is a feed") {
                Decoded::Line(line, length) => {
                    read.push(line);
                    at += length;
                }
                Decoded::Partial { needed } => {
                    prop_assert!(needed > arrived - at && at + needed <= out.len());
                    arrived = (arrived + piece).min(out.len());
                }
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn json_comes_back(line in lines()) {
        let mut out = Vec::new();
        match &line {
            Line::Change(change) => json::write(change, &mut out),
            Line::Mark(mark) => json::write_mark(mark, &mut out),
            Line::End => unreachable!("JSON has none"),
        }
        let written = String::from_utf8(out).expect("it is text");
        prop_assert!(written.ends_with('\n') && written.lines().count() == 1);
        // How many changes wait is told on the memcached port alone.
        let expected = match line {
            Line::Mark(mark) => Line::Mark(Mark { behind: None, ..mark }),
            line => line,
        };
        prop_assert_eq!(json::read(&written).expect("a line"), expected);
    }

    #[test]
    fn a_request_comes_back(request in requests()) {
        let written = request.to_string();
        let words = written.strip_prefix("changes").expect("the command").split(' ').filter(|word| !word.is_empty());
        prop_assert_eq!(Request::parse(words.map(str::as_bytes)), Ok(request));
    }
}
