//! Chains in a directory: what is committed is there, in order, once; what is not is nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use moneta_feed::{Begin, Change, Gap, Line, Mark, Next, Owner, Pump, PumpError, Rate, Settings, Sink, Source};
use moneta_item::{ItemMeta, Version};
use moneta_segments::{Archive, Chain, ChainSink, ChainSource, Created, Directory, Form, SegmentError};
use moneta_store::feed::Set;

fn archive(path: &Path) -> Arc<dyn Archive> {
    Arc::new(Directory::open(path).unwrap())
}

fn open(path: &Path) -> Result<Chain, SegmentError> {
    Chain::open(archive(path), "app/a0")
}

fn form() -> Form {
    Form { source: "node".into(), segment_bytes: 0, compresses: true, listed: false }
}

fn set(number: u64) -> Change {
    Change::Set(Set {
        key: Bytes::from(format!("key{number}")),
        meta: ItemMeta { cas: number, ..ItemMeta::default() },
        value: Some(Bytes::from(vec![7; 100])),
        as_of: None,
    })
}

/// Adds a segment of these changes, up to the position of the last.
fn add(chain: &mut Chain, numbers: std::ops::Range<u64>) -> Result<(), SegmentError> {
    let mut draft = chain.begin(&form(), 1)?;
    for number in numbers.clone() {
        draft.add(&set(number), 1000 + number).unwrap();
    }
    chain.commit(draft, &format!("1-{}", numbers.end), numbers.end)
}

/// All that a chain tells, from a place on.
fn told(chain: Chain, from: Begin) -> Result<Vec<Change>, String> {
    let mut source = ChainSource::new(chain, false, 1 << 22);
    source.begin(from, 0).map_err(|error| error.to_string())?;
    let mut changes = Vec::new();
    loop {
        match source.next().map_err(|error| error.to_string())? {
            Next::Line(Line::Change(change)) => changes.push(change),
            Next::Line(Line::Mark(_)) => {}
            Next::Line(Line::End) => return Ok(changes),
            other => panic!("{other:?}"),
        }
    }
}

fn numbers(changes: &[Change]) -> Vec<u64> {
    changes.iter().map(|change| if let Change::Set(set) = change { set.meta.cas } else { 0 }).collect()
}

#[test]
fn a_chain_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut chain = open(folder.path()).unwrap();
    assert_eq!((chain.end(), chain.segments().len()), ("", 0));
    add(&mut chain, 0..10).unwrap();
    // A segment that is not committed is nothing.
    drop(chain.begin(&form(), 1).unwrap());
    let mut chain = open(folder.path()).unwrap();
    assert_eq!(chain.end(), "1-10");
    add(&mut chain, 10..15).unwrap();
    let done = chain.finish(None).unwrap();
    assert_eq!((done.segments, done.to.as_str(), done.watermark, done.counts.sets), (2, "1-15", 15, 15));
    assert!(matches!(add(&mut chain, 15..16), Err(SegmentError::Done { .. })));

    let chain = open(folder.path()).unwrap();
    assert_eq!(chain.done().map(|done| done.segments), Some(2));
    let all = told(chain.clone(), Begin::Since(0)).unwrap();
    assert_eq!(numbers(&all), (0..15).collect::<Vec<_>>());
    // As of when they were read: each block's first.
    assert!(all.iter().all(|change| matches!(change, Change::Set(Set { as_of: Some(1000 | 1010), .. }))));
    let rest = told(chain.clone(), Begin::Cursor("1-10".parse().unwrap())).unwrap();
    assert_eq!(numbers(&rest), (10..15).collect::<Vec<_>>());
    assert!(told(chain, Begin::Cursor("1-11".parse().unwrap())).unwrap_err().contains("no segment that ends at 1-11"));
}

#[test]
fn of_many_writers_of_one_chain_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let write = |from: u64| {
        let mut chain = open(folder.path()).unwrap();
        let mut committed = 0;
        while add(&mut chain, from..from + 3).is_ok() {
            committed += 1;
            if committed == 20 {
                break;
            }
        }
        committed
    };
    let committed: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(move || write(number * 100))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let chain = open(folder.path());
    // Each number is committed once; where two writers took turns, the cursors do not fit, and it is said.
    match chain {
        Ok(chain) => assert_eq!(chain.segments().len() as u64, committed),
        Err(error) => assert!(matches!(error, SegmentError::Hole { .. }), "{error}"),
    }
    let commits = fs::read_dir(folder.path().join("app/a0")).unwrap();
    let commits = commits.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "commit"));
    assert_eq!(commits.count() as u64, committed);
}

#[test]
fn a_second_writer_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    add(&mut one, 0..2).unwrap();
    assert!(matches!(add(&mut other, 5..9), Err(SegmentError::Taken { number: 0, .. })));
    let names = archive(folder.path()).list("app/a0").unwrap();
    assert_eq!(names.len(), 2, "what it wrote is gone: {names:?}");
}

