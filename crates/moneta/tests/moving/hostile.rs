//! Archives that an attacker wrote. What must not happen: that what reads one does not end, takes the machine's memory, panics, or reads
//! or writes beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use moneta_backup::layout::{BaseRecord, Made, Slot};
use moneta_segments::{Archive, Chain, Directory, Form};
use moneta_store::feed::{Change, Set};
use moneta_store::{Expiry, ItemMeta};
use serde_json::Value;

use super::common::{Memcached, Process, connect_unix, exchange, moneta};
use super::{items, node, run, text};

/// More than a block, its items and the rest of a process take.
const PEAK: u64 = 400 << 20;
fn set(key: &[u8], value: Bytes) -> Change {
    let meta = ItemMeta { expiry: Expiry(0), unversioned: true, ..ItemMeta::default() };
    Change::Set(Set { key: Bytes::copy_from_slice(key), meta, value: Some(value), as_of: None })
}

fn archive(folder: &Path) -> Arc<dyn Archive> {
    Arc::new(Directory::open(folder).expect("there is room"))
}

/// A chain that is done, of segments with these changes.
fn chain(archive: &Arc<dyn Archive>, name: &str, segments: &[Vec<Change>]) -> Chain {
    let form = Form { source: "x".into(), segment_bytes: 1 << 20, compresses: true, listed: true };
    let mut chain = Chain::open(Arc::clone(archive), name).expect("there is none");
    for (number, changes) in segments.iter().enumerate() {
        let mut draft = chain.begin(&form, 1).expect("there is room");
        changes.iter().for_each(|change| draft.add(change, 1).expect("there is room"));
        chain.commit(draft, &format!("5f0c-{number}-1"), 1000).expect("there is room");
    }
    chain.finish(Some("")).expect("there is room");
    chain
}

/// A backup of one base, with these segments, and a dump of the same.
fn forge(folder: &Path, segments: &[Vec<Change>], part: Option<u64>) {
    let archive = archive(folder);
    let counts = chain(&archive, "slots/n/bases/000000", segments).done().expect("it is done").counts;
    let record = BaseRecord { number: 0, made: Made::List, part, after: 0, complete: 1000, is_point: true, counts };
    Slot::open(&archive, "n").expect("it is empty").add_base(record).expect("there is none");
    chain(&archive, "base", segments);
}

fn some_items() -> Vec<Vec<Change>> {
    (0..3).map(|part| vec![set(format!("k{part}").as_bytes(), Bytes::from_static(b"v"))]).collect()
}

/// A field of each record whose name ends so is another.
fn change(folder: &Path, end: &str, change: &dyn Fn(&mut Value)) {
    for chain in ["slots/n/bases/000000", "base"] {
        let record = folder.join(chain).join(end);
        let mut value: Value = serde_json::from_slice(&fs::read(&record).expect("it is there")).expect("it is JSON");
        change(&mut value);
        fs::write(&record, value.to_string()).expect("there is room");
    }
}

fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        if path.is_dir() {
            found.extend(everything(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

/// Runs it to its end, which is none of a broken program; what it said.
fn ends(arguments: &[&str]) -> (Option<i32>, String) {
    let mut process = Process::start(&mut moneta(arguments));
    let mut peak = 0;
    process.until("it ends", || {
        peak = peak.max(process.peak_bytes().unwrap_or(0));
        process.has_ended()
    });
    let code = process.wait().code();
    let said = process.stderr();
    assert!(matches!(code, Some(0 | 1)) && !said.contains("panicked"), "{arguments:?}: {code:?} {said}");
    assert!(peak < PEAK, "{arguments:?}: {peak} bytes");
    (code, said)
}

#[test]
fn whatever_the_records_say_a_restore_ends_with_a_word_and_writes_nothing() {
    type Attack = (&'static str, &'static str, &'static dyn Fn(&Path));
    let attacks: &[Attack] = &[
        ("counts", "ends otherwise than its record says", &|at| {
            forge(at, &some_items(), None);
            for record in ["000000000000.commit", "000000000001.commit"] {
                change(at, record, &|record| record["counts"]["sets"] = u64::MAX.into());
            }
        }),
        ("bytes", "ends otherwise than its record says", &|at| {
            forge(at, &some_items(), None);
            for record in ["000000000000.commit", "000000000001.commit"] {
                change(at, record, &|record| {
                    record["counts"]["bytes"] = (u64::MAX / 2 + 9).into();
                    record["length"] = u64::MAX.into();
                });
            }
        }),
        ("outside", "it names no file of its chain", &|at| {
            forge(at, &some_items(), None);
            change(at, "000000000001.commit", &|record| record["segment"] = "../../../../outside".into());
        }),
        ("missing", "hole", &|at| {
            forge(at, &some_items(), None);
            change(at, "DONE", &|record| record["segments"] = (1_u64 << 60).into());
        }),
        ("numbers", "numbers are not those of its place", &|at| {
            forge(at, &some_items(), None);
            let base = fs::read_to_string(at.join("slots/n/bases/000000.json")).expect("it is there");
            fs::write(at.join(format!("slots/n/bases/{}.json", u64::MAX)), base).expect("there is room");
            fs::write(at.join("base/000000000003.commit"), "{}").expect("there is room");
        }),
        ("circle", "numbers are not those of its place", &|at| {
            forge(at, &some_items(), Some(0));
            let archive = archive(at);
            for (number, follows) in [(0, 1), (1, 0)] {
                let part = format!("slots/n/parts/00000{number}");
                chain(&archive, &part, &[]);
                let record = serde_json::json!(
                    { "number": number, "source": "x", "begun": 1, "from": "", "follows": follows }
                );
                archive.create(&format!("{part}.json"), record.to_string().as_bytes()).expect("there is room");
            }
            fs::remove_file(at.join("base/DONE")).expect("it is there");
            fs::remove_file(at.join("base/000000000000.commit")).expect("it is there");
        }),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("outside"), "MNTSEG").expect("there is room");
    let target = node("1", &[]);
    let to = target.address().to_string();
    for (name, wanted, forge) in attacks {
        let at = folder.path().join("archives").join(name);
        fs::create_dir_all(&at).expect("there is room");
        forge(&at);
        let from = text(&at);
        let before = everything(folder.path());
        let said = ends(&["restore", "--from", from, "--to", &to, "--at", "now", "--fill"]);
        assert!(said.0 == Some(1) && said.1.contains(wanted), "{name}: {said:?}");
        let said = ends(&["backup", "verify", "--from", from]);
        assert_eq!(said.0, Some(1), "{name}: {said:?}");
        for other in [&["list"][..], &["status"], &["merge"], &["prune", "--keep", "1s"]] {
            ends(&[&["backup"], other, &["--from", from]].concat());
        }
        for of_dump in [
            &["populate", "--from", from, "--to", &to][..],
            &["segments", "show", "--verify", "--from", from],
            &["segments", "export", "--from", from],
        ] {
            assert_eq!(ends(of_dump).0, Some(1), "{name}: {of_dump:?}");
        }
        let beside = |path: &PathBuf| !path.starts_with(&at);
        let (before, after) = (before.into_iter().filter(beside), everything(folder.path()).into_iter().filter(beside));
        assert!(before.eq(after), "{name}: nothing is written beside the archive");
    }
}

/// A block of some KB becomes one of 60 MB.
#[test]
fn blocks_that_grow_a_thousandfold_are_read_one_after_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let value = Bytes::from(vec![0; 60 << 20]);
    let bomb: Vec<_> = (0..6).map(|number| set(format!("k{number}").as_bytes(), value.clone())).collect();
    forge(folder.path(), &[bomb], None);
    let size: u64 = everything(folder.path()).iter().map(|file| fs::metadata(file).expect("it is there").len()).sum();
    assert!(size < 1 << 20, "{size} bytes");
    let (target, from) = (node("1", &[]), text(folder.path()));
    let to = target.address().to_string();
    // Of another prefix, since all of it would go to the disk.
    let (code, said) = ends(&["restore", "--from", from, "--to", &to, "--at", "now", "--fill", "--prefix", "none"]);
    assert_eq!(code, Some(0), "{said}");
    let said = ends(&["restore", "--from", from, "--to", &to, "--at", "now", "--fill", "--value-max", "1m"]);
    assert!(said.0 == Some(1) && said.1.contains("too large"), "{said:?}");
    assert_eq!(ends(&["segments", "show", "--verify", "--from", from]).0, Some(0));
    let (code, said) = ends(&["populate", "--from", from, "--to", &to]);
    assert_eq!((code, items(&target)), (Some(0), 0), "{said}");
}

/// Keys that would be commands to a server that reads lines.
#[test]
fn keys_that_are_none_are_no_commands_to_the_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = [&b"a\r\nflush_all\r\nset x 0 0 1\r\ny"[..], b"b c", b"\0", b"good"];
    let all = keys.iter().map(|key| set(key, Bytes::from_static(b"v"))).collect();
    forge(folder.path(), &[all], None);
    let from = text(folder.path());
    let target = node("1", &[]);
    let memcached = Memcached::start(&[]);
    let connect = || connect_unix(memcached.path()).expect("it listens");
    target.exchange("set there 0 0 1\r\nt\r\n");
    exchange(connect(), "set there 0 0 1\r\nt\r\n");
    let to = target.address().to_string();
    run(&["populate", "--from", from, "--to", &to]);
    run(&["populate", "--from", from, "--to", text(memcached.path())]);
    for answer in [target.exchange("get there good x\r\n"), exchange(connect(), "get there good x\r\n")] {
        assert_eq!(answer, "VALUE there 0 1\r\nt\r\nVALUE good 0 1\r\nv\r\nEND\r\n");
    }
    assert_eq!(items(&target), 5);
    // A server that reads lines takes none of this length, and might take its value for a command.
    let long = folder.path().join("long");
    forge(&long, &[vec![set(&[b'x'; 251], Bytes::from_static(b"\r\nflush_all\r\n"))]], None);
    for to in [&*to, text(memcached.path())] {
        let (code, said) = ends(&["populate", "--from", text(&long), "--to", to]);
        assert!(code == Some(1) && said.contains("a record is none"), "{said}");
    }
    assert!(exchange(connect(), "get there\r\n").contains('t'));
}
