//! Several populators of one directory, of which one is killed; a base that is shared before it is done; one that was begun anew.

use std::fs;

use super::common::{Memcached, Node, Process, Signal, connect_unix, moneta, printed, refused, steady_port, until};
use super::{items, node, number, run, send, sets, text, verify};

const KEYS: u32 = 40_000;

#[test]
fn populators_share_a_directory_and_one_that_is_killed_leaves_its_segment_to_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let memcached = Memcached::start(&[]);
    send(connect_unix(memcached.path()).expect("it listens"), &sets(0..KEYS));
    let target = node("1", &[]);
    let (from, to) = (at("dump"), target.address().to_string());
    let populate = |rate: &str| {
        let arguments = ["populate", "--from", text(&from), "--to", &to, "--share", "once", "--share-patience", "6"];
        let mut command = moneta(&arguments);
        command.args(["--rate", rate, "--json"]);
        command
    };
    fs::create_dir(&from).expect("there is room");
    // It waits for the first segment, takes that while others are written, and is killed in the midst of it.
    let mut killed = Process::start(&mut populate("10k"));
    let dump = ["dump", text(memcached.path()), "--into", text(&from), "--segment-size", "50k", "--no-compression"];
    run(&[&dump[..], &["--rate", "2m"]].concat());
    until("the first has written something", || items(&target) > 0);
    killed.signal(Signal::SIGKILL);
    killed.wait();
    let mut others: Vec<Process> = (0..3).map(|_| Process::start(&mut populate("10m"))).collect();
    let mut segments = 0;
    for other in &mut others {
        let status = other.wait();
        assert!(status.success(), "{status}: {}", other.stderr());
        segments += number(&other.stdout(), "segments");
    }
    let all = fs::read_dir(from.join("base")).expect("it is there");
    let all = all.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension() == Some("commit".as_ref())));
    assert_eq!(segments, all.count() as u64, "each segment is done once, that of the first among them");
    verify(text(memcached.path()), &to);
    // One that comes late has nothing to do, and says that all is there.
    let report = run(&["populate", "--from", text(&from), "--to", &to, "--share", "once", "--json"]);
    assert!(report.contains("\"done\":true") && number(&report, "segments") == 0, "{report}");
    // For another target nothing of it is done.
    let other = node("2", &[]);
    let other = other.address().to_string();
    let is = ["populate", "--from", text(&from), "--to", &other, "--share", "once"];
    let said = refused(&mut moneta(&is), 1);
    assert!(said.contains("a share of another name"), "{said}");
    let cursor = folder.path().join("cursor");
    let is = |to: &str| moneta(&["populate", "--from", text(&from), "--to", to, "--cursor-file", text(&cursor)]);
    printed(&mut is(&to));
    let said = refused(&mut is(&other), 1);
    assert!(said.contains("another target takes another file"), "{said}");
}

/// A target in RAM that takes the second half of the segments has nothing of the first, and no populator sees that by its own writes.
#[test]
fn a_target_that_begins_anew_in_the_middle_is_an_error_and_under_another_name_it_has_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("dump");
    let memcached = Memcached::start(&[]);
    send(connect_unix(memcached.path()).expect("it listens"), &sets(0..KEYS));
    run(&["dump", text(memcached.path()), "--into", text(&from), "--segment-size", "50k", "--no-compression"]);
    for (name, mode) in [("feed", &["--cluster", "--writer-id", "1"][..]), ("memcached", &[][..])] {
        let port = steady_port().to_string();
        let own = ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--threads", "1"];
        let start = || Node::run(moneta(&own).args(mode));
        let target = start();
        let to = target.address().to_string();
        let populate = |share: &str, rate: &str| {
            let is = ["populate", "--from", text(&from), "--to", &to, "--share", share, "--rate", rate];
            Process::start(&mut moneta(&is))
        };
        let mut two = [populate(name, "600k"), populate(name, "600k")];
        let done = || {
            fs::read_dir(from.join("claims").join(name)).map_or(0, |claims| {
                claims.flatten().filter(|claim| claim.path().extension() == Some("done".as_ref())).count()
            })
        };
        until("two segments are done", || done() >= 2);
        target.signal(Signal::SIGKILL);
        drop(target);
        let target = start();
        for one in &mut two {
            let status = one.wait();
            assert_eq!(status.code(), Some(1), "{}", one.stderr());
        }
        let said = two.iter().map(Process::stderr).collect::<String>();
        assert!(said.contains("has begun anew, empty"), "{said}");
        // One that comes later is not told that all is done, either.
        let mut late = populate(name, "10m");
        assert_eq!(late.wait().code(), Some(1), "{}", late.stderr());
        assert!(late.stderr().contains("has begun anew, empty"), "{}", late.stderr());
        let mut another = populate(&format!("{name}-2"), "50m");
        assert!(another.wait().success(), "{}", another.stderr());
        assert_eq!(items(&target), u64::from(KEYS));
        verify(text(memcached.path()), &to);
        // One populator alone, and a copy, see it as well.
        let mut alone =
            Process::start(moneta(&["populate", "--from", text(&from), "--to", &to]).args(["--rate", "1m"]));
        let copy = ["copy", "--from", text(memcached.path()), "--to", &to, "--rate", "1m"];
        let mut copying = Process::start(&mut moneta(&copy));
        until("both have begun", || {
            [&alone, &copying].iter().all(|one| one.stderr().contains("cop") || one.stderr().contains("base"))
        });
        target.signal(Signal::SIGKILL);
        drop(target);
        let _target = start();
        for one in [&mut alone, &mut copying] {
            assert_eq!(one.wait().code(), Some(1), "{}", one.stderr());
            assert!(one.stderr().contains("has begun anew, empty"), "{}", one.stderr());
        }
    }
}

