//! One promise a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use moneta_ledger::commit::{KEY_MAX, PARTS_MAX, VALUE_MAX};
use moneta_ledger::{
    Change, Commit, Committed, Compare, Cursor, Entry, Incarnation, Ledger, LedgerError, Revision, Step,
};

use super::{Made, cursor, done, eventually, follow, now, refusal, told};

fn keys(ledger: &dyn Ledger, prefix: &str) -> Vec<String> {
    now(ledger.snapshot(prefix)).entries.into_iter().map(|entry| entry.key).collect()
}

fn entry(ledger: &dyn Ledger, key: &str) -> Option<Entry> {
    now(ledger.snapshot(key)).entries.into_iter().find(|entry| entry.key == key)
}

fn deleted(key: &str, revision: Revision) -> Change {
    Change::Deleted { key: key.to_owned(), revision }
}

pub fn an_empty_ledger_has_no_entries(ledger: Made) {
    let (one, other) = (now(ledger.snapshot("")), now(ledger.snapshot("")));
    assert_eq!(one.entries, []);
    assert_eq!(one.incarnation, other.incarnation);
    assert_ne!(one.incarnation, Incarnation::default());
}

pub fn a_put_is_there_when_its_commit_is_answered(ledger: Made) {
    for n in 0..20_u32 {
        let revision = done(&*ledger, Commit::new().put("key", n.to_string()));
        let snapshot = now(ledger.snapshot("key"));
        assert!(snapshot.revision >= revision);
        assert_eq!(snapshot.entries[0].value, n.to_string());
        assert_eq!(snapshot.entries[0].modified, revision);
    }
}

pub fn created_is_when_a_key_was_last_absent(ledger: Made) {
    let first = done(&*ledger, Commit::new().put("key", "1"));
    let second = done(&*ledger, Commit::new().put("key", "2"));
    assert!(second > first);
    let found = entry(&*ledger, "key").expect("it was put");
    assert_eq!((found.created, found.modified, &found.value[..]), (first, second, &b"2"[..]));
    done(&*ledger, Commit::new().delete("key"));
    assert_eq!(entry(&*ledger, "key"), None);
    let third = done(&*ledger, Commit::new().put("key", "3"));
    let found = entry(&*ledger, "key").expect("it was put");
    assert_eq!((found.created, found.modified), (third, third));
}

pub fn compares_are_all_or_nothing(ledger: Made) {
    let there = done(&*ledger, Commit::new().put("there", "1"));
    let absent = |key: &str| Compare::Absent(key.to_owned());
    let present = |key: &str| Compare::Present(key.to_owned());
    let modified = |key: &str, revision| Compare::Modified(key.to_owned(), revision);
    for (row, compares, holds) in [
        ("absent", vec![absent("not")], true),
        ("not absent", vec![absent("there")], false),
        ("present", vec![present("there")], true),
        ("not present", vec![present("not")], false),
        ("as it was", vec![modified("there", there)], true),
        ("not as it was", vec![modified("there", Revision(there.0 + 1))], false),
        ("of what is not there", vec![modified("not", there)], false),
        ("all", vec![absent("not"), present("there"), modified("there", there)], true),
        ("all but one", vec![absent("not"), present("there"), present("not")], false),
    ] {
        let before = now(ledger.snapshot(""));
        let mut commit = Commit::new().put(format!("of {row}"), "x").delete("gone");
        commit.compares = compares;
        let committed = now(ledger.commit(commit));
        assert_eq!(matches!(committed, Committed::Done(_)), holds, "{row}");
        assert_eq!(entry(&*ledger, &format!("of {row}")).is_some(), holds, "{row}");
        if !holds {
            assert_eq!(now(ledger.snapshot("")).entries, before.entries, "{row}");
        }
    }
    // What is compared may be what is put, and is compared as it was before.
    assert!(matches!(
        now(ledger.commit(Commit::new().only_if(modified("there", there)).put("there", "2"))),
        Committed::Done(_)
    ));
    assert_eq!(
        now(ledger.commit(Commit::new().only_if(modified("there", there)).put("there", "3"))),
        Committed::Conflict
    );
    assert_eq!(entry(&*ledger, "there").expect("it is there").value, "2");
}

