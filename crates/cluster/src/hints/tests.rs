//! What is kept of missed writes, in memory and on disk.

use super::*;

fn missed(version: u64) -> Missed {
    let make = if version.is_multiple_of(2) { Missed::delete } else { Missed::set };
    make(Version(version << 40), version)
}

#[test]
fn the_newest_write_of_each_key_is_kept_in_order_until_the_node_has_it() {
    let hints = Hints::new(1 << 20);
    assert!(hints.is_empty() && hints.of_key(b"a").is_none());
    hints.note(b"a", missed(5));
    hints.note(b"b", missed(6));
    hints.note(b"a", missed(7));
    hints.note(b"a", missed(3));
    assert!(hints.of_key(b"a").is_some() && hints.of_key(b"b").is_some() && hints.of_key(b"c").is_none());
    assert_eq!(hints.oldest(9), [(HintKey::from(*b"a"), missed(7)), (HintKey::from(*b"b"), missed(6))]);
    hints.settle(b"a", missed(6).version);
    assert!(hints.of_key(b"a").is_some(), "the node has an older one");
    hints.settle(b"a", missed(8).version);
    assert_eq!(hints.oldest(9), [(HintKey::from(*b"b"), missed(6))]);
    hints.settle(b"b", missed(6).version);
    assert!(hints.is_empty() && hints.counts() == (0, 0, 0));
}

#[test]
fn a_delete_is_known_behind_a_set_that_may_have_come_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(1 << 20, &path).unwrap();
    hints.note(b"a", missed(6));
    hints.note(b"a", missed(7));
    hints.note(b"b", missed(9));
    hints.note(b"b", missed(8));
    let expected = [(7, 6), (9, 8)].map(|(version, buried)| (Version(version << 40), Version(buried << 40)));
    let known = |hints: &Hints| {
        [&b"a"[..], b"b"].map(|key| hints.of_key(key).map(|missed| (missed.version, missed.buried)).unwrap())
    };
    assert_eq!(known(&hints), expected);
    assert!(hints.of_key(b"a").is_some_and(|missed| !missed.deleted && missed.outdates(None)));
    // From what was appended, and from what was written anew.
    for _ in 0..2 {
        hints.sync();
        assert_eq!(known(&Hints::open(1 << 20, &path).unwrap()), expected);
    }
}

#[test]
fn too_many_put_their_parts_of_the_keys_in_doubt_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(10_000, &path).unwrap();
    for number in 1..200u64 {
        hints.note(format!("key{number}").as_bytes(), missed(number));
    }
    let (kept, bytes, overflowed) = hints.counts();
    assert!(bytes <= 10_000 && kept + overflowed == 199 && kept > 50, "{kept} {bytes} {overflowed}");
    let is_known = |hints: &Hints, number: u64| {
        let known = hints.known(format!("key{number}").as_bytes());
        known.missed == Some(missed(number)) || (known.missed.is_none() && known.doubt >= missed(number).version)
    };
    assert!((1..200).all(|number| is_known(&hints, number)));
    let share = hints.doubt_share();
    assert!(share > 0.0 && share < 0.05 && hints.floors().is_empty(), "{share}");
    // What older builds do not read lies in another file.
    hints.sync();
    drop(hints);
    let hints = Hints::open(10_000, &path).unwrap();
    assert!((1..200).all(|number| is_known(&hints, number)));
    let doubt = hints.doubt().expect("it was kept");
    hints.settle_doubt(&doubt, &Doubt::flags());
    (1..=kept).for_each(|number| hints.settle(format!("key{number}").as_bytes(), missed(number).version));
    assert!(hints.is_empty());
    hints.sync();
    drop(hints);
    assert!(Hints::open(10_000, &path).unwrap().is_empty());
}

#[test]
fn long_keys_leave_half_of_the_memory_to_others() {
    let hints = Hints::new(100_000);
    (0..1000u64).for_each(|number| hints.note(format!("{number:0>240}").as_bytes(), missed(7)));
    assert!(hints.counts().1 <= 50_000 && hints.doubt_share() > 0.0);
    (0..300u64).for_each(|number| hints.note(format!("{number}").as_bytes(), missed(7)));
    assert!((0..300u64).all(|number| hints.of_key(format!("{number}").as_bytes()).is_some()));
}