/// Its keys were listed before, and all of them count as gone: without this a part is taken for the whole.
#[test]
fn a_source_that_begins_anew_in_the_middle_is_no_whole_base() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, mode) in [("feed", &["--cluster", "--writer-id", "1"][..]), ("memcached", &[][..])] {
        let into = folder.path().join(name);
        let port = steady_port().to_string();
        let own = ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--threads", "1"];
        let start = || Node::run(moneta(&own).args(mode));
        let source = start();
        send(source.connect(), &sets(0..KEYS));
        let (from, target) = (source.address().to_string(), node("2", &[]));
        let to = target.address().to_string();
        let dump = ["dump", &from, "--into", text(&into), "--rate", "1m", "--segment-size", "50k"];
        let copy = ["copy", "--from", &from, "--to", &to, "--rate", "1m"];
        let mut both = [Process::start(&mut moneta(&dump)), Process::start(&mut moneta(&copy))];
        let has_segment = || fs::read_dir(into.join("base")).is_ok_and(|base| base.flatten().count() > 1);
        until("both have begun", || items(&target) > 0 && has_segment());
        source.signal(Signal::SIGKILL);
        drop(source);
        let _source = start();
        for one in &mut both {
            let status = one.wait();
            assert_eq!(status.code(), Some(1), "{name}: {}", one.stderr());
        }
        assert!(!into.join("base/DONE").exists(), "{name}");
    }
}

#[test]
fn a_base_that_is_begun_anew_after_some_of_it_was_written_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("dump");
    let memcached = Memcached::start(&[]);
    send(connect_unix(memcached.path()).expect("it listens"), &sets(0..KEYS));
    let target = node("1", &[]);
    let to = target.address().to_string();
    fs::create_dir(&from).expect("there is room");
    let dump = ["dump", text(memcached.path()), "--into", text(&from), "--segment-size", "50k", "--no-compression"];
    let mut dumping = Process::start(moneta(&dump).args(["--rate", "300k"]));
    let mut sharing = Process::start(&mut moneta(&["populate", "--from", text(&from), "--to", &to, "--share", "a"]));
    until("a segment is done", || {
        fs::read_dir(from.join("claims/a")).is_ok_and(|mut claims| {
            claims.any(|claim| claim.is_ok_and(|claim| claim.path().extension() == Some("done".as_ref())))
        })
    });
    dumping.signal(Signal::SIGKILL);
    dumping.wait();
    run(&dump);
    let status = sharing.wait();
    assert!(!status.success() && sharing.stderr().contains("begun anew after"), "{}", sharing.stderr());
    // Under another name it is a base as any other.
    run(&["populate", "--from", text(&from), "--to", &to, "--share", "b"]);
    verify(text(memcached.path()), &to);
}