pub fn a_commit_that_changes_nothing_is_told_to_nobody(ledger: Made) {
    let from = cursor(&*ledger);
    done(&*ledger, Commit::new().delete("never there"));
    done(&*ledger, Commit::new().only_if(Compare::Absent("never there".into())));
    let last = done(&*ledger, Commit::new().put("key", "1"));
    let told = told(&mut *follow(&*ledger, "", from), last);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].0, last);
}

pub fn what_is_against_the_rules_is_refused_and_what_is_just_within_them_is_not(ledger: Made) {
    let many = |count: usize| (0..count).fold(Commit::new(), |commit, n| commit.put(format!("many/{n}"), "x"));
    for (row, commit) in [
        ("a key too long", Commit::new().put("k".repeat(KEY_MAX + 1), "x")),
        ("an empty key", Commit::new().put("", "x")),
        ("an empty key deleted", Commit::new().delete("")),
        ("an empty key compared", Commit::new().only_if(Compare::Absent(String::new()))),
        ("a value too long", Commit::new().put("k", vec![0; VALUE_MAX + 1])),
        ("too many parts", many(PARTS_MAX + 1)),
        ("too many bytes", Commit::new().put("a", vec![0; VALUE_MAX]).put("b", vec![0; VALUE_MAX])),
        ("put twice", Commit::new().put("k", "1").put("k", "2")),
        ("put and deleted", Commit::new().put("k", "1").delete("k")),
    ] {
        let refused = pollster::block_on(ledger.commit(commit));
        assert!(matches!(refused, Err(LedgerError::Refused { .. })), "{row}: {refused:?}");
    }
    assert_eq!(now(ledger.snapshot("")).entries, []);
    done(&*ledger, many(PARTS_MAX));
    let compares =
        (0..PARTS_MAX).fold(Commit::new(), |commit, n| commit.only_if(Compare::Present(format!("many/{n}"))));
    done(&*ledger, compares);
    done(&*ledger, (0..PARTS_MAX).fold(Commit::new(), |commit, n| commit.delete(format!("many/{n}"))));
    let (key, value) = ("k".repeat(KEY_MAX), vec![7_u8; VALUE_MAX]);
    done(&*ledger, Commit::new().put(key.clone(), value.clone()));
    assert_eq!(entry(&*ledger, &key).expect("it was put").value, value);
    done(&*ledger, Commit::new().put(key.clone(), ""));
    assert_eq!(entry(&*ledger, &key).expect("it was put").value, "");
}

pub fn a_prefix_is_of_bytes_and_ends_where_it_ends(ledger: Made) {
    let all = ["a", "a/", "a/1", "a/1/x", "a/2", "a0", "b", "é", "\u{10ffff}", "\u{10ffff}\u{10ffff}", "\0", "A"];
    let commit = all.iter().fold(Commit::new(), |commit, key| commit.put(*key, "x"));
    let from = cursor(&*ledger);
    let last = done(&*ledger, commit);
    let mut sorted = all.map(str::to_owned);
    sorted.sort();
    assert_eq!(keys(&*ledger, ""), sorted);
    for prefix in ["a", "a/", "a/1", "a/3", "é", "\u{10ffff}", "\0", "z", "b"] {
        let expected: Vec<String> = sorted.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(keys(&*ledger, prefix), expected, "{prefix:?}");
        let told = told(&mut *follow(&*ledger, prefix, from), last);
        let told: Vec<&str> = told.iter().flat_map(|(_, changes)| changes).map(Change::key).collect();
        assert_eq!(told, expected, "{prefix:?}");
    }
}