#[test]
fn holes_and_damage_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut chain = open(folder.path()).unwrap();
    (0..3).for_each(|number| add(&mut chain, number * 10..number * 10 + 10).unwrap());
    let commit = |number: u64| folder.path().join(format!("app/a0/{number:012}.commit"));
    let kept = fs::read(commit(1)).unwrap();
    fs::remove_file(commit(1)).unwrap();
    assert!(open(folder.path()).unwrap_err().to_string().contains("segment 1 is missing before 2"));
    fs::write(commit(1), &kept[..20]).unwrap();
    assert!(matches!(open(folder.path()), Err(SegmentError::Damaged { .. })));
    fs::write(commit(1), String::from_utf8(kept.clone()).unwrap().replace("\"from\":\"1-10\"", "\"from\":\"1-9\""))
        .unwrap();
    assert!(open(folder.path()).unwrap_err().to_string().contains("begins at \"1-9\""));
    fs::write(commit(1), kept).unwrap();
    let chain = open(folder.path()).unwrap();
    let place = folder.path().join("app/a0").join(&chain.segments()[1].segment);
    let mut bytes = fs::read(&place).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&place, bytes).unwrap();
    assert!(told(chain.clone(), Begin::Since(0)).unwrap_err().contains("is damaged"));
    fs::remove_file(&place).unwrap();
    assert!(told(chain, Begin::Since(0)).is_err());
}

#[test]
fn names_stay_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    for name in ["../x", "/x", "a//b", "a/../b", "", ".hidden", "a/ b", "a\0"] {
        assert!(archive.create(name, b"x").is_err(), "{name:?}");
        assert!(archive.open(name).is_err(), "{name:?}");
    }
    assert_eq!(archive.create("a/b", b"one").unwrap(), Created::Now);
    assert_eq!(archive.create("a/b", b"two").unwrap(), Created::Before);
    assert_eq!(fs::read(folder.path().join("a/b")).unwrap(), b"one");
    drop(archive.begin("a/c").unwrap());
    assert_eq!(archive.list("a").unwrap(), ["a/b"]);
    assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1, "no draft is left");
    assert_eq!(archive.list("b").unwrap(), [""; 0]);
}

#[test]
fn sweeping_removes_what_killed_writers_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut chain = open(folder.path()).unwrap();
    add(&mut chain, 0..2).unwrap();
    // One that lost its number, one that may yet be committed, and half a file.
    for name in ["000000000000-0123456789abcdef.segment", "000000000001-0123456789abcdef.segment", "x-0123.new"] {
        fs::write(folder.path().join("app/a0").join(name), b"half").unwrap();
    }
    assert_eq!(open(folder.path()).unwrap().segments().len(), 1);
    assert_eq!(chain.sweep().unwrap(), 1);
    assert!(folder.path().join("app/a0/000000000001-0123456789abcdef.segment").exists());
    assert_eq!(fs::read_dir(folder.path().join("app/a0")).unwrap().count(), 3, "the rest is gone");
    assert_eq!(numbers(&told(chain, Begin::Since(0)).unwrap()), [0, 1]);
}

/// Lets a pump run to its end, and commits at each mark.
struct Commits;

impl Owner<ChainSink> for Commits {
    fn is_over(&self) -> bool {
        false
    }

    fn gap(&mut self, _: Gap) {}

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, sink: &mut ChainSink) -> Result<(), PumpError> {
        sink.reached(mark, !mark.more).map_err(|error| PumpError::Owner(error.to_string()))
    }

    fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Ok(None)
    }

    fn goes_on(&mut self, _: &PumpError) -> bool {
        false
    }
}

#[test]
fn a_pump_copies_a_chain_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut chain = open(folder.path()).unwrap();
    (0..5).for_each(|number| add(&mut chain, number * 10..number * 10 + 10).unwrap());
    chain.finish(None).unwrap();
    let other = Chain::open(archive(folder.path()), "other").unwrap();
    let form = Form { source: "a0".into(), segment_bytes: 2500, compresses: false, listed: false };
    let sink = ChainSink::new(other, form, Box::new(|| 9));
    let settings = Settings {
        batch: 3,
        batch_bytes: 1 << 20,
        follows: false,
        filter: None,
        needed: 0,
        margin: None,
        large: None,
        large_bytes: usize::MAX,
    };
    let source = ChainSource::new(chain.clone(), false, 1 << 22);
    let mut pump = Pump::new(source, sink, settings, Rate::default(), Begin::Since(0), 0);
    pump.run(&mut Commits).unwrap();
    let mut sink = pump.into_sink();
    sink.settle().unwrap();
    let copied = sink.finish(None).unwrap();
    let ends: Vec<_> = copied.segments().iter().map(|segment| segment.footer.to.as_str()).collect();
    assert_eq!(ends, ["1-20", "1-40", "1-50"], "a segment ends at the first mark after so many bytes");
    let [from, to] = [&chain, &copied].map(|chain| told(chain.clone(), Begin::Since(0)).unwrap());
    assert_eq!(from, to);
}