#[test]
fn a_client_leaves_room_for_the_writes_of_others() {
    let hints = Hints::new(100_000);
    let (greedy, other) = (ClientTag(1), ClientTag(2));
    let key = |number: u64| format!("key{number}");
    (0..5000).for_each(|number| hints.note_of(greedy, key(number).as_bytes(), missed(7)));
    let taken = hints.counts().1;
    assert!((70_000..=75_000).contains(&taken) && hints.doubt_share() > 0.0, "{taken}");
    (5000..5100).for_each(|number| hints.note_of(other, key(number).as_bytes(), missed(7)));
    assert!((5000..5100).all(|number| hints.of_key(key(number).as_bytes()).is_some()));
    // What the node has taken counts no more.
    (0..5000).for_each(|number| hints.settle(key(number).as_bytes(), missed(8).version));
    let left = hints.counts().1;
    (0..5000).for_each(|number| hints.note_of(greedy, key(number).as_bytes(), missed(7)));
    assert!(hints.counts().1 > left + 60_000);
}

/// A build before there was doubt gave a node up by a floor of its own.
#[test]
fn a_floor_of_an_older_build_puts_all_keys_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let mut records = Vec::new();
    log::Entry::Missed(Box::from(*b"a"), missed(5)).encode(&mut records);
    log::Entry::Floor(Floor::local(Version(99))).encode(&mut records);
    std::fs::write(&path, &records).unwrap();
    let hints = Hints::open(1 << 20, &path).unwrap();
    assert!(hints.floors().is_empty() && hints.of_key(b"a").is_some());
    assert_eq!((hints.known(b"whatever").doubt, hints.doubt_share()), (Version(99), 1.0));
}

/// What was flushed at once lives on where only the later one, which waits, is delivered.
#[test]
fn each_flush_is_kept_that_another_one_does_not_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(1 << 20, &path).unwrap();
    let second = 1_790_000_000;
    let version = |second: u32| Version(Version::at(u64::from(second) * 1000).0 + 1);
    let at_once = |at: u32| Floor { version: version(at), second: at };
    let delayed = |at: u32, until: u32| Floor { version: version(at), second: until };
    hints.note_floor(at_once(second));
    hints.note_floor(delayed(second + 1, second + 11));
    hints.note_floor(at_once(second - 5));
    assert_eq!(hints.floors(), [at_once(second), delayed(second + 1, second + 11)]);
    hints.note_floor(delayed(second + 2, second + 30));
    hints.settle_floor(at_once(second));
    hints.sync();
    drop(hints);
    let hints = Hints::open(1 << 20, &path).unwrap();
    assert_eq!(hints.floors(), [delayed(second + 1, second + 11), delayed(second + 2, second + 30)]);
    hints.note_floor(at_once(second + 40));
    assert_eq!(hints.floors(), [at_once(second + 40)]);
    (0..100).for_each(|number| hints.note_floor(delayed(second + 41 + number, second + 900 + number)));
    assert!(hints.floors().len() <= 32 && hints.doubt_share() == 1.0);
}

#[test]
fn hints_move_with_their_file_when_a_slot_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before.hints"), folder.path().join("after.hints"));
    let hints = Hints::open(2_000, &before).unwrap();
    (1..100u64).for_each(|number| hints.note(&number.to_le_bytes(), missed(number)));
    hints.sync();
    hints.move_to(&after);
    hints.note(&1u64.to_le_bytes(), missed(200));
    hints.sync();
    let expected = (hints.oldest(200), hints.doubt());
    drop(hints);
    assert!(!before.exists() && !before.with_extension("doubt").exists());
    let again = Hints::open(2_000, &after).unwrap();
    assert_eq!((again.oldest(200), again.doubt()), expected);
}

#[test]
fn they_outlive_the_process_also_with_a_torn_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(1 << 20, &path).unwrap();
    for number in 1..=100u64 {
        hints.note(format!("key{number}").as_bytes(), missed(number));
    }
    hints.settle(b"key50", missed(50).version);
    hints.note_floor(Floor { version: Version(77), second: 9 });
    hints.sync();
    let expected = hints.oldest(200);
    assert_eq!(expected.len(), 99);
    drop(hints);
    let torn = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&torn[..], &[40, 0, 0, 0, 1, 2, 3]].concat()).unwrap();
    let again = Hints::open(1 << 20, &path).unwrap();
    assert_eq!(again.oldest(200), expected);
    assert_eq!(again.floors(), [Floor { version: Version(77), second: 9 }]);
    again.settle_floor(Floor { version: Version(77), second: 9 });
    for (key, missed) in expected {
        again.settle(&key, missed.version);
    }
    drop(again);
    assert!(Hints::open(1 << 20, &path).unwrap().is_empty());
}