pub fn a_follower_is_told_each_change_once_and_whole_commits(ledger: Made) {
    done(&*ledger, Commit::new().put("in/before", "x"));
    let from = cursor(&*ledger);
    let mut follower = follow(&*ledger, "in/", from);
    let first = done(&*ledger, Commit::new().put("in/b", "1").put("in/a", "2").put("out", "3").delete("in/before"));
    done(&*ledger, Commit::new().put("out", "4"));
    let second = done(&*ledger, Commit::new().put("in/a", "5"));
    let third = done(&*ledger, Commit::new().delete("in/a").delete("in/not"));
    let put = |key: &str, value: &'static str, created, modified| {
        Change::Put(Entry { key: key.into(), value: Bytes::from(value), created, modified, hold: None })
    };
    let expected = vec![
        (first, vec![put("in/a", "2", first, first), put("in/b", "1", first, first), deleted("in/before", first)]),
        (second, vec![put("in/a", "5", first, second)]),
        (third, vec![deleted("in/a", third)]),
    ];
    assert_eq!(told(&mut *follower, third), expected);
    // Another one is told the same, also from between two commits.
    assert_eq!(told(&mut *follow(&*ledger, "in/", from), third), expected);
    let between = Cursor { revision: first, ..from };
    assert_eq!(told(&mut *follow(&*ledger, "in/", between), third), expected[1..]);
}

pub fn the_past_can_be_followed(ledger: Made) {
    let from = cursor(&*ledger);
    // More than a backend keeps at hand or tells at once.
    let value = vec![b'x'; 64 << 10];
    let commits: Vec<Revision> =
        (0..300).map(|n| done(&*ledger, Commit::new().put(format!("key/{}", n % 7), value.clone()))).collect();
    let told = told(&mut *follow(&*ledger, "key/", from), commits[299]);
    assert_eq!(told.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), commits);
}

pub fn the_future_and_another_ledger_cannot_be_followed(ledger: Made) {
    let at = cursor(&*ledger);
    let future = Cursor { revision: Revision(at.revision.0 + 1_000_000), ..at };
    assert!(matches!(refusal(&*ledger, future), LedgerError::Future { .. }));
    let other = Cursor { incarnation: Incarnation(at.incarnation.0 ^ 1), ..at };
    assert_eq!(refusal(&*ledger, other), LedgerError::Replaced { now: at.incarnation });
}

pub fn what_is_compacted_cannot_be_followed_and_what_is_there_stays(ledger: Made) {
    let at = cursor(&*ledger);
    let commits: Vec<Revision> =
        (0..50).map(|n| done(&*ledger, Commit::new().put(format!("key/{}", n % 5), n.to_string()))).collect();
    let before = now(ledger.snapshot(""));
    now(ledger.compact(commits[30]));
    assert_eq!(now(ledger.snapshot("")).entries, before.entries);
    for revision in [at.revision, commits[0], commits[28], commits[29]] {
        let error = refusal(&*ledger, Cursor { revision, ..at });
        assert!(matches!(error, LedgerError::Compacted { oldest } if oldest >= commits[30]), "{revision}: {error:?}");
    }
    for from in [30, 31, 49] {
        let told = told(&mut *follow(&*ledger, "", Cursor { revision: commits[from], ..at }), commits[49]);
        assert_eq!(told.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), commits[from + 1..]);
    }
    // Once more, and an older one, are no fault; one that is not there yet is.
    now(ledger.compact(commits[30]));
    now(ledger.compact(commits[3]));
    let future = pollster::block_on(ledger.compact(Revision(commits[49].0 + 1_000_000)));
    assert!(matches!(future, Err(LedgerError::Future { .. })), "{future:?}");
    let last = done(&*ledger, Commit::new().put("key/0", "new"));
    assert_eq!(told(&mut *follow(&*ledger, "", Cursor { revision: commits[49], ..at }), last).len(), 1);
}

pub fn a_delete_at_the_compacted_revision_is_not_lost(ledger: Made) {
    let first = done(&*ledger, Commit::new().put("key", "1"));
    let second = done(&*ledger, Commit::new().delete("key"));
    let at = cursor(&*ledger);
    now(ledger.compact(second));
    let error = refusal(&*ledger, Cursor { revision: first, ..at });
    assert!(matches!(error, LedgerError::Compacted { .. }), "{error:?}");
    let third = done(&*ledger, Commit::new().put("other", "1"));
    assert_eq!(told(&mut *follow(&*ledger, "", Cursor { revision: second, ..at }), third).len(), 1);
}

