//! A target in RAM that was started again between two runs of `populate --cursor-file`. The second run would go on where the first ended,
//! and the target would lack what was written before, with no word of that.

use std::fs;

use super::common::{Memcached, Node, Signal, connect_unix, moneta, refused, steady_port};
use super::{items, node, number, run, send, sets, text, verify};

const KEYS: u32 = 3000;

#[test]
fn a_target_that_was_restarted_empty_between_two_runs_is_populated_from_the_begin() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = node("1", &[]);
    send(source.connect(), &sets(0..KEYS));
    let (from, memcached) = (source.address().to_string(), Memcached::start(&[]));
    send(connect_unix(memcached.path()).expect("it listens"), &sets(0..KEYS));
    run(&["dump", &from, "--into", text(&at("feed"))]);
    run(&["dump", text(memcached.path()), "--into", text(&at("memcached"))]);
    for (name, mode) in [("feed", &["--cluster", "--writer-id", "2"][..]), ("memcached", &[][..])] {
        let port = steady_port().to_string();
        let own = ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--threads", "1"];
        let start = || Node::run(moneta(&own).args(mode));
        let (target, cursor, dump) = (start(), at(&format!("{name}.cursor")), at(name));
        let to = target.address().to_string();
        let populate = ["populate", "--from", text(&dump), "--to", &to, "--cursor-file", text(&cursor), "--json"];
        let written = |report: &str| number(report, "taken") + number(report, "created");
        assert_eq!(written(&run(&populate)), u64::from(KEYS));
        assert_eq!(written(&run(&populate)), 0, "{name}: it goes on where it was");
        target.signal(Signal::SIGKILL);
        drop(target);
        let target = start();
        let ended = super::common::output(&mut moneta(&populate));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && said.contains(&format!("{to} has begun anew, empty, since")), "{said}");
        assert_eq!(items(&target), u64::from(KEYS), "{name}: {said}");
        verify(&to, &from);
        assert_eq!(written(&run(&populate)), 0, "{name}: it goes on where it was");
        // Another node at the address of the target is no other than one that has begun anew. A file of an earlier build tells no life.
        let kept = fs::read_to_string(&cursor).expect("it is there");
        let words: Vec<&str> = kept.split_whitespace().collect();
        assert_eq!(words.len(), 4, "{kept}");
        fs::write(&cursor, words[..3].join(" ")).expect("there is room");
        assert_eq!(written(&run(&populate)), 0, "{name}: a file of an earlier build is gone on with");
        fs::write(&cursor, format!("{} x", words[..3].join(" "))).expect("there is room");
        let said = refused(&mut moneta(&populate), 1);
        assert!(said.contains("cursor"), "{said}");
    }
}