/// A key that is written again and again while the node is away: its file is bounded, and says the newest.
#[test]
fn writes_of_one_key_take_a_bounded_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(1 << 20, &path).unwrap();
    let writes = 200_000u64;
    for number in 1..=writes {
        hints.note(b"key", missed(number));
        if number % 1_000 == 0 {
            hints.sync();
            let length = std::fs::metadata(&path).unwrap().len();
            assert!(length < 2 << 20, "{length} bytes for one key after {number} writes");
        }
    }
    assert_eq!(hints.oldest(9).len(), 1);
    let newest = hints.of_key(b"key");
    drop(hints);
    assert_eq!(Hints::open(1 << 20, &path).unwrap().of_key(b"key"), newest);
}

#[test]
fn they_are_kept_on_disk_again_once_the_disk_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("hints");
    let path = place.join("node.hints");
    std::fs::create_dir(&place).unwrap();
    let hints = Hints::open(1 << 20, &path).unwrap();
    hints.note(b"a", missed(5));
    hints.sync();
    std::fs::remove_dir_all(&place).unwrap();
    // The last one is settled, so the file is written anew, for which there is no folder.
    hints.settle(b"a", missed(5).version);
    hints.sync();
    hints.note(b"b", missed(7));
    hints.sync();
    assert!(!path.exists());
    std::fs::create_dir(&place).unwrap();
    for _ in 0..1_000 {
        hints.sync();
    }
    hints.note(b"c", missed(9));
    hints.sync();
    drop(hints);
    let again = Hints::open(1 << 20, &path).unwrap();
    assert_eq!(again.oldest(9), [(HintKey::from(*b"b"), missed(7)), (HintKey::from(*b"c"), missed(9))]);
}

/// Requests take note of what a node missed: none of them may wait for the disk.
#[test]
fn a_disk_that_hangs_holds_up_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let hints = Hints::open(1 << 20, &path).unwrap();
    hints.note(b"a", missed(5));
    hints.sync();
    hints.settle(b"a", missed(5).version);
    // To write the file anew hangs until this is read from.
    let beside = folder.path().join("node.new");
    assert!(std::process::Command::new("mkfifo").arg(&beside).status().unwrap().success());
    std::thread::scope(|scope| {
        scope.spawn(|| hints.sync());
        while !is_writing(&hints) {
            std::thread::yield_now();
        }
        let (done, is_done) = std::sync::mpsc::channel();
        let shared = &hints;
        scope.spawn(move || {
            shared.note(b"b", missed(7));
            done.send(shared.of_key(b"b").is_some()).unwrap();
        });
        let noted = is_done.recv_timeout(std::time::Duration::from_secs(60));
        std::fs::read(&beside).unwrap();
        assert_eq!(noted, Ok(true), "the request waited for the disk");
    });
    std::fs::remove_file(&beside).unwrap();
}

/// Whether a thread is at the file.
fn is_writing(hints: &Hints) -> bool {
    hints.file.try_lock().is_none()
}

/// A slot that leaves the topology and comes back, while a request still holds the hints of before.
#[test]
fn hints_that_were_left_do_not_replace_the_file_of_those_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.hints");
    let left = Hints::open(1 << 20, &path).unwrap();
    left.note(b"a", missed(5));
    left.sync();
    let back = Hints::open(1 << 20, &path).unwrap();
    back.note(b"b", missed(7));
    back.sync();
    left.settle(b"a", missed(5).version);
    drop(left);
    back.note(b"c", missed(9));
    back.sync();
    let again = Hints::open(1 << 20, &path).unwrap();
    let expected = [(b"a", 5), (b"b", 7), (b"c", 9)].map(|(key, version)| (HintKey::from(*key), missed(version)));
    assert_eq!(again.oldest(9), expected);
}