pub fn a_follower_whose_place_is_compacted_is_told_all_or_that_it_was(ledger: Made) {
    let from = cursor(&*ledger);
    let mut follower = follow(&*ledger, "", from);
    let value = vec![b'x'; 32 << 10];
    let commits: Vec<Revision> =
        (0..400).map(|n| done(&*ledger, Commit::new().put(format!("key/{}", n % 3), value.clone()))).collect();
    now(ledger.compact(commits[399]));
    let mut seen = Vec::new();
    loop {
        match pollster::block_on(follower.step()) {
            Ok(Step::Changes { revision, .. }) => seen.push(revision),
            Ok(Step::At(revision)) if revision >= commits[399] => {
                assert_eq!(seen, commits);
                return;
            }
            Ok(Step::At(_)) => {}
            Err(error) => {
                assert!(matches!(error, LedgerError::Compacted { .. }), "{error:?}");
                assert_eq!(seen, commits[..seen.len()]);
                return;
            }
        }
    }
}

pub fn a_hold_that_is_not_renewed_takes_its_keys_with_it(ledger: Made) {
    let hold = now(ledger.hold(Duration::from_millis(1_500)));
    done(&*ledger, Commit::new().put_held("held/a", "1", hold).put_held("held/b", "2", hold).put("free", "3"));
    let found = entry(&*ledger, "held/a");
    assert_eq!(found.as_ref().and_then(|found| found.hold), Some(hold));
    let from = cursor(&*ledger);
    let mut follower = follow(&*ledger, "", from);
    let gone = loop {
        match now(follower.step()) {
            Step::Changes { changes, .. } => break changes,
            Step::At(_) => {}
        }
    };
    assert_eq!(gone.iter().map(Change::key).collect::<Vec<_>>(), ["held/a", "held/b"]);
    assert!(gone.iter().all(|change| matches!(change, Change::Deleted { .. })), "{gone:?}");
    assert_eq!(keys(&*ledger, ""), ["free"]);
    assert_eq!(pollster::block_on(ledger.renew(hold)), Err(LedgerError::HoldEnded));
}

pub fn a_hold_that_is_renewed_keeps_its_keys(ledger: Made) {
    let (kept, lost) = (now(ledger.hold(Duration::from_secs(3))), now(ledger.hold(Duration::from_secs(2))));
    done(&*ledger, Commit::new().put_held("kept", "1", kept).put_held("lost", "2", lost));
    // Renewed for longer than the other one takes to end, however slow this machine is.
    let mut turns = 0;
    eventually("the hold that nobody renews ends", || {
        now(ledger.renew(kept));
        turns += 1;
        keys(&*ledger, "lost").is_empty()
    });
    assert!(turns > 1);
    now(ledger.renew(kept));
    assert_eq!(keys(&*ledger, ""), ["kept"]);
}

pub fn a_released_hold_takes_its_keys_at_once(ledger: Made) {
    let hold = now(ledger.hold(Duration::from_secs(600)));
    done(&*ledger, Commit::new().put_held("held", "1", hold));
    now(ledger.release(hold));
    assert_eq!(keys(&*ledger, ""), [""; 0]);
    assert_eq!(pollster::block_on(ledger.renew(hold)), Err(LedgerError::HoldEnded));
    // Once more is no fault.
    now(ledger.release(hold));
}