#[test]
fn the_changes_of_a_shared_archive_are_applied_by_one_and_by_another_once_that_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("dump");
    let (source, target) = (node("1", &[]), node("2", &[]));
    send(source.connect(), &sets(0..500));
    let address = source.address().to_string();
    let _dumping = Process::start(&mut moneta(&["dump", &address, "--into", text(&from), "--follow"]));
    until("the base is there", || from.join("base/DONE").is_file());
    let to = target.address().to_string();
    let populate = || {
        let arguments = ["populate", "--from", text(&from), "--to", &to, "--share", "a", "--share-patience", "6"];
        Process::start(moneta(&arguments).arg("--follow"))
    };
    let mut two = [populate(), populate()];
    until("one waits for the other", || two.iter().any(|one| one.stderr().contains("another applies the changes")));
    source.exchange("set k1 0 0 5\r\nnewer\r\ndelete k2\r\n");
    let is_told = || target.exchange("get k1\r\n").contains("newer") && target.exchange("get k2\r\n") == "END\r\n";
    until("a change and a delete are applied", is_told);
    let waits = usize::from(two[1].stderr().contains("another applies the changes"));
    two[1 - waits].signal(Signal::SIGKILL);
    two[1 - waits].wait();
    source.exchange("set k1 0 0 4\r\nlast\r\n");
    until("the other goes on", || target.exchange("get k1\r\n").contains("last"));
    two[waits].signal(Signal::SIGTERM);
    assert!(two[waits].wait().success());
}

#[test]
fn what_lies_in_an_archive_is_listed_printed_and_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("dump");
    let memcached = Memcached::start(&[]);
    send(
        connect_unix(memcached.path()).expect("it listens"),
        b"set a 7 0 2 noreply\r\nxy\r\nset b 0 0 1 noreply\r\n\xff\r\n",
    );
    run(&["dump", text(memcached.path()), "--into", text(&from)]);
    let shown = run(&["segments", "show", "--from", text(&from), "--verify"]);
    assert!(shown.starts_with("base: 1 segments, done, 2 items\n"), "{shown}");
    let mut lines: Vec<String> =
        run(&["segments", "export", "--from", text(&from)]).lines().map(str::to_owned).collect();
    lines.sort();
    assert!(
        lines[0].contains("\"flags\":0,\"key\":\"b\"") && lines[0].contains("\"value_base64\":\"/w==\""),
        "{lines:?}"
    );
    assert!(lines[1].contains("\"flags\":7,\"key\":\"a\"") && lines[1].contains("\"value\":\"xy\""), "{lines:?}");
    let segment = fs::read_dir(from.join("base")).expect("it is there").map(|entry| entry.expect("it is there").path());
    let segment = segment.into_iter().find(|path| path.extension() == Some("segment".as_ref())).expect("there is one");
    let mut bytes = fs::read(&segment).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 8;
    fs::write(&segment, bytes).expect("there is room");
    let error = refused(&mut moneta(&["segments", "show", "--from", text(&from), "--verify"]), 1);
    assert!(error.contains("damaged"), "{error}");
}

/// A mount that shows what others have written only when it is told to look, file by file, while another process lists it.
#[test]
fn a_mount_that_is_refreshed_while_others_list_it_shows_no_part_for_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let (far, near) = (folder.path().join("far"), folder.path().join("near"));
    let memcached = Memcached::start(&[]);
    send(connect_unix(memcached.path()).expect("it listens"), &sets(0..KEYS));
    let target = node("1", &[]);
    let to = target.address().to_string();
    fs::create_dir_all(near.join("base")).expect("there is room");
    // Each file as a whole, and the last first, so that a record comes before what it names.
    let refresh = format!(
        "cd {} 2>/dev/null || exit 0; for f in $(ls -r); do case $f in *.new|DONE) continue;; esac; test -e {near}/$f || {{ cp $f {near}/.t.$$ \
         && mv {near}/.t.$$ {near}/$f; }}; sleep 0.02; done; test ! -e DONE || cp DONE {near}/.d.$$ && mv -f {near}/.d.$$ {near}/DONE 2>/dev/null; true",
        text(&far.join("base")),
        near = text(&near.join("base")),
    );
    let populate = ["populate", "--from", text(&near), "--to", &to, "--share", "once", "--refresh", &refresh];
    let mut populators: Vec<Process> = (0..2).map(|_| Process::start(&mut moneta(&populate))).collect();
    let dump = ["dump", text(memcached.path()), "--into", text(&far), "--segment-size", "50k", "--no-compression"];
    run(&[&dump[..], &["--rate", "2m"]].concat());
    for populator in &mut populators {
        let status = populator.wait();
        assert!(status.success(), "{status}: {}", populator.stderr());
    }
    verify(text(memcached.path()), &to);
}
