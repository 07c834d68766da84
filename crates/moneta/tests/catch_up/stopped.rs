//! Nodes that missed writes though they did not restart. The failure to guard against: a node that was stopped goes on to answer
//! with what it held before, until a proxy has brought it what it missed.

use std::io::{Read as _, Write as _};

use super::*;

#[test]
fn a_node_that_was_stopped_shows_nothing_old_when_it_goes_on() {
    let copies = Copies::start([&[], &[], &["--feed-memory", "5", "-m", "64"]]);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..KEYS, "old");
    let b = copies.node(1);
    b.wait_for(|| value(b, "key399").is_some(), "the write does not arrive");
    b.wait_for_log("epoch=1");
    drop(proxy);
    b.signal(Signal::SIGSTOP);
    // Straight to the others: no proxy knows that it lacks these.
    for number in [0, 2] {
        set_all(copies.node(number), 0..KEYS - 1, "new");
        assert_eq!(copies.node(number).exchange("delete key399\r\n"), "DELETED\r\n");
    }
    std::thread::sleep(std::time::Duration::from_millis(3000));
    // Asked while it stands still: answered before any feed can have told it something.
    let mut early: Vec<_> = (0..20).map(|_| b.connect()).collect();
    for (key, stream) in early.iter_mut().enumerate() {
        stream.write_all(format!("mg key{key} v\r\n").as_bytes()).expect("the kernel takes it");
    }
    b.signal(Signal::SIGCONT);
    for stream in &mut early {
        let mut answer = [0; 32];
        let read = stream.read(&mut answer).expect("it answers");
        assert!(!answer[..read].ends_with(b"old\r\n"), "{}", answer[..read].escape_ascii());
    }
    let mut shown = Vec::new();
    for round in 0..1000 {
        shown.clear();
        for key in 0..KEYS {
            let held = value(b, &format!("key{key}"));
            assert_ne!(held.as_deref(), Some("old"), "key{key} in round {round}");
            shown.push(held);
        }
        if shown.iter().filter(|held| held.is_some()).count() == KEYS - 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    copies.wait_until_ready(1);
    assert_eq!(shown.iter().filter(|held| held.is_some()).count(), KEYS - 1, "{}", b.log());
    assert_eq!(value(b, "key399"), None);
    assert_eq!(copies.metric(1, "catch_up_again_total"), 1);
    assert_eq!(copies.metric(1, "catch_up_dropped_total"), 0);
}