pub fn a_put_without_a_hold_takes_the_key_from_it(ledger: Made) {
    let (hold, other) = (now(ledger.hold(Duration::from_secs(600))), now(ledger.hold(Duration::from_secs(600))));
    done(&*ledger, Commit::new().put_held("a", "1", hold).put_held("b", "1", hold).put_held("c", "1", hold));
    done(&*ledger, Commit::new().put("a", "2").put_held("b", "2", other));
    assert_eq!(entry(&*ledger, "a").and_then(|entry| entry.hold), None);
    now(ledger.release(hold));
    assert_eq!(keys(&*ledger, ""), ["a", "b"]);
    now(ledger.release(other));
    assert_eq!(keys(&*ledger, ""), ["a"]);
    // Deleted and made anew, it has nothing to do with a hold.
    let third = now(ledger.hold(Duration::from_secs(600)));
    done(&*ledger, Commit::new().put_held("d", "1", third));
    done(&*ledger, Commit::new().delete("d"));
    done(&*ledger, Commit::new().put("d", "2"));
    now(ledger.release(third));
    assert_eq!(keys(&*ledger, ""), ["a", "d"]);
}

pub fn nothing_can_be_put_with_a_hold_that_ended(ledger: Made) {
    let hold = now(ledger.hold(Duration::from_secs(600)));
    now(ledger.release(hold));
    let refused = pollster::block_on(ledger.commit(Commit::new().put("free", "1").put_held("held", "1", hold)));
    assert_eq!(refused, Err(LedgerError::HoldEnded));
    assert_eq!(keys(&*ledger, ""), [""; 0]);
}

/// A counter that eight threads count up by compare and put: no count is lost, and none is given out twice.
pub fn of_those_who_compare_one_wins(ledger: Made) {
    const THREADS: usize = 8;
    const EACH: usize = 10;
    done(&*ledger, Commit::new().put("counter", "0"));
    let counted: Vec<usize> = thread::scope(|scope| {
        let count = || {
            let mut mine = Vec::new();
            while mine.len() < EACH {
                let found = entry(&*ledger, "counter").expect("it is there");
                let count: usize = str::from_utf8(&found.value).expect("text").parse().expect("a number");
                let commit = Commit::new()
                    .only_if(Compare::Modified("counter".into(), found.modified))
                    .put("counter", (count + 1).to_string());
                if let Committed::Done(_) = now(ledger.commit(commit)) {
                    mine.push(count + 1);
                }
            }
            mine
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut sorted = counted.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=THREADS * EACH).collect::<Vec<_>>());
    assert_eq!(entry(&*ledger, "counter").expect("it is there").value, (THREADS * EACH).to_string());
}

pub fn followers_under_concurrent_commits_miss_nothing(ledger: Made) {
    const WRITERS: usize = 4;
    const EACH: usize = 60;
    let from = cursor(&*ledger);
    let is_done = AtomicBool::new(false);
    let last = std::sync::Mutex::new(Revision(0));
    thread::scope(|scope| {
        let followers: Vec<_> = (0..WRITERS + 1)
            .map(|n| {
                let (ledger, is_done, last) = (Arc::clone(&ledger), &is_done, &last);
                scope.spawn(move || {
                    let prefix = if n < WRITERS { format!("w{n}/") } else { String::new() };
                    let mut follower = follow(&*ledger, &prefix, from);
                    let (mut seen, mut state, mut at) = (0, BTreeMap::new(), from.revision);
                    loop {
                        match now(follower.step()) {
                            Step::Changes { revision, changes } => {
                                assert!(revision > at, "{revision} was told after {at}");
                                at = revision;
                                assert_eq!(changes.len(), 2, "a part of a commit: {changes:?}");
                                seen += 1;
                                for change in changes {
                                    assert_eq!(change.revision(), revision);
                                    if let Change::Put(entry) = change {
                                        state.insert(entry.key.clone(), entry);
                                    }
                                }
                            }
                            Step::At(revision) => {
                                assert!(revision >= at, "all up to {revision}, and {at} was told");
                                at = revision;
                                if is_done.load(Ordering::SeqCst) && revision >= *last.lock().expect("no panic") {
                                    return (prefix, seen, state);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let ledger = Arc::clone(&ledger);
                scope.spawn(move || {
                    let commit = |count: usize| {
                        Commit::new().put(format!("w{n}/a{}", count % 3), count.to_string()).put(format!("w{n}/b"), "x")
                    };
                    (0..EACH).map(|count| done(&*ledger, commit(count))).max().expect("some")
                })
            })
            .collect();
        let newest = writers.into_iter().map(|writer| writer.join().expect("no panic")).max().expect("some");
        *last.lock().expect("no panic") = newest;
        is_done.store(true, Ordering::SeqCst);
        for follower in followers {
            let (prefix, seen, state) = follower.join().expect("no panic");
            assert_eq!(seen, if prefix.is_empty() { WRITERS * EACH } else { EACH }, "{prefix:?}");
            let entries: Vec<Entry> = state.into_values().collect();
            assert_eq!(entries, now(ledger.snapshot(&prefix)).entries, "{prefix:?}");
        }
    });
}

pub fn a_commit_that_is_let_go_is_whole_or_nothing(ledger: Made) {
    for n in 0..30 {
        let mut commit = ledger.commit(Commit::new().put(format!("a/{n}"), "1").put(format!("b/{n}"), "1"));
        // Polled once, so that it may have begun.
        let waker = std::task::Waker::noop();
        let _ = commit.as_mut().poll(&mut std::task::Context::from_waker(waker));
        drop(commit);
    }
    let last = done(&*ledger, Commit::new().put("last", "1"));
    assert!(last > Revision(0));
    let (a, b) = (keys(&*ledger, "a/"), keys(&*ledger, "b/"));
    let names = |keys: Vec<String>| keys.into_iter().map(|key| key[2..].to_owned()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
}

pub fn nothing_new_is_told_as_a_mark_again_and_again(ledger: Made) {
    let from = cursor(&*ledger);
    let mut follower = follow(&*ledger, "", from);
    let mut at = from.revision;
    for _ in 0..3 {
        match now(follower.step()) {
            Step::At(revision) => {
                assert!(revision >= at);
                at = revision;
            }
            Step::Changes { .. } => panic!("nothing has changed"),
        }
    }
}

pub fn a_ledger_is_filled_only_while_it_is_empty_and_then_is_another_one(ledger: Made) {
    let before = cursor(&*ledger);
    let mut follower = follow(&*ledger, "", before);
    let above = Revision(before.revision.0 + 1_000);
    let entries: Vec<(String, Bytes)> = (0..500).map(|n| (format!("key/{n:03}"), Bytes::from(n.to_string()))).collect();
    let filled = now(ledger.fill(above, entries.clone()));
    assert!(filled.revision > above);
    assert_ne!(filled.incarnation, before.incarnation);
    let snapshot = now(ledger.snapshot(""));
    assert_eq!(snapshot.incarnation, filled.incarnation);
    assert!(snapshot.revision >= filled.revision);
    assert!(snapshot.entries.iter().all(|entry| entry.modified > above && entry.modified <= filled.revision));
    let found: Vec<_> = snapshot.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(found, entries);
    // Who followed the one of before is told so, and never of the new one's entries.
    let error = loop {
        match pollster::block_on(follower.step()) {
            Ok(Step::At(_)) => {}
            Ok(Step::Changes { revision, .. }) => panic!("{revision} of the new ledger was told"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, LedgerError::Replaced { now: filled.incarnation });
    assert_eq!(refusal(&*ledger, before), LedgerError::Replaced { now: filled.incarnation });
    let again = pollster::block_on(ledger.fill(above, entries));
    assert!(matches!(again, Err(LedgerError::Refused { .. })), "{again:?}");
    let last = done(&*ledger, Commit::new().put("key/new", "1"));
    assert!(last > filled.revision);
    assert_eq!(told(&mut *follow(&*ledger, "", filled), last).len(), 1);
}

pub fn many_entries_are_one_snapshot(ledger: Made) {
    const COUNT: usize = 5_000;
    for block in 0..COUNT / 100 {
        let commit = (0..100)
            .fold(Commit::new(), |commit, n| commit.put(format!("key/{:05}", block * 100 + n), vec![b'x'; 300]));
        done(&*ledger, commit);
    }
    let snapshot = now(ledger.snapshot("key/"));
    assert_eq!(snapshot.entries.len(), COUNT);
    assert!(snapshot.entries.is_sorted_by(|one, next| one.key < next.key));
}
